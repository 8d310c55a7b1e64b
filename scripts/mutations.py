"""A source file -> the small changes of it that a test should notice.

Kinds: a comparison turned, a number one off, a branch never taken, a call left out, `and` for `or`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

TURNED = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
TURNED_CPP = {"<=": "<", "<": "<=", ">=": ">", ">": ">=", "==": "!=", "!=": "=="}
OPERATOR_CPP = re.compile(r" (<=|>=|==|!=|<|>) ")
NUMBER_CPP = re.compile(r"(?<= [-+] )1(?=[^\w.])")
JUNCTION_CPP = re.compile(r" (&&|\|\|) ")
BRANCH_CPP = re.compile(r"^\s*if \(")
CALL_CPP = re.compile(r"^\s+[\w.]+(?:(?:->|::)\w+)*\([^;]*\);$")


@dataclass(frozen=True)
class Mutation:
    """A piece of a file, by its first and last offset in characters, and what stands there instead."""

    path: Path
    line: int
    kind: str
    start: int
    end: int
    new: str

    def apply(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


def mutations_of(path: Path) -> list[Mutation]:
    """All of a file, in order."""
    text = path.read_text()
    return _of_python(path, text) if path.suffix == ".py" else _of_cpp(path, text)


class _Offsets:
    """(line, column in bytes), as ast counts -> the offset in characters."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def __call__(self, line: int, column_bytes: int) -> int:
        column = len(self._lines[line - 1].encode()[:column_bytes].decode())
        return self._starts[line - 1] + column


def _of_python(path: Path, text: str) -> list[Mutation]:
    tree = ast.parse(text)
    offset = _Offsets(text)
    found: list[Mutation] = []

    def start(node: ast.expr | ast.stmt) -> int:
        return offset(node.lineno, node.col_offset)

    def end(node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return offset(node.end_lineno, node.end_col_offset)

    def add(node: ast.expr | ast.stmt, kind: str, first: int, last: int, new: str) -> None:
        found.append(Mutation(path, node.lineno, kind, first, last, new))

    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in _inside(function):
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                between = text[end(node.left) : start(node.comparators[0])]
                if between.strip(" \n()") and "(" not in between and ")" not in between:
                    new = f" {TURNED[type(node.ops[0])]} "
                    add(node, "comparison turned", end(node.left), start(node.comparators[0]), new)
            elif isinstance(node, ast.Constant) and type(node.value) is int:
                add(node, "one off", start(node), end(node), str(node.value + 1))
            elif isinstance(node, ast.If):
                add(node, "branch never taken", start(node.test), end(node.test), "False")
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                add(node, "call left out", start(node), end(node), "pass")
            elif isinstance(node, ast.BoolOp):
                first, last = end(node.values[0]), start(node.values[1])
                between = text[first:last]
                old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                if between.strip() == old:
                    add(node, f"{new} for {old}", first, last, between.replace(old, new))
    return sorted(found, key=lambda mutation: (mutation.start, mutation.end))


def _inside(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.AST]:
    """The nodes of a function's own statements: not its annotations and defaults, nor functions inside it."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        found.append(node)
        waiting += ast.iter_child_nodes(node)
    return found


def _of_cpp(path: Path, text: str) -> list[Mutation]:
    found: list[Mutation] = []
    begin = 0
    for number, full in enumerate(text.splitlines(keepends=True), start=1):
        line = full.rstrip("\n")
        code = line.split("//")[0]
        is_code = not code.lstrip().startswith(
            ("#", "template", "static_assert", "using", "*", "/*")
        )
        if is_code and '"' not in code:
            for match in OPERATOR_CPP.finditer(code):
                new = TURNED_CPP[match[1]]
                first, last = begin + match.start(1), begin + match.end(1)
                found.append(Mutation(path, number, "comparison turned", first, last, new))
            for match in NUMBER_CPP.finditer(code):
                found.append(
                    Mutation(
                        path, number, "one off", begin + match.start(), begin + match.end(), "2"
                    )
                )
            for match in JUNCTION_CPP.finditer(code):
                new = "||" if match[1] == "&&" else "&&"
                kind = f"{new} for {match[1]}"
                found.append(
                    Mutation(path, number, kind, begin + match.start(1), begin + match.end(1), new)
                )
            if match := BRANCH_CPP.match(code):
                first = begin + match.end()
                last = _closing(text, first)
                new = f"false && ({text[first:last]})"
                found.append(Mutation(path, number, "branch never taken", first, last, new))
            if CALL_CPP.match(code) and not code.lstrip().startswith(("return", "delete", "throw")):
                indent = len(code) - len(code.lstrip())
                found.append(
                    Mutation(path, number, "call left out", begin + indent, begin + len(code), ";")
                )
        begin += len(full)
    return found


def _closing(text: str, first: int) -> int:
    """Where the parenthesis closes that was opened just before `first`."""
    depth = 1
    for position in range(first, len(text)):
        if text[position] == "(":
            depth += 1
        elif text[position] == ")":
            depth -= 1
        if depth == 0:
            return position
    raise ValueError(f"a parenthesis is not closed after character {first}")
