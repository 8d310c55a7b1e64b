"""A part of a source file -> the user's functions that it calls, also in imported files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fastpipe.diagnosis.inject.fastpipe_probe.user_code import is_user_file
from fastpipe.diagnosis.source.files import get_name, parse_file


@dataclass(frozen=True)
class Piece:
    """A part of a source file, such as a function or a loop."""

    file: str
    node: ast.AST


@dataclass(frozen=True)
class _Definitions:
    """The functions of a file and of the user's files that it imports."""

    functions: dict[str, list[Piece]]  # by name
    classes: dict[ast.AST, ast.ClassDef]  # a statement in a class's body -> the class


@lru_cache(maxsize=256)
def _read_definitions(file: str) -> _Definitions:
    definitions = _Definitions({}, {})
    for name in dict.fromkeys([file, *_list_imported(file)]):  # each file once
        for node in ast.walk(parse_file(name)):
            if isinstance(node, ast.FunctionDef):
                pieces = definitions.functions.setdefault(node.name, [])
                pieces.append(Piece(name, node))
            elif isinstance(node, ast.ClassDef):
                for statement in node.body:
                    definitions.classes[statement] = node
    return definitions


def _list_imported(file: str) -> Iterator[str]:
    """Yields the user's files that a file imports from its folder or the two above."""
    folders = list(Path(file).absolute().parents)[:3]
    for node in ast.walk(parse_file(file)):
        roots = folders
        if isinstance(node, ast.ImportFrom):
            if node.level:  # from . import x
                roots = folders[node.level - 1 : node.level]
            modules = [alias.name for alias in node.names]
            if node.module:
                modules = [node.module]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for root in roots:
            for module in modules:
                yield from _list_module_files(root, module)


def _list_module_files(root: Path, module: str) -> Iterator[str]:
    """Yields the user's file of a module: module.py or module/__init__.py."""
    path = root.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if is_user_file(str(candidate)) and candidate.is_file():
            yield str(candidate)


def list_called(start: Piece) -> list[Piece]:
    """Lists the functions that a piece of a file calls, and those that these call, and so on.

    Functions are found by their names. A function's decorators count as called, too. A call of
    `self.name` is a call of the method of the same class, if it has one of this name.
    """
    called: dict[Piece, None] = {}  # a set that keeps the order
    waiting = [start]
    while waiting:
        piece = waiting.pop()
        # A function may be called several times, also by itself.
        for callee in _list_called_directly(piece):
            if callee not in called:
                called[callee] = None
                waiting.append(callee)
    return list(called)


def _list_called_directly(piece: Piece) -> Iterator[Piece]:
    definitions = _read_definitions(piece.file)
    # A piece is a method of a class, or the class itself.
    own_class = definitions.classes.get(piece.node, piece.node)
    for node in ast.walk(piece.node):
        if isinstance(node, ast.Call):
            candidates = definitions.functions.get(get_name(node.func), [])
            methods = []
            if _is_call_of_self(node):
                for candidate in candidates:
                    if definitions.classes.get(candidate.node) is own_class:
                        methods.append(candidate)
            yield from methods or candidates
        elif isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                yield from _list_wrappers(decorator, definitions)


def _is_call_of_self(call: ast.Call) -> bool:
    """Whether it is self.name(...)."""
    function = call.func
    return isinstance(function, ast.Attribute) and get_name(function.value) == "self"


def _list_wrappers(decorator: ast.expr, definitions: _Definitions) -> Iterator[Piece]:
    """Yields a decorator's function and the functions inside of it, one of which gets called."""
    function = decorator
    if isinstance(decorator, ast.Call):
        function = decorator.func
    for outer in definitions.functions.get(get_name(function), []):
        for node in ast.walk(outer.node):
            if isinstance(node, ast.FunctionDef):
                yield Piece(outer.file, node)
