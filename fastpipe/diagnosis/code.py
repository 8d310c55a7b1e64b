"""A source file of the user -> its lines that make a loader, open a file, seed a generator or keep something."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any

_KEEPING = ("append", "extend", "add", "appendleft", "setdefault", "update", "insert")
_SEEDING = re.compile(r"((.*\.)?(random|torch|cuda)\.)?(seed|manual_seed(_all)?)|(.*\.)?(seed_everything|set_seed)")
_NUMBERS = ("item", "float", "int", "len", "round", "str", "time", "perf_counter", "monotonic", "tolist")


@lru_cache(maxsize=32)
def _tree(file: str) -> ast.Module:
    """Of a source file; empty where there is none."""
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


def split(place: str) -> tuple[str, int]:
    """train.py:7 -> train.py, 7."""
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdigit() else 0


def source(place: str) -> str:
    """The text of a line; "" where there is no such file."""
    return linecache.getline(*split(place)).strip()


def made_at(loader: Any, frame: FrameType) -> str:
    """The line that calls the loader's class: in the caller's file, the only such call, or the nearest above whose
    result has a name that the loader has there; then in the files that called that one. "" where neither finds one.
    """
    seen = set()
    for caller, running in walk_stack(frame):
        file = caller.f_code.co_filename
        if file not in seen:
            seen.add(file)
            lines = _calls(file, type(loader).__name__)
            if len(lines) == 1:
                return f"{file}:{next(iter(lines))}"
            names = {key for scope in (caller.f_locals, caller.f_globals) for key in scope if scope[key] is loader}
            named = [line for line, targets in lines.items() if targets & names]
            above = [line for line in named if line <= running]  # of several, the nearest that has been run
            if above or len(named) == 1:
                return f"{file}:{max(above) if above else named[0]}"
    return ""


def _calls(file: str, class_name: str) -> dict[int, set[str]]:
    """The lines that call a class of this name, and the names that the result is given."""
    nodes = list(ast.walk(_tree(file)))
    named = {
        id(node.value): {target.id for target in _stored(node) if isinstance(target, ast.Name)}
        for node in nodes
        if isinstance(node, (ast.Assign, ast.AnnAssign))
    }
    calls = [node for node in nodes if isinstance(node, ast.Call) and _named(node.func) == class_name]
    return {call.lineno: named.get(id(call), set()) for call in calls}


def assigned_at(path: str, owner: str) -> str:
    """Where an attribute or variable, such as dataset.zip, gets its value, in the class that `owner` is a line of."""
    file, _ = split(owner)
    name = path.rstrip("]").rpartition(".")[2].partition("[")[0]
    for around in (_around(owner, ast.ClassDef), _tree(file)):
        # An attribute, if there is one: a local variable may have its name.
        lines = [(isinstance(each, ast.Name), each.lineno) for each in _stored(around) if _named(each) == name]
        if lines:
            return f"{file}:{min(lines)[1]}"
    return owner


def seeded_at(function: str) -> str:
    """The line in a function, of which `function` is the first line, that seeds a global generator; else that line."""
    for node in ast.walk(_around(function, ast.FunctionDef, ast.ClassDef, ast.Lambda)):
        if isinstance(node, ast.Call) and _SEEDING.fullmatch(ast.unparse(node.func)):
            return f"{split(function)[0]}:{node.lineno}"
    return function


def kept_in_loop(place: str) -> list[str]:
    """The lines of the loop that `place` is in which keep something other than numbers, iteration by iteration."""
    loop = _around(place, ast.For, ast.AsyncFor, ast.While)
    return [f"{split(place)[0]}:{line}" for line in sorted(set(_kept(loop)))]


def kept_in_class(place: str) -> list[str]:
    """The lines that keep something in an attribute, a global variable or the cache of a function that is called, in
    the class that `place` is in.
    """
    around = _around(place, ast.ClassDef, ast.FunctionDef)
    called = {_named(each.func) for each in ast.walk(around) if isinstance(each, ast.Call)}
    found: set[int] = set()
    for node in ast.walk(_tree(split(place)[0])):
        if isinstance(node, ast.FunctionDef) and node.name in called:
            found |= {each.lineno for each in node.decorator_list if "cache" in ast.dump(each)}
    for node in ast.walk(around):
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            local = {name for each in ast.walk(node) for name in _new(each)}
            outer = {name for each in ast.walk(node) if isinstance(each, ast.Global) for name in each.names}
            found |= set(_kept(node, local - outer))
            found |= {each.lineno for each in node.decorator_list if "cache" in ast.dump(each)}
    return [f"{split(place)[0]}:{line}" for line in sorted(found)]


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


def _stored(around: ast.AST) -> list[ast.expr]:
    """The names and attributes that get a value."""
    return [
        node
        for node in ast.walk(around)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)
    ]


def _new(node: ast.AST) -> set[str]:
    """The names that an assignment or `with` gives a value; a loop's may be part of what is no local variable."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        targets = [item.optional_vars for item in node.items if item.optional_vars]
    return {each.id for target in targets for each in _stored(target) if isinstance(each, ast.Name)}


def _named(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _around(place: str, *kinds: type[ast.AST]) -> ast.AST:
    """The innermost node of some kinds that a line is in; an empty one where there is none."""
    file, line = split(place)
    found = [
        node
        for node in ast.walk(_tree(file))
        if isinstance(node, kinds) and isinstance(node, (ast.stmt, ast.expr))
        if node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(found, key=lambda node: node.lineno, default=ast.Pass())
