"""A dataset -> the objects that it holds, and where the user wrote them. The work is bounded."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import types
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from .user_code import is_user_file, is_user_place

# The limits keep the work bounded, however large a dataset is.
MAX_ITEMS = 32  # of a container
MAX_ATTRIBUTES = 128  # of an object
_MAX_OBJECTS = 5000
_MAX_DEPTH = 6
_MAX_BASES = 4
# Values without parts. Modules and classes would lead to all of the program.
PLAIN_TYPES = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    bool,
    type(None),
    types.ModuleType,
    type,
)
CONTAINER_TYPES = (dict, list, tuple, set, frozenset, deque)
# The methods by which the user's code gets to work, the most telling first.
_ENTRY_METHODS = ("__getitem__", "__getitems__", "__iter__", "__call__", "__init__")


def walk(
    root: object, name: str, *, with_plain: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yields an object and what its attributes hold, each with the expression that leads to it.

    Of long containers only the first items count. Numbers, strings and the like come only
    `with_plain`.
    """
    # Objects may be in a circle, and equal objects are not the same: the ids tell.
    seen_ids: set[int] = set()
    # path, value, depth.
    waiting: deque[tuple[str, Any, int]] = deque([(name, root, 0)])
    while waiting and len(seen_ids) < _MAX_OBJECTS:
        path, value, depth = waiting.popleft()
        if isinstance(value, PLAIN_TYPES):
            if with_plain:
                yield path, value
            continue
        if id(value) in seen_ids:
            continue
        seen_ids.add(id(value))
        yield path, value
        if depth < _MAX_DEPTH:
            for inner_path, item in _list_inside(path, value):
                waiting.append((inner_path, item, depth + 1))


def _list_inside(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the items of a container, or the attributes of an object."""
    if isinstance(value, dict):
        for key, item in islice(value.items(), MAX_ITEMS):
            if isinstance(key, (str, int)):
                yield f"{path}[{key!r}]", item
            else:
                yield f"{path}[...]", item
    elif isinstance(value, CONTAINER_TYPES):
        for index, item in enumerate(islice(value, MAX_ITEMS)):
            yield f"{path}[{index}]", item
    elif isinstance(value, functools.partial):
        yield f"{path}.func", value.func
        yield f"{path}.args", value.args
        yield f"{path}.keywords", value.keywords
    elif isinstance(value, types.MethodType):
        yield f"{path}.__self__", value.__self__
    elif not isinstance(value, types.FunctionType):
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            for key, item in islice(attributes.items(), MAX_ATTRIBUTES):
                yield f"{path}.{key}", item


def walk_with_globals(**roots: object) -> Iterator[tuple[str, Any]]:
    """As `walk`, with the variables from outside of the user's functions, such as a global file."""
    seen_ids: set[int] = set()
    seen_codes: set[types.CodeType] = set()
    waiting: deque[tuple[str, Any]] = deque(roots.items())
    while waiting and len(seen_codes) < MAX_ITEMS:
        path, value = waiting.popleft()
        for inner_path, item in walk(value, path):
            if id(item) in seen_ids:
                continue
            seen_ids.add(id(item))
            yield inner_path, item
            for function in list_functions(item):
                code = function.__code__
                if code not in seen_codes and is_user_file(code.co_filename):
                    seen_codes.add(code)
                    waiting.extend(_list_variables(function))


def list_functions(value: Any) -> Iterator[types.FunctionType]:
    """Yields a function itself, or the methods of an object's class and its nearest bases."""
    if isinstance(value, types.FunctionType):
        yield value
        return
    if isinstance(value, (*PLAIN_TYPES, *CONTAINER_TYPES)):
        return
    for base in type(value).__mro__[:_MAX_BASES]:
        for attribute in vars(base).values():
            if isinstance(attribute, types.FunctionType):
                yield attribute


def _list_variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields a function's variables from outside: global ones, and the enclosing function's."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):  # a function inside of it
                codes.append(constant)
        # co_names would have the names of attributes, too.
        names = set()
        for instruction in dis.get_instructions(code):
            if instruction.opname == "LOAD_GLOBAL":
                names.add(instruction.argval)
        for name in sorted(names):
            value = function.__globals__.get(name)
            if value is not None and not isinstance(value, (types.ModuleType, type)):
                yield name, value
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=False):
        with contextlib.suppress(ValueError):  # an empty cell
            yield name, cell.cell_contents


def find_user_place(root: object, name: str) -> str:
    """Finds the user's class or function nearest to an object; "" if all are installed ones."""
    for _, value in walk(root, name):
        if isinstance(value, CONTAINER_TYPES):
            continue
        place = find_definition(value)
        if is_user_place(place):
            return place
    return ""


def find_definition(value: Any) -> str:
    """Finds where a function, a class or an object's class is defined, as file:line; else ""."""
    value = getattr(value, "__wrapped__", value)
    value = getattr(value, "__func__", value)
    if isinstance(value, functools.partial):
        return find_definition(value.func)
    if isinstance(value, types.FunctionType):
        return f"{value.__code__.co_filename}:{value.__code__.co_firstlineno}"

    kind = value if isinstance(value, type) else type(value)
    places = []
    for name in _ENTRY_METHODS:
        method = getattr(kind, name, None)
        if isinstance(method, types.FunctionType):
            places.append(find_definition(method))
    # torch's Dataset has a __getitem__, which the class of a stream inherits.
    for place in places:
        if is_user_place(place):
            return place
    if places:
        return places[0]
    with contextlib.suppress(OSError, TypeError):
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    return ""
