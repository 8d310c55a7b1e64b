"""A dataset -> objects that are bad for worker processes: lambdas, lists of many objects."""

from __future__ import annotations

import os
import pickle
import sys
import types
from itertools import islice
from typing import Any

from .objects import CONTAINER_TYPES, MAX_ITEMS, PLAIN_TYPES, find_definition, walk

_MIN_HEAVY_ITEMS = 10_000
# The size of a container is estimated by some of its items, and by what these hold.
_SAMPLED_ITEMS = 100
_SAMPLED_DEPTH = 3
_OBJECT_BYTES = 64  # of an object of unknown type, about


def list_unpicklable(root: object, name: str) -> list[dict[str, str]]:
    """Lists lambdas, and functions and classes inside of functions: pickle cannot name them."""
    unpicklable = []
    for path, value in walk(root, name):
        # pickle stores a function, or the class of an object, by its name.
        named = value
        noun = "function"
        if not isinstance(value, types.FunctionType):
            named = type(value)
            noun = "class"
        qualname = getattr(named, "__qualname__", "")
        if qualname.endswith("<lambda>"):
            kind = "a lambda"
        elif "<lambda>" in qualname or "<locals>" in qualname:
            local_name = qualname.replace("<locals>.", "")
            kind = f"{local_name}, a local {noun}"
        else:
            continue
        place = find_definition(value)
        unpicklable.append({"path": path, "kind": kind, "place": place})
    return unpicklable[:MAX_ITEMS]


def list_pickle_failures(root: Any, name: str) -> list[dict[str, str]]:
    """Pickles each attribute, and lists those that fail: a lock, a generator, an open file."""
    failures = []
    attributes = list(getattr(root, "__dict__", {}).items())
    with open(os.devnull, "wb") as nowhere:
        for attribute, value in attributes[:MAX_ITEMS]:
            try:
                pickle.dump(value, nowhere)
            except Exception as problem:
                failure = {
                    "path": f"{name}.{attribute}",
                    "kind": str(problem)[:200],
                    "place": find_definition(root),
                }
                failures.append(failure)
    return failures


def list_heavy_containers(root: object, name: str) -> list[dict[str, Any]]:
    """Lists the containers of many Python objects, and their bytes, the largest first."""
    heavy: list[dict[str, Any]] = []
    for path, value in walk(root, name):
        if not isinstance(value, CONTAINER_TYPES) or len(value) < _MIN_HEAVY_ITEMS:
            continue
        spread: Any = value
        if isinstance(value, (list, tuple)):
            step = len(value) // _SAMPLED_ITEMS
            spread = value[::step]
        sampled = _list_parts(spread, _SAMPLED_ITEMS)
        sampled_bytes = sum(_estimate_bytes(item, _SAMPLED_DEPTH) for item in sampled)
        # For a dict, the bytes of a key and its value.
        item_bytes = sampled_bytes / _SAMPLED_ITEMS
        if item_bytes == 0:
            continue
        kinds = sorted({type(item).__name__ for item in sampled})
        kinds_of_items = " and ".join(kinds[:3])
        items_bytes = int(len(value) * item_bytes)
        container = {
            "path": path,
            "kind": f"{type(value).__name__} of {len(value):,} {kinds_of_items}",
            "bytes": items_bytes + sys.getsizeof(value),
        }
        heavy.append(container)
    heavy.sort(key=lambda container: -container["bytes"])
    return heavy[:MAX_ITEMS]


def _list_parts(value: Any, most_items: int) -> list[Any]:
    """Lists the first items of a container; of a dict their keys and values."""
    if not isinstance(value, dict):
        return list(islice(value, most_items))
    parts: list[Any] = []
    for key, item in islice(value.items(), most_items):
        parts += [key, item]
    return parts


def _estimate_bytes(value: Any, depth: int) -> int:
    """Estimates the bytes of Python objects; those of arrays do not count."""
    # All of a program shares these objects: None, True, False and the small numbers.
    if value is None or isinstance(value, bool):
        return 0
    if isinstance(value, int) and -5 <= value <= 256:
        return 0
    size_bytes = _OBJECT_BYTES
    if isinstance(value, (*PLAIN_TYPES, tuple, list, dict, os.PathLike)):
        size_bytes = sys.getsizeof(value)
    if depth and isinstance(value, (tuple, list, dict)):
        for item in _list_parts(value, MAX_ITEMS):
            size_bytes += _estimate_bytes(item, depth - 1)
    return size_bytes
