"""A source file of the user -> its lines that make a loader, open a file, seed a generator or keep something."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any, TypeAlias, TypeGuard

from fastpipe.diagnosis.inject.fastpipe_probe.own import is_own

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_KEEPING = ("append", "extend", "add", "appendleft", "setdefault", "update", "insert")
_SEEDING = re.compile(r"((.*\.)?(random|torch|cuda)\.)?(seed|manual_seed(_all)?)|(.*\.)?(seed_everything|set_seed)")
_NUMBERS = ("item", "float", "int", "len", "round", "str", "time", "perf_counter", "monotonic", "tolist")


_Function: TypeAlias = tuple[str, ast.FunctionDef]  # and its file


@lru_cache(maxsize=256)
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
        assigned = [
            node for node in ast.walk(around) if isinstance(node, ast.Assign) and ast.unparse(node.value) == "None"
        ]
        empty = {id(target) for node in assigned for target in node.targets}
        # An attribute, if there is one: a local variable may have its name; and not where it is None at first.
        stored = [each for each in _stored(around) if _named(each) == name]
        lines = [(isinstance(each, ast.Name), id(each) in empty, each.lineno) for each in stored]
        if lines:
            return f"{file}:{min(lines)[2]}"
    return owner


def seeded_at(function: str) -> str:
    """The line in a function, of which `function` is the first line, or in one that it calls, that seeds a global
    generator; else that line.
    """
    file, around = split(function)[0], _around(function, ast.FunctionDef, ast.ClassDef, ast.Lambda)
    return _seeding([(file, around), *_called(file, around)]) or function


def seeded_again_at(loop: str) -> str:
    """The line that seeds a global generator in what runs again with a loop; "" where none does."""
    return _seeding(_again(loop))


def _again(place: str) -> list[tuple[str, ast.AST]]:
    """What runs again and again with a line: the loops that it is in, also by calls, and the functions they call."""
    file, line = split(place)
    loops = (node for node in ast.walk(_tree(file)) if isinstance(node, _LOOPS))
    run = ([(file, loop), *_called(file, loop)] for loop in loops)
    return [part for parts in run if any(each == file and _holds(node, line) for each, node in parts) for part in parts]


def _seeding(parts: Sequence[tuple[str, ast.AST]]) -> str:
    """The first line of some pieces of files that seeds a global generator; "" where none does."""
    calls = ((file, node) for file, part in parts for node in ast.walk(part) if isinstance(node, ast.Call))
    return next((f"{file}:{call.lineno}" for file, call in calls if _SEEDING.fullmatch(ast.unparse(call.func))), "")


def changed_at(path: str, loop: str) -> str:
    """The line that changes an attribute, such as dataset.size, in what runs again with a loop, if it can be from
    outside of its object; "" where none does.
    """
    attribute, own = path.rpartition(".")[2], split(loop)[0]
    lines = [
        (_named(node.value) == "self", file != own, file, node.lineno)
        for file, around in _again(loop)
        for node in (_unindexed(each) for each in _stored(around))
        if isinstance(node, ast.Attribute) and node.attr == attribute
    ]
    return "{2}:{3}".format(*min(lines)) if lines else ""


def kept_at(place: str) -> list[str]:
    """The lines that keep something other than numbers: of the loop that `place` is in, without one of the methods of
    the class; then of the functions that these call.
    """
    file, _ = split(place)
    loop = _around(place, *_LOOPS)
    alone = isinstance(loop, ast.Pass)
    around = _around(place, ast.ClassDef, ast.FunctionDef) if alone else loop
    methods = [node for node in ast.walk(around) if isinstance(node, ast.FunctionDef)] if alone else []
    own = sorted({line for method in methods for line in _kept_by(method)} if alone else set(_kept(loop)))
    called = ((each, line) for each, function in _called(file, around) for line in sorted(_kept_by(function)))
    return list(dict.fromkeys(f"{each}:{line}" for each, line in (*((file, line) for line in own), *called)))


@lru_cache(maxsize=256)
def _functions(file: str) -> tuple[dict[str, list[_Function]], dict[ast.AST, ast.ClassDef]]:
    """Of a file and those beside it that it imports: functions by their names, and classes by what is in them."""
    by_name: dict[str, list[_Function]] = {}
    owners: dict[ast.AST, ast.ClassDef] = {}
    for each in dict.fromkeys((file, *_imported(file))):
        for node in ast.walk(_tree(each)):
            if isinstance(node, ast.FunctionDef):
                by_name.setdefault(node.name, []).append((each, node))
            elif isinstance(node, ast.ClassDef):
                owners |= dict.fromkeys(node.body, node)
    return by_name, owners


def _imported(file: str) -> Iterator[str]:
    """The user's own files that a file imports from its folder, or from one of the two that this is in."""
    folders = list(Path(file).absolute().parents)[:3]
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            roots = folders[node.level - 1 : node.level] if node.level else folders
        elif isinstance(node, ast.Import):
            names, roots = [alias.name for alias in node.names], folders
        else:
            continue
        paths = [root.joinpath(*name.split(".")) for root in roots for name in names]
        files = [each for path in paths for each in (path.with_suffix(".py"), path / "__init__.py")]
        yield from (str(each) for each in files if is_own(str(each)) and each.is_file())


