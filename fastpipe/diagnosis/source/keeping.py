"""A loop or a class -> the lines that keep something other than numbers, so that memory grows."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from fastpipe.diagnosis.source.calls import Piece, list_called
from fastpipe.diagnosis.source.files import (
    LOOPS,
    find_enclosing,
    get_name,
    list_stored,
    split_place,
    strip_indices,
)

_KEEPING_METHODS = (
    "append",
    "extend",
    "add",
    "appendleft",
    "setdefault",
    "update",
    "insert",
)
# += of anything else may be a sum.
_ADDED = (ast.List, ast.Tuple, ast.Name, ast.Attribute)
# Calls whose results take no memory to speak of, however many are kept.
_NUMBER_CALLS = (
    "item",
    "float",
    "int",
    "len",
    "round",
    "str",
    "time",
    "perf_counter",
    "monotonic",
    "tolist",
)


def find_keeping_lines(place: str) -> list[str]:
    """Finds the lines that keep something in the loop around a line, else in the class.

    Then come the lines in the functions that the loop or the class calls.
    """
    file, _ = split_place(place)
    root = find_enclosing(place, *LOOPS)
    keeping: list[str] = []
    # An empty statement stands for no loop.
    is_in_loop = not isinstance(root, ast.Pass)
    if is_in_loop:
        lines = set(_list_keeping(root))
    else:
        root = find_enclosing(place, ast.ClassDef, ast.FunctionDef)
        lines = set()
        for node in ast.walk(root):
            if isinstance(node, ast.FunctionDef):
                lines |= _list_keeping_in_function(node)
    keeping += [f"{file}:{line}" for line in sorted(lines)]
    for called in list_called(Piece(file, root)):
        if isinstance(called.node, ast.FunctionDef):
            lines = _list_keeping_in_function(called.node)
            keeping += [f"{called.file}:{line}" for line in sorted(lines)]
    return list(dict.fromkeys(keeping))  # each once


def _list_keeping_in_function(function: ast.FunctionDef) -> set[int]:
    """Lists the lines of a function that keep something for longer than the function runs."""
    if function.name == "__init__":
        return set()  # it runs once
    local_names: set[str] = set()
    global_names: set[str] = set()
    for node in ast.walk(function):
        local_names |= _list_new_names(node)
        if isinstance(node, ast.Global):
            global_names.update(node.names)
    lines = set(_list_keeping(function, local_names - global_names))
    for decorator in function.decorator_list:
        if "cache" in ast.dump(decorator):
            lines.add(decorator.lineno)
    return lines


def _list_keeping(root: ast.AST, local_names: Collection[str] = ()) -> Iterator[int]:
    """Yields the lines that put something other than a number into an outer object."""
    for node in ast.walk(root):
        containers: list[ast.expr] = []
        values: list[ast.expr] = []
        if isinstance(node, ast.Call):  # container.append(value)
            if (
                isinstance(node.func, ast.Attribute)
                and node.func.attr in _KEEPING_METHODS
            ):
                containers = [node.func.value]
                values = node.args
        elif isinstance(node, ast.Assign):  # container[key] = value
            containers = [
                target for target in node.targets if isinstance(target, ast.Subscript)
            ]
            values = [node.value]
        elif isinstance(node, ast.AugAssign) and isinstance(node.value, _ADDED):
            containers = [node.target]  # container += [value]
            values = [node.value]
        is_outer = any(
            _get_variable(container) not in local_names for container in containers
        )
        if is_outer and not all(_is_number(value) for value in values):
            yield values[0].lineno


def _get_variable(node: ast.expr) -> str:
    """Returns the variable of an expression, a[1] -> "a"; "" for self.a, which is never local."""
    node = strip_indices(node)
    if isinstance(node, ast.Name):
        return node.id
    return ""


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) or _is_number(node.right)
    return isinstance(node, ast.Call) and get_name(node.func) in _NUMBER_CALLS


def _list_new_names(node: ast.AST) -> set[str]:
    """Lists the names that an assignment or a `with` gives a value.

    A loop's variable is left out: it may be part of an object that outlives the function.
    """
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        targets = [item.optional_vars for item in node.items if item.optional_vars]
    names: set[str] = set()
    for target in targets:
        for stored in list_stored(target):
            if isinstance(stored, ast.Name):
                names.add(stored.id)
    return names
