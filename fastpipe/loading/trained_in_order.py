"""An epoch of a loader for evaluation, and the optimizers of the program -> a warning if it trains.

A loader with train=False gives samples in the order of the dataset, with the same crops. Training on
it runs as well, and the model is worse, for no reason that a log would show.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from fastpipe.loading.instances import instances_of
from fastpipe.plan.recipe import Recipe
from fastpipe.warnings_once import is_known, warn_once

_LEAST_BATCHES = 4
_MAX_LOOKS = 4  # at the optimizers of a program: each takes some hundredths of a second
_num_looks = 0
# Batches that all loaders of this process have handed out.
_num_handed_out = 0


class _Parameter(NamedTuple):
    optimizer: str  # its class
    tensor: weakref.ref[torch.Tensor]
    version: int  # torch counts how often a tensor was written


class OrderedEpoch:
    """Sees whether optimizers make steps in an epoch of an unshuffled loader."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._num_before = _num_handed_out
        self._parameters: list[_Parameter] = []
        if recipe.shuffle or recipe.picks or recipe.crop.is_random:
            return
        path = str(recipe.content.index.path)
        if not torch.is_grad_enabled() or is_known(f"trained in order {path}"):
            return
        self._parameters = list(_find_parameters())

    def end(self, num_batches: int) -> None:
        """Logs it, after this many batches of the epoch, if no other loader was read meanwhile."""
        if (
            num_batches < _LEAST_BATCHES
            or _num_handed_out - self._num_before != num_batches
        ):
            return
        path = str(self._recipe.content.index.path)
        for parameter in self._parameters:
            tensor = parameter.tensor()
            if tensor is None or tensor._version == parameter.version:
                continue
            warn_once(
                f"trained in order {path}",
                f"{path} is read in its order and without random crops, as with train=False, and "
                f"{parameter.optimizer} makes steps meanwhile. To train on it: fastpipe.loader(..., "
                "train=True), the default; or shuffle=True for a random order alone",
            )
            return


def count_batch() -> None:
    """Counts a batch that a loader hands out."""
    global _num_handed_out
    _num_handed_out += 1


def _find_parameters() -> Iterator[_Parameter]:
    """The first parameter of each optimizer of the program that is trained."""
    global _num_looks
    if "torch.optim" not in sys.modules or _num_looks == _MAX_LOOKS:
        return
    _num_looks += 1
    from torch.optim import Optimizer

    for instance in instances_of(Optimizer):
        for group in instance.param_groups:
            tensors: list[Any] = [
                tensor for tensor in group["params"] if tensor.requires_grad
            ]
            if tensors:
                name = type(instance).__name__
                yield _Parameter(name, weakref.ref(tensors[0]), tensors[0]._version)
                break