def _called(file: str, around: ast.AST) -> list[_Function]:
    """The functions whose names a piece of a file calls, with their decorators, and those that these call, and so on.
    What is called of `self` is the method of its own class, if that has one of this name.
    """
    found: dict[_Function, None] = {}
    waiting: list[tuple[str, ast.AST]] = [(file, around)]
    while waiting:
        file, piece = waiting.pop()
        by_name, owners = _functions(file)
        owner = owners.get(piece, piece)
        new: list[_Function] = []
        for node in ast.walk(piece):
            if isinstance(node, ast.Call):
                named = by_name.get(_named(node.func), [])
                of_self = isinstance(node.func, ast.Attribute) and _named(node.func.value) == "self"
                new += [part for part in named if of_self and owners.get(part[1]) is owner] or named
            elif isinstance(node, ast.FunctionDef):  # a function inside of a decorator is the one that is called
                makers = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
                outer = [part for maker in makers for part in by_name.get(_named(maker), [])]
                new += [
                    (file, each)
                    for file, maker in outer
                    for each in ast.walk(maker)
                    if isinstance(each, ast.FunctionDef)
                ]
        new = [part for part in new if part not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return list(found)


def _kept_by(function: ast.FunctionDef) -> set[int]:
    """The lines of a function that keep something for longer than it runs."""
    if function.name == "__init__":
        return set()
    local = {name for each in ast.walk(function) for name in _new(each)}
    outer = {name for each in ast.walk(function) if isinstance(each, ast.Global) for name in each.names}
    cached = {each.lineno for each in function.decorator_list if "cache" in ast.dump(each)}
    return {*_kept(function, local - outer), *cached}


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


def _root(node: ast.expr) -> str:
    """The variable that an expression begins with: `self.a[1].b` -> "self.a" is kept apart from a local `a`."""
    node = _unindexed(node)
    return node.id if isinstance(node, ast.Name) else ""


def _unindexed(node: ast.expr) -> ast.expr:
    """a[1][2] -> a."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) or _is_number(node.right)
    return isinstance(node, ast.Call) and _named(node.func) in _NUMBERS


def _stored(around: ast.AST) -> list[ast.expr]:
    """The names, attributes and items that get a value."""
    return [
        node
        for node in ast.walk(around)
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store)
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


def _holds(node: ast.AST, line: int) -> TypeGuard[ast.stmt | ast.expr]:
    return isinstance(node, (ast.stmt, ast.expr)) and node.lineno <= line <= (node.end_lineno or node.lineno)


def _around(place: str, *kinds: type[ast.AST]) -> ast.AST:
    """The innermost node of some kinds that a line is in; an empty one where there is none."""
    file, line = split(place)
    found = [node for node in ast.walk(_tree(file)) if isinstance(node, kinds) and _holds(node, line)]
    return max(found, key=lambda node: node.lineno, default=ast.Pass())
