"""The attributes of torch's DataLoader that trainers look for, for a loader that is not one.

Lightning, timm, transformers and Accelerate read them from whatever they get as a dataloader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from torch.utils.data import Sampler, SequentialSampler

from fastpipe.completion import PublicNames
from fastpipe.dataset.dataset import Dataset
from fastpipe.errors import EngineError
from fastpipe.loading.epoch_iterator import EpochIterator
from fastpipe.loading.epoch_sequence import EpochSequence
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.epoch_batches import num_batches


class DataLoaderAttributes(PublicNames):
    """The base of Loader that has what trainers look for, and refuses what cannot work."""

    # Only trainers look for these.
    _NOT_PUBLIC = frozenset(["batch_sampler", "collate_fn", "sampler"])

    #: 0, as of a DataLoader without worker processes, for trainers that look for it.
    #: `stats().threads` is the number of threads.
    num_workers = 0
    #: None, as of a DataLoader without worker processes.
    prefetch_factor = None

    _epochs: EpochSequence
    _data: Dataset
    _sampled: EpochIterator | None = None  # the epoch that `batch_sampler` goes through

    def __iter__(self) -> EpochIterator:
        raise NotImplementedError  # Loader has it

    def __len__(self) -> int:
        """Number of batches in a whole epoch, also while the rest of a loaded epoch runs.

        `remaining` counts those of the rest.
        """
        epochs = self._epochs
        return num_batches(epochs.resolver.current(), epochs.next.epoch)

    @property
    def sampler(self) -> EpochSampler:
        """The numbers of the samples of the next epoch, without decoding them.

        Its `set_epoch` is the loader's.
        """
        recipe = self._epochs.resolver.current()
        if recipe.shuffle or recipe.picks:
            return EpochSampler(self)
        return SequentialEpochSampler(self)

    @property
    def batch_sampler(self) -> EpochBatchSampler:
        """With `collate_fn`, the next epoch for torch's DataLoader."""
        return EpochBatchSampler(self)

    def collate_fn(self, _: object) -> Any:
        """Returns the batch that `batch_sampler` has come to."""
        assert self._sampled is not None
        return next(self._sampled)

    def __reduce__(self) -> NoReturn:
        raise EngineError(
            "a loader owns threads and cannot be copied or pickled. In a checkpoint save "
            "loader.state_dict(), and give it to load_state_dict of the loader that goes on. In another "
            "process, call fastpipe.loader(...) there. torch's DataLoader takes no loader as its dataset: "
            "a loader gives the batches itself"
        )

    def __next__(self) -> NoReturn:
        raise TypeError(
            "a loader is not an iterator: for one batch, write next(iter(loader)), which uses up "
            "an epoch; for all: for batch in loader"
        )

    def __getitem__(self, sample: object) -> NoReturn:
        """torch's DataLoader, Subset and random_split call this if a loader is their dataset."""
        raise TypeError(
            "this is already a loader: iterate over it, or give it to a trainer as its dataloader. "
            "It gives whole batches and no single samples. For samples by number, and as the "
            "dataset of torch's DataLoader, Subset or random_split, use "
            f"fastpipe.open({str(self._data.index.path)!r})"
        )


class EpochSampler(Sampler[Any]):
    """The numbers of the samples that this rank gets in the next epoch.

    Lightning and timm call its `set_epoch`.
    """

    def __init__(self, loader: DataLoaderAttributes) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        """As of the loader."""
        self._loader._epochs.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        return _sample_numbers(self._plan())

    def __len__(self) -> int:
        return self._plan().count_samples()

    def _plan(self) -> EpochPlan:
        epochs = self._loader._epochs
        return EpochPlan(epochs.resolver.current(), epochs.next.epoch)


class SequentialEpochSampler(EpochSampler, SequentialSampler):
    """The same where each epoch has the same order: Lightning's overfit_batches asks for it."""


class EpochBatchSampler(EpochSampler):
    """An empty list for each batch of the next epoch, which `collate_fn` turns into the batch.

    `accelerate.skip_first_batches` makes a DataLoader of both, which skips some of the lists. The
    epoch begins at the first batch that is collated, so nothing is decoded of the skipped ones.
    """

    def __iter__(self) -> Iterator[Any]:
        loader = self._loader
        batches = iter(loader)
        loader._sampled = batches
        try:
            for number in range(len(loader)):
                batches.skip_to(number)
                yield []
            batches.skip_to(len(loader))
            next(batches, None)  # ends the epoch
        finally:
            # Also when the loop is left early: the iterator holds batches.
            if loader._sampled is batches:
                loader._sampled = None

    def __len__(self) -> int:
        return len(self._loader)


def _sample_numbers(plan: EpochPlan) -> Iterator[Any]:
    for number in range(len(plan)):
        yield from plan.batch(number).ids.tolist()
