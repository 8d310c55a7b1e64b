"""The batch of a training loop that asks for fields: a dict, with advice for two mistakes."""

from __future__ import annotations

import dis
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, NoReturn

import torch
from torch.utils import _pytree

from fastpipe.errors import ConfigError, did_you_mean

_UNPACKING = {dis.opmap["UNPACK_SEQUENCE"], dis.opmap["UNPACK_EX"]}


class FieldBatch(dict[str, Any]):
    """The entries of a batch, by key.

    It is a dict for every program. Only a key that it lacks, and a loop that unpacks it like a
    tuple, end in an error that says what to write.

    Note [unpacked dicts]
    `for images, labels in loader` gives a dict's keys, which are texts: the loop would pass "image"
    to the model. Python calls the same `__iter__` for this as for `for key in batch`, and the
    instruction of the caller is all that differs. Code that torch compiles is not asked.
    """

    __slots__ = ()

    def __missing__(self, key: object) -> NoReturn:
        keys = [str(known) for known in self.keys()]
        if not isinstance(key, str):
            advice = f"; it is a dict: write batch[{keys[0]!r}]" if keys else ""
        else:
            advice = did_you_mean(key, keys)
            advice = advice or f". Add {key!r} to fields= of fastpipe.loader"
        raise KeyError(f"the batch has {', '.join(keys)}; got {key!r}{advice}")

    def __getattr__(self, name: str) -> NoReturn:
        advice = f"; write batch[{name!r}]" if name in self else ""
        raise AttributeError(
            f"a batch of fields is a dict, and has no attribute {name!r}{advice}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # A file of it needs no fastpipe, and torch.load takes an OrderedDict by default, but no
        # class of ours.
        return OrderedDict, (), None, None, iter(self.items())

    def __iter__(self) -> Iterator[str]:
        if not torch.compiler.is_compiling():
            self._refuse_unpacking(sys._getframe(1))
        return super().__iter__()

    def _refuse_unpacking(self, caller: FrameType) -> None:
        """Raises ConfigError if the caller unpacks the batch: Note [unpacked dicts]."""
        if caller.f_code.co_code[caller.f_lasti] not in _UNPACKING:
            return
        entries = ", ".join(f"batch[{key!r}]" for key in self.keys())
        raise ConfigError(
            "with fields= a batch is a dict, which cannot be unpacked: write `for batch in loader:` "
            f"and {entries}. Without fields= a batch is (images, labels)"
        )


def _flatten(batch: FieldBatch) -> tuple[list[Any], list[str]]:
    return list(batch.values()), list(batch.keys())


def _unflatten(values: Iterable[Any], keys: list[str]) -> FieldBatch:
    return FieldBatch(zip(keys, values, strict=True))


# torch moves and casts the tensors of an exact dict only, and of the classes that it knows.
_pytree.register_pytree_node(
    FieldBatch,
    _flatten,
    _unflatten,
    serialized_type_name="fastpipe.FieldBatch",
)
