"""A module -> everything that it holds in its attributes, lists, functions and objects.

`torch.nn.Module.modules()` does not find everything: torchvision's `v2.Compose` keeps its
transforms in a list, and `Compose` of the older transforms is not a module.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

_MAX_PARTS = 100_000  # a module that holds more holds data, such as a large dictionary
# Types that hold nothing of interest.
_LEAVES = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    bool,
    type(None),
    type,
    types.ModuleType,
    torch.Tensor,
    np.ndarray,
    np.generic,
)


def parts_of(module: object) -> Iterator[object]:
    """The module itself, and everything that it holds, each once."""
    seen: set[int] = set()
    stack: list[object] = [module]
    while stack and len(seen) < _MAX_PARTS:
        part = stack.pop()
        if id(part) in seen or isinstance(part, _LEAVES):
            continue
        seen.add(id(part))
        yield part
        stack += reversed(list(_direct_parts(part)))


def normaliser_in(module: object) -> str | None:
    """The class of a part that normalises by a mean and a standard deviation, or None."""
    for part in parts_of(module):
        if _normalises(part):
            return type(part).__name__
    return None


def _normalises(part: object) -> bool:
    for kind in type(part).__mro__:
        if kind.__name__ == "Normalize":  # kornia's, torchvision's, a user's
            return True
        # `weights.transforms()` of torchvision's models returns such an object.
        if kind.__module__ == "torchvision.transforms._presets":
            return hasattr(part, "mean") and hasattr(part, "std")
    return False


def _direct_parts(part: Any) -> Iterable[object]:
    if isinstance(part, Mapping):
        return part.values()
    if isinstance(part, (list, tuple, set, frozenset)):
        return part
    if isinstance(part, functools.partial):
        return part.func, part.args, part.keywords
    if isinstance(part, types.MethodType):
        return (part.__self__,)
    if isinstance(part, types.FunctionType):
        return *_values(part.__closure__ or ()), part.__defaults__, part.__kwdefaults__
    return getattr(part, "__dict__", {}).values()


def _values(cells: tuple[types.CellType, ...]) -> Iterator[object]:
    """The values of the variables that a function takes from around it."""
    for cell in cells:
        try:
            yield cell.cell_contents
        except ValueError:  # nothing has been assigned yet
            continue
