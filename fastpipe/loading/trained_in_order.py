"""An epoch of a loader for evaluation, and the optimizers of the program -> a warning if it trains.

A loader with train=False gives samples in the order of the dataset, with the same crops. Training on
it runs as well, and the model is worse, for no reason that a log would show.
"""

from __future__ import annotations

import torch

from fastpipe.loading.epoch_watch import EpochWatch
from fastpipe.loading.optimizer_steps import Parameter, look_at_optimizers
from fastpipe.plan.recipe import Recipe
from fastpipe.warnings_once import is_known, warn_once

_LEAST_BATCHES = 4
# Batches that all loaders of this process have handed out.
_num_handed_out = 0


class OrderedEpoch(EpochWatch):
    """Sees whether optimizers make steps in an epoch of an unshuffled loader."""

    def __init__(self, recipe: Recipe) -> None:
        self._path = str(recipe.content.index.path)
        self._num_before = _num_handed_out
        self._parameters: list[Parameter] = []
        if recipe.shuffle or recipe.picks or recipe.crop.is_random:
            return
        if not torch.is_grad_enabled() or is_known(f"trained in order {self._path}"):
            return
        self._parameters = look_at_optimizers("training in order")

    def end(self, num_batches: int) -> None:
        """Logs it if no other loader was read meanwhile."""
        num_meanwhile = _num_handed_out - self._num_before
        if num_batches < _LEAST_BATCHES or num_meanwhile != num_batches:
            return
        for parameter in self._parameters:
            if parameter.is_written:
                warn_once(
                    f"trained in order {self._path}",
                    f"{self._path} is read in its order and without random crops, as with train=False, "
                    f"and {parameter.optimizer} makes steps meanwhile. To train on it: "
                    "fastpipe.loader(..., train=True), the default; or shuffle=True for a random order "
                    "alone",
                )
                return


def count_batch() -> None:
    """Counts a batch that a loader hands out."""
    global _num_handed_out
    _num_handed_out += 1
