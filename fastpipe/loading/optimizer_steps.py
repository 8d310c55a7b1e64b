"""The optimizers of the program -> whether they make steps."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from fastpipe.loading.instances import instances_of

# At the optimizers, for each purpose: one takes some hundredths of a second.
_MAX_LOOKS = 4
_num_looks: Counter[str] = Counter()  # purpose -> looks


class Parameter(NamedTuple):
    """A tensor that an optimizer trains, as it was at a look."""

    optimizer: str  # its class
    has_state: bool  # of the optimizer: most have one after their first step
    tensor: weakref.ref[torch.Tensor]
    version: int  # torch counts how often a tensor was written

    @property
    def is_written(self) -> bool:
        """Whether the tensor was written after the look."""
        tensor = self.tensor()
        return tensor is not None and tensor._version != self.version

    def again(self) -> Parameter:
        """The tensor as it is now."""
        tensor = self.tensor()
        return self if tensor is None else self._replace(version=tensor._version)

    @property
    def has_gradient(self) -> bool:
        """Whether the tensor has a gradient now."""
        tensor = self.tensor()
        return tensor is not None and tensor.grad is not None


def look_at_optimizers(purpose: str) -> list[Parameter]:
    """The first parameter of each optimizer of the program that is trained.

    The list is empty after several looks for one purpose.
    """
    if "torch.optim" not in sys.modules or _num_looks[purpose] == _MAX_LOOKS:
        return []
    _num_looks[purpose] += 1
    return list(_find_parameters())


def forget_looks() -> None:
    """As in a new process: for tests."""
    _num_looks.clear()


def _find_parameters() -> Iterator[Parameter]:
    from torch.optim import Optimizer

    for instance in instances_of(Optimizer):
        for group in instance.param_groups:
            tensors: list[Any] = [
                tensor for tensor in group["params"] if tensor.requires_grad
            ]
            if tensors:
                yield Parameter(
                    type(instance).__name__,
                    bool(instance.state),
                    weakref.ref(tensors[0]),
                    tensors[0]._version,
                )
                break
