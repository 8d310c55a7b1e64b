"""A dataset and what a user chose of it -> the places of an epoch, and the sample at each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.plan.order import samples_per_chunk
from fastpipe.plan.weights import Draws, Weighting

MOST_ROWS = 2**40  # of an epoch


@dataclass(frozen=True, eq=False)
class Content:
    """Which samples of a dataset epochs have, and how often.

    Attributes:
        samples: (n,) int64 their numbers, each once, in the order that epochs are cut from; None: all.
        weighting: draws the samples of each epoch from these; None: passes go through all of them.
        repeats: how often in a row a sample comes.
        epoch_size: samples an epoch, repeats counted; None: as many as there are samples.
        labels: (classes + 1,) int64: the new label of each label of the dataset, and behind them that of NO_LABEL;
            None: labels stay.
        classes: names of the new labels; None: those of the dataset.
        identity: what a state has to say of this, so that it is not loaded for another order.
    """

    samples: NDArray[np.int64] | None = None
    weighting: Weighting | None = None
    repeats: int = 1
    epoch_size: int | None = None
    labels: NDArray[np.int64] | None = None
    classes: tuple[str, ...] | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)

    def count(self, dataset_samples: int) -> int:
        """How many samples epochs are made of."""
        return dataset_samples if self.samples is None else len(self.samples)

    def size(self, dataset_samples: int) -> int:
        """Positions of an epoch."""
        return self.count(dataset_samples) if self.epoch_size is None else self.epoch_size

    def places(self, dataset_samples: int, sequences: int) -> int:
        """Places that the order of an epoch goes through; the sequences get equal shares of draws."""
        if self.weighting is None:
            return self.count(dataset_samples)
        rows = math.ceil(self.size(dataset_samples) / sequences)
        return sequences * math.ceil(rows / self.repeats)


ALL = Content()


class EpochContent:
    """The places of one epoch.

    Args:
        index: of the dataset.
        content: of the loader.
        places: of the epoch.
        shuffle: it is, so that an unpacked source has its samples in the order to be shuffled.
        seed, epoch: of the draws.
    """

    def __init__(self, index: Index, content: Content, places: int, *, shuffle: bool, seed: int, epoch: int) -> None:
        self._index, self._content, self._places = index, content, places
        self._shuffle, self._seed, self._epoch = shuffle, seed, epoch

    @property
    def places(self) -> int:
        """Of the epoch."""
        return self._places

    def sequence(self, number: int, sequences: int) -> tuple[int, int, int]:
        """(first place, places, chunk) of a sequence; see Note [partition]."""
        first, end = (each * self._places // sequences for each in (number, number + 1))
        return first, end - first, self.chunk

    @property
    def plain(self) -> bool:
        """Whether places are samples."""
        return self._content.samples is None and self._content.weighting is None and self._index.packed

    @property
    def chunk(self) -> int:
        """Places that are read together."""
        weighting = self._content.weighting
        if self._index.scattered or (weighting is not None and not weighting.together):
            return 1
        return samples_per_chunk(len(self._index), self._index.jpeg_bytes)

    def samples_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sample at each place."""
        positions = places if self._draws is None else self._draws(places)
        if self._content.samples is not None:
            return self._content.samples[positions]
        return self._index.samples_at(positions) if self._shuffle else positions

    def names(
        self, samples: NDArray[np.int64], places: NDArray[np.int64], times: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Numbers that name the random draws of rows: where a sample comes once in an epoch, the sample's own."""
        weighting = self._content.weighting
        if weighting is not None and not weighting.distinct:
            return places + times * self._places
        return samples + times * len(self._index)

    @cached_property
    def _draws(self) -> Draws | None:
        weighting = self._content.weighting
        return None if weighting is None else weighting.draws(self._places, seed=self._seed, epoch=self._epoch)
