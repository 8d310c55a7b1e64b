"""A module -> all that it holds: its modules, and what lies in its attributes, in lists, functions and objects there.

`torch.nn.Module.modules()` does not find all: torchvision's `v2.Compose` keeps its transforms in a list, and `Compose`
of the older transforms is no module.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

_MOST_PARTS = 100_000  # more is data, such as a large dictionary
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), type, torch.Tensor, np.ndarray, np.generic)


def parts_of(module: object) -> Iterator[object]:
    """The module itself, and what it holds, each once."""
    seen: set[int] = set()
    left: list[object] = [module]
    while left and len(seen) < _MOST_PARTS:
        part = left.pop()
        if id(part) in seen or isinstance(part, (*_PLAIN, types.ModuleType)):
            continue
        seen.add(id(part))
        yield part
        left += reversed(list(_held(part)))


def normaliser_in(module: object) -> str | None:
    """The class of a part that subtracts a mean from images and divides them by a standard deviation; None: none."""
    return next((type(part).__name__ for part in parts_of(module) if _normalises(part)), None)


def _normalises(part: object) -> bool:
    kinds = type(part).__mro__
    if any(kind.__name__ == "Normalize" for kind in kinds):  # kornia's, torchvision's, a user's
        return True
    # What `weights.transforms()` of torchvision's models returns.
    preset = any(kind.__module__ == "torchvision.transforms._presets" for kind in kinds)
    return preset and hasattr(part, "mean") and hasattr(part, "std")


def _held(part: Any) -> Iterator[object]:
    if isinstance(part, Mapping):
        yield from part.values()
    elif isinstance(part, (list, tuple, set, frozenset)):
        yield from part
    elif isinstance(part, functools.partial):
        yield from (part.func, part.args, part.keywords)
    elif isinstance(part, types.MethodType):
        yield part.__self__
    elif isinstance(part, types.FunctionType):
        yield from _values(part.__closure__ or ())
        yield from (part.__defaults__, part.__kwdefaults__)
    else:
        yield from getattr(part, "__dict__", {}).values()
        yield from (getattr(part, name, None) for name in _slots(type(part)))


def _values(cells: tuple[types.CellType, ...]) -> Iterator[object]:
    for cell in cells:
        try:
            yield cell.cell_contents
        except ValueError:  # nothing has been assigned yet
            continue


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
