"""Loaders of one dataset with one seed, and the optimizers -> a warning if an epoch is trained twice.

A program that makes a second loader for a second phase of a training, of another size say, gets the
order, crops and flips of epoch 0 again. Nothing fails. A search over options or folds, which begins
with a new optimizer each time, means it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from fastpipe.loading.epoch_watch import EpochWatch
from fastpipe.loading.optimizer_steps import Parameter, look_at_optimizers
from fastpipe.loading.samples_of_epoch import Samples, samples_of
from fastpipe.plan.partition import Ranks
from fastpipe.plan.recipe import Recipe
from fastpipe.warnings_once import warn_once


class _Order(NamedTuple):
    """What decides the order of samples in an epoch, but for its number."""

    samples: Samples
    seed: int
    ranks: Ranks


# Of loaders that have given an epoch for training: what was trained when it had ended.
_trained: dict[_Order, list[Parameter]] = {}


class FirstEpoch(EpochWatch):
    """Sees whether an optimizer that has trained before trains on epoch 0 of another loader."""

    def __init__(self, recipe: Recipe) -> None:
        self._path = recipe.content.index.path
        self._order: _Order | None = None
        self._trained: list[Parameter] = []
        samples = samples_of(recipe.content)
        if samples is None:
            return
        self._order = _Order(samples, recipe.seed, recipe.ranks)
        # As they are now, after what the program has done since that epoch.
        self._trained = [each.again() for each in _trained.get(self._order, [])]

    def end(self, num_batches: int) -> None:
        """Logs it if what was trained before has been trained again; else notes what was."""
        if self._order is None or not torch.is_grad_enabled():
            return
        for parameter in self._trained:
            if parameter.is_written:
                warn_once(
                    f"trained again {self._order}",
                    f"{parameter.optimizer} has trained on {self._path} before, with an earlier loader of "
                    f"seed={self._order.seed}, and this loader has begun with epoch 0 again: its order, "
                    "crops and flips are those of the first epoch. Make the loader once, before the loop "
                    "over epochs (loader.set_size changes its size); or call loader.set_epoch(epoch) with "
                    "the number of the epoch in the whole training, or pass another seed=",
                )
                return
        optimized = look_at_optimizers("training again")
        if optimized:
            _trained[self._order] = [
                parameter
                for parameter in optimized
                if parameter.has_state or parameter.has_gradient
            ]
