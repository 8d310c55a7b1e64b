"""A source file of the user -> its lines that make a loader, open a file, seed a generator or keep something."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

_KEEPING = ("append", "extend", "add", "appendleft", "setdefault", "update", "insert")
_NUMBERS = ("item", "float", "int", "len", "round", "str", "time", "perf_counter", "monotonic", "tolist")


@lru_cache(maxsize=32)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


def split(place: str) -> tuple[str, int]:
    """train.py:7 -> train.py, 7."""
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdigit() else 0


def source(place: str) -> str:
    """The text of a line; "" where there is no such file."""
    file, line = split(place)
    try:
        return Path(file).read_text(encoding="utf-8").splitlines()[line - 1].strip()
    except (OSError, IndexError, ValueError):
        return ""


def made_at(loader: Any, frame: FrameType | None) -> str:
    """The line that calls the loader's class: in the caller's file, the only such call, or the nearest above whose
    result has a name that the loader has there; then in the files that called that one. "" where neither finds one.
    """
    seen = set()
    while frame is not None:
        name = frame.f_code.co_filename
        if name not in seen:
            seen.add(name)
            lines = dict(_calls(name, type(loader).__name__))
            if len(lines) == 1:
                return f"{name}:{next(iter(lines))}"
            names = {
                key for scope in (frame.f_locals, frame.f_globals) for key, value in scope.items() if value is loader
            }
            named = [line for line, targets in lines.items() if targets & names]
            above = [line for line in named if line <= frame.f_lineno]  # of several, the nearest that has been run
            if above or len(named) == 1:
                return f"{name}:{max(above) if above else named[0]}"
        frame = frame.f_back
    return ""


def _calls(file: str, class_name: str) -> Iterator[tuple[int, set[str]]]:
    """The lines that call a class of this name, and the names that the result is given."""
    named: dict[int, set[str]] = {}
    for node in ast.walk(_tree(file) or ast.Module([], [])):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
            named[id(node.value)] = {target.id for target in _targets(node) if isinstance(target, ast.Name)}
        if isinstance(node, ast.Call) and _named(node.func) == class_name:
            yield node.lineno, named.get(id(node), set())


def assigned_at(path: str, owner: str) -> str:
    """Where an attribute or variable, such as dataset.zip, gets its value, in the class that `owner` is a line of."""
    file, line = split(owner)
    tree = _tree(file)
    name = path.rstrip("]").rpartition(".")[2].partition("[")[0]
    if tree is None or not name:
        return owner
    found = sorted(target.lineno for node in ast.walk(tree) for target in _targets(node) if _named(target) == name)
    around = _around(tree, line, ast.ClassDef)
    inside = [each for each in found if around is not None and around.lineno <= each <= (around.end_lineno or each)]
    return f"{file}:{(inside or found)[0]}" if found else owner


def seeded_at(function: str) -> str:
    """The line in a function, of which `function` is the first line, that seeds a generator; else that first line."""
    file, line = split(function)
    tree = _tree(file)
    around = None if tree is None else _around(tree, line, ast.FunctionDef, ast.ClassDef, ast.Lambda)
    for node in ast.walk(around) if around is not None else ():
        if isinstance(node, ast.Call) and _named(node.func) in ("seed", "manual_seed", "seed_everything", "set_seed"):
            return f"{file}:{node.lineno}"
    return function


def kept_in_loop(place: str) -> list[str]:
    """The lines of the loop that `place` is in which keep something other than numbers, iteration by iteration."""
    file, line = split(place)
    tree = _tree(file)
    loop = None if tree is None else _around(tree, line, ast.For, ast.AsyncFor, ast.While)
    return [f"{file}:{each}" for each in sorted(set(_kept(loop)))] if loop is not None else []


def kept_in_class(place: str) -> list[str]:
    """The lines that keep something in an attribute or a global variable, in the class that `place` is in."""
    file, line = split(place)
    tree = _tree(file)
    around = None if tree is None else _around(tree, line, ast.ClassDef, ast.FunctionDef)
    if around is None:
        return []
    found: set[int] = set()
    for node in ast.walk(around):
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            local = {
                _named(target) for inner in ast.walk(node) for target in _targets(inner) if isinstance(target, ast.Name)
            }
            found |= set(_kept(node, local - _globals(node)))
            found |= {each.lineno for each in node.decorator_list if "cache" in ast.dump(each)}
    return [f"{file}:{each}" for each in sorted(found)]


def _globals(function: ast.FunctionDef) -> set[str]:
    return {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}


def _kept(around: ast.AST, local: Collection[str] = ()) -> Iterator[int]:
    """The lines that put something other than a number into what is no local variable."""
    for node in ast.walk(around):
        into: list[ast.expr] = []
        kept: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPING:
            into, kept = [node.func.value], node.args
        elif isinstance(node, ast.Assign):
            into, kept = [target for target in node.targets if isinstance(target, ast.Subscript)], [node.value]
        elif isinstance(node, ast.AugAssign) and isinstance(node.value, (ast.List, ast.Tuple, ast.Name, ast.Attribute)):
            into, kept = [node.target], [node.value]
        if any(_root(target) not in local for target in into) and not all(_is_number(value) for value in kept):
            yield kept[0].lineno


def _root(node: ast.AST) -> str:
    """The variable that an expression begins with: `self.a[1].b` -> "self.a" is kept apart from a local `a`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) or _is_number(node.right)
    return isinstance(node, ast.Call) and _named(node.func) in _NUMBERS


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return [
            part for target in node.targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])
        ]
    if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        return [node.target]
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return [item.optional_vars for item in node.items if item.optional_vars is not None]
    return []


def _named(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _around(tree: ast.Module, line: int, *kinds: type[ast.stmt | ast.expr]) -> ast.stmt | ast.expr | None:
    """The innermost node of some kinds that a line is in."""
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.stmt, ast.expr)) and isinstance(node, kinds)
        if node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(found, key=lambda node: node.lineno, default=None)
