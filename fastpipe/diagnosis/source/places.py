"""A user's source file -> the lines that make a loader, set an attribute or seed a generator."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from traceback import walk_stack
from types import FrameType
from typing import Any

from fastpipe.diagnosis.source.calls import Piece, list_called
from fastpipe.diagnosis.source.files import (
    LOOPS,
    find_enclosing,
    get_name,
    has_line,
    list_stored,
    parse_file,
    split_place,
    strip_indices,
)

_SEED_CALL = re.compile(
    r"((.*\.)?(random|torch|cuda)\.)?(seed|manual_seed(_all)?)|(.*\.)?(seed_everything|set_seed)"
)


def find_creation(loader: Any, frame: FrameType) -> str:
    """Finds the line that made the loader, in the caller's file, then in those that called it.

    It is the only such call in the file, or the nearest above whose result has a name that the
    loader has there. Returns "" if no file has one.
    """
    searched = set()
    for caller, running_line in walk_stack(frame):
        file = caller.f_code.co_filename
        if file in searched:
            continue
        searched.add(file)
        calls = _list_class_calls(file, type(loader).__name__)
        if len(calls) == 1:
            (only_line,) = calls
            return f"{file}:{only_line}"
        # Several calls: those whose result has a name that the loader has in this function.
        loader_names: set[str] = set()
        for scope in (caller.f_locals, caller.f_globals):
            loader_names.update(name for name in scope if scope[name] is loader)
        lines = []
        for line, targets in calls.items():
            if targets & loader_names:
                lines.append(line)
        lines_above = [line for line in lines if line <= running_line]
        if lines_above:
            return f"{file}:{max(lines_above)}"
        if len(lines) == 1:
            return f"{file}:{lines[0]}"
    return ""


def _list_class_calls(file: str, class_name: str) -> dict[int, set[str]]:
    """Lists the lines that call a class of this name, and the names that get the result."""
    # Id of an assigned expression -> its names.
    names_of_value: dict[int, set[str]] = {}
    calls: list[ast.Call] = []
    for node in ast.walk(parse_file(file)):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            names = set()
            for target in list_stored(node):
                if isinstance(target, ast.Name):
                    names.add(target.id)
            names_of_value[id(node.value)] = names
        elif isinstance(node, ast.Call) and get_name(node.func) == class_name:
            calls.append(node)
    names_of_line = {}
    for call in calls:
        names_of_line[call.lineno] = names_of_value.get(id(call), set())
    return names_of_line


def find_assignment(path: str, owner: str) -> str:
    """Finds where an attribute or variable gets its value.

    Args:
        path: the expression, such as dataset.zip.
        owner: a line of the class that has it, as file:line.

    Returns:
        The line as file:line; `owner` if there is none.
    """
    file, _ = split_place(owner)
    last_part = path.rstrip("]").rpartition(".")[2]
    name = last_part.partition("[")[0]
    for root in (find_enclosing(owner, ast.ClassDef), parse_file(file)):
        line = _find_assigned_line(root, name)
        if line is not None:
            return f"{file}:{line}"
    return owner


def _find_assigned_line(root: ast.AST, name: str) -> int | None:
    """Finds the first line that gives an attribute or variable its value.

    An attribute is more likely meant than a local variable of the same name, and a value than the
    first None.
    """
    targets_of_none = _list_targets_of_none(root)
    candidates: list[tuple[bool, bool, int]] = []
    for target in list_stored(root):
        if get_name(target) == name:
            is_variable = isinstance(target, ast.Name)
            is_none = id(target) in targets_of_none
            candidates.append((is_variable, is_none, target.lineno))
    if not candidates:
        return None
    _, _, line = min(candidates)
    return line


def _list_targets_of_none(root: ast.AST) -> set[int]:
    """Lists the ids of what `= None` assigns to."""
    targets: set[int] = set()
    for node in ast.walk(root):
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == "None":
            targets.update(id(target) for target in node.targets)
    return targets


def find_seed(function: str) -> str:
    """Finds the line that seeds a global generator, in a function or in one that it calls.

    `function` is the first line of the function, as file:line. It is returned if no line seeds.
    """
    file, _ = split_place(function)
    node = find_enclosing(function, ast.FunctionDef, ast.ClassDef, ast.Lambda)
    start = Piece(file, node)
    return _find_seed_call([start, *list_called(start)]) or function


def find_repeated_seed(loop: str) -> str:
    """Finds the line that seeds a global generator in code that a loop repeats; else ""."""
    return _find_seed_call(_list_repeated(loop))


def _find_seed_call(pieces: Iterable[Piece]) -> str:
    for piece in pieces:
        for node in ast.walk(piece.node):
            if not isinstance(node, ast.Call):
                continue
            function = ast.unparse(node.func)
            if _SEED_CALL.fullmatch(function):
                return f"{piece.file}:{node.lineno}"
    return ""


def _list_repeated(place: str) -> list[Piece]:
    """Lists the code that runs again and again with a line.

    That is each loop that the line is in, also by a call, and the functions that the loop calls.
    """
    file, line = split_place(place)
    repeated: list[Piece] = []
    for node in ast.walk(parse_file(file)):
        if not isinstance(node, LOOPS):
            continue
        loop = Piece(file, node)
        pieces = [loop, *list_called(loop)]
        pieces_of_file = [piece for piece in pieces if piece.file == file]
        if any(has_line(piece.node, line) for piece in pieces_of_file):
            repeated += pieces
    return repeated


def find_change(path: str, loop: str) -> str:
    """Finds the line that changes an attribute in code that a loop repeats; else "".

    Args:
        path: the attribute, such as dataset.size.
        loop: the line of the loop, as file:line.
    """
    attribute = path.rpartition(".")[2]
    loop_file, _ = split_place(loop)
    candidates: list[tuple[bool, bool, str, int]] = []
    for piece in _list_repeated(loop):
        for target in list_stored(piece.node):
            node = strip_indices(target)
            if isinstance(node, ast.Attribute) and node.attr == attribute:
                # A change from outside of the object comes first, then one in the loop's own file.
                is_by_itself = get_name(node.value) == "self"
                is_elsewhere = piece.file != loop_file
                candidate = (is_by_itself, is_elsewhere, piece.file, node.lineno)
                candidates.append(candidate)
    if not candidates:
        return ""
    _, _, file, line = min(candidates)
    return f"{file}:{line}"
