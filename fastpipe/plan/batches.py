"""Which samples the batches of an epoch have on a rank: what EpochPlan asks, whoever decides it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from fastpipe.arrays import Bools, Int64s
from fastpipe.plan.crops import Size
from fastpipe.plan.partition import Span


class BatchRows(NamedTuple):
    """The samples of a batch, (n,) each."""

    ids: Int64s
    valid: Bools  # those that count
    names: Int64s  # of their random draws


class Batches(Protocol):
    """The batches of one rank's epoch: in order, grouped by shape, or of a budget."""

    def __len__(self) -> int:
        """The number of batches."""

    def count_samples(self) -> int:
        """How many samples all batches have."""

    def rows(self, batch: int) -> BatchRows:
        """The samples of a batch."""

    def size(self, batch: int) -> Size | None:
        """(height, width) of a batch; None if it does not follow from the samples."""

    def spans_ahead(self, batch: int, *, is_first: bool) -> list[Span]:
        """The spans to request before a batch, that no earlier batch has requested.

        `is_first`: it is the first batch of an iteration.
        """

    def is_mine(self, sequence: int, positions: Int64s) -> Bools:
        """(n,) which positions of a sequence this rank has in a batch."""
