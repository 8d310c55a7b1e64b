"""A dataset -> what in it is bad for worker processes: lambdas, lists of Python objects, generators. Bounded work."""

from __future__ import annotations

import functools
import inspect
import os
import random
import sys
import types
import zlib
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

_MOST_OBJECTS = 5000
_MOST_DEPTH = 6
_ITEMS = 32
_LEAST_HEAVY = 10_000
_LOOKED_AT = 100
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), types.ModuleType, type)
_NAMED = ("samples", "imgs", "files", "paths", "filenames", "image_paths", "images")


def walk(root: object, name: str) -> Iterator[tuple[str, Any]]:
    """An object and what its attributes hold, with the expression that leads to each; of long lists the first items."""
    seen: set[int] = set()
    waiting: deque[tuple[str, Any, int]] = deque([(name, root, 0)])
    while waiting and len(seen) < _MOST_OBJECTS:
        path, value, depth = waiting.popleft()
        if isinstance(value, _PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        yield path, value
        if depth < _MOST_DEPTH:
            waiting.extend((inner, item, depth + 1) for inner, item in _inside(path, value))


def _inside(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, functools.partial):
        yield f"{path}.func", value.func
        for number, item in enumerate(value.args):
            yield f"{path}.args[{number}]", item
        value = value.keywords
    if isinstance(value, types.MethodType):
        yield f"{path}.__self__", value.__self__
    elif isinstance(value, dict):
        for key, item in islice(value.items(), _ITEMS):
            yield f"{path}[{key!r}]" if isinstance(key, (str, int)) else f"{path}[...]", item
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        for number, item in enumerate(islice(value, _ITEMS)):
            yield f"{path}[{number}]", item
    elif not isinstance(value, types.FunctionType):
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            for key, item in islice(attributes.items(), 4 * _ITEMS):
                yield f"{path}.{key}", item


def place(value: Any) -> str:
    """Where a function, class or object's class is written: file:line; "" where that is not known."""
    value = getattr(value, "__wrapped__", value)
    if isinstance(value, types.MethodType):
        value = value.__func__
    if isinstance(value, functools.partial):
        return place(value.func)
    if not isinstance(value, (types.FunctionType, type)):
        value = type(value)
    code = getattr(value, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    for name in ("__getitem__", "__iter__", "__call__", "__init__"):
        method = next((vars(base)[name] for base in value.__mro__ if name in vars(base)), None)
        if isinstance(method, types.FunctionType):
            return place(method)
    try:
        return f"{inspect.getsourcefile(value)}:{inspect.getsourcelines(value)[1]}"
    except (OSError, TypeError):
        return ""


def unpicklable(root: object, name: str) -> list[dict[str, str]]:
    """Functions and classes that pickle cannot name: lambdas, and what was defined inside of a function."""
    found = []
    for path, value in walk(root, name):
        named = value if isinstance(value, types.FunctionType) else type(value)
        qualname = getattr(named, "__qualname__", "")
        if "<lambda>" in qualname or "<locals>" in qualname:
            kind = "a lambda" if qualname.endswith("<lambda>") else f"{qualname.replace('<locals>.', '')}, a local "
            if not qualname.endswith("<lambda>"):
                kind += "function" if isinstance(value, types.FunctionType) else "class"
            found.append({"path": path, "kind": kind, "place": place(value)})
    return found[:_ITEMS]


def heavy(root: object, name: str) -> list[dict[str, Any]]:
    """Containers of many Python objects: how many, and about how many bytes they take."""
    found: list[dict[str, Any]] = []
    for path, value in walk(root, name):
        if not isinstance(value, (list, tuple, dict, set, frozenset)) or len(value) < _LEAST_HEAVY:
            continue
        some: list[Any]
        if isinstance(value, (list, tuple)):
            some = [value[at * len(value) // _LOOKED_AT] for at in range(_LOOKED_AT)]
        elif isinstance(value, dict):
            some = [part for item in islice(value.items(), _LOOKED_AT) for part in item]
        else:
            some = list(islice(value, _LOOKED_AT))
        each = sum(_size(item, 3) for item in some) / _LOOKED_AT
        if each == 0:
            continue
        kinds = {type(item).__name__ for item in some}
        found.append(
            {
                "path": path,
                "kind": f"{type(value).__name__} of {len(value):,} {' and '.join(sorted(kinds)[:3])}",
                "bytes": int(len(value) * each) + sys.getsizeof(value),
            }
        )
    return sorted(found, key=lambda each: -each["bytes"])[:_ITEMS]


def _size(value: Any, depth: int) -> int:
    """Bytes of Python objects; those of arrays do not count, and neither do the small numbers, which all share."""
    if value is None or isinstance(value, bool) or (isinstance(value, int) and -5 <= value <= 256):
        return 0
    size = sys.getsizeof(value) if isinstance(value, (*_PLAIN, tuple, list, dict, os.PathLike)) else 64
    if depth and isinstance(value, (tuple, list)):
        size += sum(_size(item, depth - 1) for item in islice(value, _ITEMS))
    elif depth and isinstance(value, dict):
        size += sum(_size(part, depth - 1) for item in islice(value.items(), _ITEMS) for part in item)
    return size


def generators(root: object, name: str) -> dict[str, int]:
    """The random generators that an object holds -> a checksum of the state of each."""
    found = {}
    for path, value in walk(root, name):
        try:
            if isinstance(value, random.Random):
                state: object = value.getstate()
            elif type(value).__module__.startswith("numpy.random") and hasattr(value, "bit_generator"):
                state = value.bit_generator.state
            elif type(value).__name__ == "RandomState":
                state = value.get_state()
            elif type(value).__name__ == "Generator" and hasattr(value, "get_state"):
                state = value.get_state().numpy().tobytes()
            else:
                continue
            found[path] = zlib.crc32(repr(state).encode())
        except Exception:
            continue
    return found


def sample_name(dataset: Any, index: Any, depth: int = 4) -> str:
    """The file of a sample, where the dataset has a list of them by the usual names; else ""."""
    try:
        if depth and hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
            return sample_name(dataset.dataset, dataset.indices[index], depth - 1)
        for name in _NAMED:
            names = getattr(dataset, "__dict__", {}).get(name)
            if isinstance(names, (list, tuple)):
                found = names[index]
                found = found[0] if isinstance(found, (list, tuple)) else found
                if isinstance(found, (str, os.PathLike)):
                    return str(found)[:300]
    except Exception:
        return ""
    return ""


def batch_bytes(batch: Any) -> int:
    """Bytes of the tensors and arrays of a batch."""
    total = 0
    for _, value in walk(batch, ""):
        size = getattr(value, "nbytes", None)
        if isinstance(size, int):
            total += size
    return total


def checksum(sample: Any) -> int:
    """A checksum of a sample: of its numbers and letters, at most 64 kB of each array."""
    found = zlib.crc32(type(sample).__name__.encode())
    if isinstance(sample, _PLAIN):
        return zlib.crc32(repr(sample)[:65536].encode("utf-8", "replace"), found)
    for path, value in walk(sample, ""):
        found = zlib.crc32(path.encode("utf-8", "replace"), found)
        if isinstance(value, dict):
            inner: list[Any] = list(islice(value.values(), _ITEMS))
        elif isinstance(value, (list, tuple)):
            inner = list(value[:_ITEMS])
        else:
            inner = []
        plain = [item for item in inner if isinstance(item, _PLAIN)]
        found = zlib.crc32(repr(plain)[:65536].encode("utf-8", "replace"), found)
        if hasattr(value, "nbytes"):
            array = value.detach().cpu().numpy() if hasattr(value, "detach") else value
            found = zlib.crc32(array.reshape(-1)[:8192].tobytes(), found)
    return found
