"""Random generators -> checksums of their states; and keeping the states as they are."""

from __future__ import annotations

import contextlib
import pickle
import random
import sys
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from .objects import walk_with_globals


class _GlobalGenerator(NamedTuple):
    """A generator that all of a program shares."""

    name: str  # in findings
    module: str
    get: str  # the functions of the module that get and set the state
    set: str


_GLOBAL_GENERATORS = (
    _GlobalGenerator("random", "random", "getstate", "setstate"),
    _GlobalGenerator("np.random", "numpy.random", "get_state", "set_state"),
    _GlobalGenerator("torch", "torch.random", "get_rng_state", "set_rng_state"),
)


def checksum_global_generators() -> dict[str, int]:
    """Checksums the states of the global generators of random, NumPy and torch, by name."""
    checksums = {}
    for generator in _GLOBAL_GENERATORS:
        module = sys.modules.get(generator.module)
        if module is not None:
            checksums[generator.name] = _checksum_state(
                getattr(module, generator.get)()
            )
    return checksums


def checksum_generators(**roots: object) -> dict[str, int]:
    """Checksums the states of the generators that objects and global variables hold, by path."""
    checksums = {}
    for path, value in walk_with_globals(**roots):
        kind = type(value)
        with contextlib.suppress(Exception):
            if isinstance(value, random.Random):
                checksums[path] = _checksum_state(value.getstate())
            elif kind.__module__.startswith("numpy.random") and hasattr(
                value, "bit_generator"
            ):
                checksums[path] = _checksum_state(value.bit_generator.state)
            elif kind.__name__ in ("RandomState", "Generator") and hasattr(
                value, "get_state"
            ):
                checksums[path] = _checksum_state(value.get_state())
    return checksums


def _checksum_state(state: Any) -> int:
    if hasattr(state, "numpy"):  # a tensor
        return zlib.crc32(state.numpy().tobytes())
    return zlib.crc32(pickle.dumps(state))


@contextlib.contextmanager
def preserve_generators(*torch_generators: Any) -> Iterator[None]:
    """Sets the global generators, and the ones of torch that are given, back at the end."""
    saved: list[tuple[Any, Any]] = []  # a function that sets a state, and the state
    for generator in _GLOBAL_GENERATORS:
        module = sys.modules.get(generator.module)
        if module is not None:
            state = getattr(module, generator.get)()
            saved.append((getattr(module, generator.set), state))
    for torch_generator in torch_generators:
        saved.append((torch_generator.set_state, torch_generator.get_state()))
    try:
        yield
    finally:
        for set_state, state in saved:
            set_state(state)
