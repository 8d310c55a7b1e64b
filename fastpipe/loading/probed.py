"""A loader -> what training programs look for at torch's DataLoader: its samplers, and that it has no processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import Sampler, SequentialSampler

from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe


class Samples(Sampler[Any]):
    """The numbers of the samples that this rank gets in the next epoch. Lightning and timm call its `set_epoch`."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.set_epoch = loader.set_epoch

    def __iter__(self) -> Iterator[Any]:
        plan = self._plan()
        return (sample for number in range(len(plan)) for sample in plan.batch(number).ids.tolist())

    def __len__(self) -> int:
        last = (plan := self._plan()).batch(len(plan) - 1)
        return int(self._loader.batch_size) * (len(plan) - 1) + len(last.samples)

    def _plan(self) -> EpochPlan:
        return EpochPlan(self._loader._recipe, self._loader._course.next.epoch)


class InOrder(Samples, SequentialSampler):
    """The same if they are the same in each epoch. Lightning's overfit_batches takes no other."""


class Batches(Samples):
    """An empty list for each batch of the next epoch: `collate_fn` of the loader turns it into the batch. So the
    DataLoader that `accelerate.skip_first_batches` makes of both decodes nothing of what it skips.
    """

    def __iter__(self) -> Iterator[Any]:
        self._loader._taken = taken = iter(self._loader)
        try:
            for number in range(len(self._loader)):
                taken.skip_to(number)
                yield []
            taken.skip_to(len(self._loader))
            next(taken, None)  # the epoch is over
        finally:
            if self._loader._taken is taken:
                self._loader._taken = None  # its batches are let go of, also where the loop has been left

    def __len__(self) -> int:
        return len(self._loader)


class Probed:
    """What a loader shows of a DataLoader. `num_workers` counts processes: it is 0. `stats().threads` are threads."""

    num_workers, prefetch_factor = 0, None
    _taken: Any = None

    @property
    def sampler(self) -> Samples:
        """The numbers of the samples of the next epoch, without decoding them. Its `set_epoch` is the loader's."""
        recipe: Recipe = self._recipe  # type: ignore[attr-defined]
        return Samples(self) if recipe.shuffle or recipe.picks else InOrder(self)

    @property
    def batch_sampler(self) -> Batches:
        """With `collate_fn`, the next epoch for torch's DataLoader."""
        return Batches(self)

    def collate_fn(self, _: object) -> Any:
        """The batch that `batch_sampler` has come to."""
        return next(self._taken)
