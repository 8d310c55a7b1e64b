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
from itertools import chain, islice
from typing import Any, NamedTuple

from .own import is_own

_MOST_OBJECTS = 5000
_MOST_DEPTH = 6
_ITEMS = 32
_LEAST_HEAVY = 10_000
_LOOKED_AT = 100
_PARTS = 4
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), types.ModuleType, type)
_VALUES = (str, int, float, bool, type(None))
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_READING = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__", "__len__")
_NAMED = ("samples", "imgs", "files", "paths", "filenames", "image_paths", "images")


def walk(root: object, name: str, *, plain: bool = False) -> Iterator[tuple[str, Any]]:
    """An object and what its attributes hold, with the expression that leads to each; of long lists the first items.

    Numbers, words and the like only if `plain`.
    """
    seen: set[int] = set()
    waiting: deque[tuple[str, Any, int]] = deque([(name, root, 0)])
    while waiting and len(seen) < _MOST_OBJECTS:
        path, value, depth = waiting.popleft()
        if isinstance(value, _PLAIN):
            if plain:
                yield path, value
        elif id(value) not in seen:
            seen.add(id(value))
            yield path, value
            if depth < _MOST_DEPTH:
                waiting.extend((inner, item, depth + 1) for inner, item in _inside(path, value))


def _inside(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in islice(value.items(), _ITEMS):
            yield f"{path}[{key!r}]" if isinstance(key, (str, int)) else f"{path}[...]", item
    elif isinstance(value, _CONTAINERS):
        for number, item in enumerate(islice(value, _ITEMS)):
            yield f"{path}[{number}]", item
    elif not isinstance(value, types.FunctionType):
        kinds = ((functools.partial, ("func", "args", "keywords")), (types.MethodType, ("__self__",)))
        names = next((names for kind, names in kinds if isinstance(value, kind)), None)
        attributes = {key: getattr(value, key) for key in names} if names else getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            for key, item in islice(attributes.items(), 4 * _ITEMS):
                yield f"{path}.{key}", item


def reached(**roots: object) -> Iterator[tuple[str, Any]]:
    """What objects hold, and the global variables that the user's own code in them names, such as an open file."""
    seen: set[int] = set()
    codes: set[types.CodeType] = set()
    waiting: deque[tuple[str, Any]] = deque(roots.items())
    while waiting and len(codes) < _ITEMS:
        path, value = waiting.popleft()
        for inner, item in walk(value, path):
            if id(item) in seen:
                continue
            seen.add(id(item))
            yield inner, item
            for function in _functions(item):
                if function.__code__ not in codes and is_own(function.__code__.co_filename):
                    codes.add(function.__code__)
                    waiting.extend(_variables(function))


def _functions(value: Any) -> Iterator[types.FunctionType]:
    """A function, or the methods of an object's class that read samples, and what they are made of."""
    if isinstance(value, types.FunctionType):
        yield value
    elif not isinstance(value, (*_PLAIN, *_CONTAINERS)):
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
    places = (place(value) for _, value in walk(root, name) if not isinstance(value, _CONTAINERS))
    return next((each for each in places if is_own(each.rpartition(":")[0])), "")


def place(value: Any) -> str:
    """Where a function, class or object's class is written: file:line; "" where that is not known."""
    value = getattr(value, "__wrapped__", value)
    value = getattr(value, "__func__", value)
    if isinstance(value, functools.partial):
        return place(value.func)
    if isinstance(value, types.FunctionType):
        return f"{value.__code__.co_filename}:{value.__code__.co_firstlineno}"
    if not isinstance(value, type):
        value = type(value)
    methods = ("__getitem__", "__getitems__", "__iter__", "__call__", "__init__")
    functions = [getattr(value, name, None) for name in methods]
    places = [place(function) for function in functions if isinstance(function, types.FunctionType)]
    if places:  # torch's Dataset has a __getitem__ that a stream does not write
        return next((each for each in places if is_own(each.rpartition(":")[0])), places[0])
    with contextlib.suppress(OSError, TypeError):
        return f"{inspect.getsourcefile(value)}:{inspect.getsourcelines(value)[1]}"
    return ""


def unpicklable(root: object, name: str) -> list[dict[str, str]]:
    """Functions and classes that pickle cannot name: lambdas, and what was defined inside of a function."""
    found = []
    for path, value in walk(root, name):
        function = isinstance(value, types.FunctionType)
        qualname = getattr(value if function else type(value), "__qualname__", "")
        if "<lambda>" in qualname or "<locals>" in qualname:
            local = f"{qualname.replace('<locals>.', '')}, a local {'function' if function else 'class'}"
            kind = "a lambda" if qualname.endswith("<lambda>") else local
            found.append({"path": path, "kind": kind, "place": place(value)})
    return found[:_ITEMS]


def refused_by_pickle(root: Any, name: str) -> list[dict[str, str]]:
    """The attributes of an object that pickle refuses, such as a lock, a generator or an open file."""
    found = []
    with open(os.devnull, "wb") as nowhere:
        for key, value in list(getattr(root, "__dict__", {}).items())[:_ITEMS]:
            try:
                pickle.dump(value, nowhere)
            except Exception as problem:
                found.append({"path": f"{name}.{key}", "kind": str(problem)[:200], "place": place(root)})
    return found


class Setting(NamedTuple):
    """An attribute that a dataset reads for a sample."""

    identity: int
    content: Any  # a mark of it: of plain values a str
    in_place: bool  # whether the program may change it in the same object; a dict may be a cache, which fills itself


def settings(root: Any) -> dict[str, Setting]:
    """The attributes of a dataset's objects that it reads for a sample, but for what processes share."""
    owners = [(path, owner) for path, owner in walk(root, "dataset") if not isinstance(owner, _CONTAINERS)]
    loads: dict[str, set[str]] = {}
    for method in (method for _, owner in owners for method in _functions(owner)):
        if is_own(method.__code__.co_filename):
            steps = (step for step in dis.get_instructions(method) if step.opname in ("LOAD_ATTR", "LOAD_METHOD"))
            loads.setdefault(method.__name__, set()).update(step.argval for step in steps)
    read = set(_READING)
    while more := {name for method in read & loads.keys() for name in loads[method]} - read:
        read |= more
    found: dict[str, Setting] = {}
    for path, owner in owners:
        items = islice(getattr(owner, "__dict__", {}).items(), 4 * _ITEMS)
        marked = ((key, _setting(value)) for key, value in items if key in read)
        found |= {f"{path}.{key}": setting for key, setting in marked if setting}
    return found


def _setting(value: Any) -> Setting | None:
    if isinstance(value, _VALUES):
        return Setting(id(value), repr(value)[:100], True)
    if hasattr(value, "nbytes"):
        shared = getattr(value, "base", None) is not None or getattr(value, "is_shared", bool)()
        return None if shared else Setting(id(value), checksum(value), True)
    if isinstance(value, _CONTAINERS):
        plain = isinstance(value, list) and all(isinstance(each, (*_VALUES[:-1], tuple)) for each in value[:_ITEMS])
        return Setting(id(value), (len(value), checksum(value)), plain and bool(value))
    return Setting(id(value), (type(value).__qualname__, place(value)), False)


def changed(before: dict[str, Setting], now: dict[str, Setting]) -> list[str]:
    """The settings that are others now. One that was None, and is now an object, was only made at its first use."""
    both = ((path, old, now[path]) for path, old in before.items() if path in now)
    return [
        path
        for path, old, new in both
        if old.content != new.content and (old.in_place or old.identity != new.identity)
        if old.content != repr(None) or isinstance(new.content, str)
    ]


def heavy(root: object, name: str) -> list[dict[str, Any]]:
    """Containers of many Python objects: how many, and about how many bytes they take."""
    found: list[dict[str, Any]] = []
    for path, value in walk(root, name):
        if not isinstance(value, _CONTAINERS) or len(value) < _LEAST_HEAVY:
            continue
        spread = value[:: len(value) // _LOOKED_AT] if isinstance(value, (list, tuple)) else value
        some = _parts(spread, _LOOKED_AT)
        each = sum(_size(item, 3) for item in some) / _LOOKED_AT
        if each:
            kinds = sorted({type(item).__name__ for item in some})[:3]
            kind = f"{type(value).__name__} of {len(value):,} {' and '.join(kinds)}"
            found.append({"path": path, "kind": kind, "bytes": int(len(value) * each) + sys.getsizeof(value)})
    return sorted(found, key=lambda each: -each["bytes"])[:_ITEMS]


def _parts(value: Any, most: int) -> list[Any]:
    """The first items of a container; of a dict the keys, too."""
    items = islice(value.items() if isinstance(value, dict) else value, most)
    return list(chain.from_iterable(items) if isinstance(value, dict) else items)


def _size(value: Any, depth: int) -> int:
    """Bytes of Python objects; those of arrays do not count, and neither do the small numbers, which all share."""
    if value is None or isinstance(value, bool) or (isinstance(value, int) and -5 <= value <= 256):
        return 0
    size = sys.getsizeof(value) if isinstance(value, (*_PLAIN, tuple, list, dict, os.PathLike)) else 64
    inner = _parts(value, _ITEMS) if depth and isinstance(value, (tuple, list, dict)) else ()
    return size + sum(_size(item, depth - 1) for item in inner)


# The generators that all of a program shares: as findings name them, their modules, and how each gives and takes its
# state.
_GLOBAL = (
    ("random", "random", "getstate", "setstate"),
    ("np.random", "numpy.random", "get_state", "set_state"),
    ("torch", "torch.random", "get_rng_state", "set_rng_state"),
)


def global_generators() -> dict[str, int]:
    """The global generators of random, NumPy and torch -> a checksum of the state of each."""
    there = [(name, sys.modules[module], get) for name, module, get, _ in _GLOBAL if module in sys.modules]
    return {name: _checksum(getattr(module, get)()) for name, module, get in there}


@contextlib.contextmanager
def kept_generators(*own: Any) -> Iterator[None]:
    """Puts the global generators of random, NumPy and torch, and torch's Generators `own`, back at the end."""
    there = [(sys.modules[module], get, put) for _, module, get, put in _GLOBAL if module in sys.modules]
    there += [(each, "get_state", "set_state") for each in own]
    states = [getattr(owner, get)() for owner, get, _ in there]
    try:
        yield
    finally:
        for (owner, _, put), state in zip(there, states, strict=True):
            getattr(owner, put)(state)


def generators(**roots: object) -> dict[str, int]:
    """The random generators that objects hold, and those in global variables -> a checksum of the state of each."""
    found = {}
    for path, value in reached(**roots):
        with contextlib.suppress(Exception):
            if isinstance(value, random.Random):
                found[path] = _checksum(value.getstate())
            elif type(value).__module__.startswith("numpy.random") and hasattr(value, "bit_generator"):
                found[path] = _checksum(value.bit_generator.state)
            elif type(value).__name__ in ("RandomState", "Generator") and hasattr(value, "get_state"):
                found[path] = _checksum(value.get_state())
    return found


def _checksum(state: Any) -> int:
    return zlib.crc32(state.numpy().tobytes() if hasattr(state, "numpy") else pickle.dumps(state))


def sample_name(dataset: Any, index: Any, depth: int = 4) -> str:
    """The file of a sample, where the dataset has a list of them by the usual names; else ""."""
    with contextlib.suppress(Exception):
        if depth and hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
            return sample_name(dataset.dataset, dataset.indices[index], depth - 1)
        for name in _NAMED:
            names = getattr(dataset, "__dict__", {}).get(name)
            if isinstance(names, (list, tuple)):
                found = names[index]
                found = found[0] if isinstance(found, (list, tuple)) else found
                if isinstance(found, (str, os.PathLike)):
                    return str(found)[:300]
    return ""


def batch_bytes(batch: Any) -> int:
    """Bytes of the tensors and arrays of a batch."""
    sizes = (getattr(value, "nbytes", None) for _, value in walk(batch, ""))
    return sum(size for size in sizes if isinstance(size, int))


def checksums(sample: Any) -> list[int]:
    """That of a sample, and those of its first parts: an augmented image differs where its name or number does not."""
    parts = list(sample.values()) if isinstance(sample, dict) else sample if isinstance(sample, (list, tuple)) else []
    return [checksum(sample), *(checksum(part) for part in islice(parts, _PARTS))]


def checksum(sample: Any) -> int:
    """A checksum of a sample: of its numbers and letters, at most 64 kB of each array."""
    found = 0
    for path, value in walk(sample, "", plain=True):
        found = zlib.crc32(f"{path} {type(value).__name__}".encode("utf-8", "replace"), found)
        if isinstance(value, _PLAIN):
            found = zlib.crc32(repr(value)[:65536].encode("utf-8", "replace"), found)
        elif hasattr(value, "nbytes"):
            array = value.detach().cpu().numpy() if hasattr(value, "detach") else value
            found = zlib.crc32(array.reshape(-1)[:8192].tobytes(), found)
    return found
