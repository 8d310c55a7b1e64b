"""A dataset -> what in it is bad for worker processes: lambdas, lists of Python objects, generators. Bounded work."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import os
import pickle
import random
import sys
import types
import zlib
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from .own import is_own

_MOST_OBJECTS = 5000
_MOST_DEPTH = 6
_ITEMS = 32
_LEAST_HEAVY = 10_000
_LOOKED_AT = 100
_PARTS = 4
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


def reached(root: object, name: str = "dataset") -> Iterator[tuple[str, Any]]:
    """What an object holds, and the global variables that the user's own code in it names, such as an open file."""
    seen: set[int] = set()
    waiting: deque[tuple[str, Any]] = deque([(name, root)])
    codes: set[int] = set()
    while waiting and len(codes) < _ITEMS:
        path, value = waiting.popleft()
        for inner, item in walk(value, path):
            if id(item) in seen:
                continue
            seen.add(id(item))
            yield inner, item
            for function in _functions(item):
                if id(function.__code__) not in codes and is_own(function.__code__.co_filename):
                    codes.add(id(function.__code__))
                    waiting.extend(_variables(function))


def _functions(value: Any) -> Iterator[types.FunctionType]:
    """A function, or the methods of an object's class that read samples, and what they are made of."""
    if isinstance(value, types.FunctionType):
        yield value
    elif not isinstance(value, (*_PLAIN, dict, list, tuple, set, frozenset)):
        for base in type(value).__mro__[:4]:
            yield from (each for each in vars(base).values() if isinstance(each, types.FunctionType))


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function's code has from around it: global variables by name, and those of the function outside of it."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes.extend(inner for inner in code.co_consts if isinstance(inner, types.CodeType))
        names = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
        for name in sorted(names):  # co_names has those of attributes, too
            value = function.__globals__.get(name)
            if value is not None and not isinstance(value, (types.ModuleType, type)):
                yield name, value
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):
            yield name, cell.cell_contents


def own_place(root: object, name: str) -> str:
    """The user's own class or function in a dataset or collate_fn that is nearest to it; "" where all are installed."""
    for _, value in walk(root, name):
        found = "" if isinstance(value, (dict, list, tuple, set)) else place(value)
        if is_own(found.rpartition(":")[0]):
            return found
    return ""


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
    methods = ("__getitem__", "__getitems__", "__iter__", "__call__", "__init__")
    found = [next((vars(base)[name] for base in value.__mro__ if name in vars(base)), None) for name in methods]
    places = [place(method) for method in found if isinstance(method, types.FunctionType)]
    if places:  # torch's Dataset has a __getitem__ that a stream does not write
        return next((each for each in places if is_own(each.rpartition(":")[0])), places[0])
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


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        return len(data)


def refused_by_pickle(root: Any, name: str) -> list[dict[str, str]]:
    """The attributes of an object that pickle refuses, such as a lock, a generator or an open file."""
    found = []
    for key, value in list(getattr(root, "__dict__", {}).items())[:_ITEMS]:
        try:
            pickle.Pickler(_Nowhere()).dump(value)
        except Exception as problem:
            found.append({"path": f"{name}.{key}", "kind": str(problem)[:200], "place": place(root)})
    return found


def plain_values(root: Any) -> dict[str, str]:
    """The numbers, words and truth values that an object has as attributes, and that its methods read."""
    plain = (str, int, float, bool, type(None))
    items = list(getattr(root, "__dict__", {}).items())[: 4 * _ITEMS]
    methods = [each for each in _functions(root) if each.__name__ != "__init__" and is_own(each.__code__.co_filename)]
    read = {step.argval for each in methods for step in dis.get_instructions(each) if step.opname == "LOAD_ATTR"}
    return {key: repr(value)[:100] for key, value in items if isinstance(value, plain) and key in read}


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


def global_generators() -> dict[str, int]:
    """The global generators of random, NumPy and torch -> a checksum of the state of each."""
    found = {"random": zlib.crc32(repr(random.getstate()).encode())}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    with contextlib.suppress(Exception):
        if numpy is not None:
            _, key, at, *more = numpy.random.get_state()
            found["np.random"] = zlib.crc32(repr((at, more)).encode(), zlib.crc32(key.tobytes()))
        if torch is not None:
            found["torch"] = zlib.crc32(torch.random.get_rng_state().numpy().tobytes())
    return found


@contextlib.contextmanager
def kept_generators() -> Iterator[None]:
    """Puts the global generators of random, NumPy and torch back at the end."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    python = random.getstate()
    legacy = None if numpy is None else numpy.random.get_state()
    tensor = None if torch is None else torch.random.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(legacy)
        if torch is not None:
            torch.random.set_rng_state(tensor)


def generators(root: object, name: str) -> dict[str, int]:
    """The random generators that an object holds, and those in global variables -> a checksum of the state of each."""
    found = {}
    for path, value in reached(root, name):
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


def checksums(sample: Any) -> list[int]:
    """That of a sample, and those of its first parts: an augmented image differs where its name or number does not."""
    parts = list(sample.values()) if isinstance(sample, dict) else sample if isinstance(sample, (list, tuple)) else []
    return [checksum(sample), *(checksum(part) for part in islice(parts, _PARTS))]


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
