"""Samples of an epoch -> batches of as many samples as a budget of tokens or pixels holds.

Note [batches of a budget]
The order of an epoch is cut into windows of equally many samples, of about 64 batches each. The
samples of a window are dealt out to batches that keep to the budget, and a draw says in which order
these come. So reads stay inside a window. Windows and batches are the same for any number of ranks:
rank r of w takes the batches r, r + w, r + 2 w and so on.

How many batches a window has follows from the sizes of its images. So the batches of all windows are
counted before an epoch begins. That takes their widths and heights alone, and 0.3 s for a million
samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fastpipe.arrays import Bools, Int64s
from fastpipe.dataset.format.parts import starts_of
from fastpipe.plan.batches import BatchRows
from fastpipe.plan.crops import Size
from fastpipe.plan.dealing import Dealt
from fastpipe.plan.draws import bits
from fastpipe.plan.epoch_rows import EpochRows
from fastpipe.plan.order import cache_recent
from fastpipe.plan.partition import Ranks, Span

_WINDOWS_KEPT = 4  # the current one, and those that are fetched ahead


class _Window(NamedTuple):
    # (n,) the places of the samples, batch by batch, and (batches + 1,) where each batch begins.
    places: Int64s
    edges: Int64s
    sizes: list[Size]


@dataclass(frozen=True, eq=False)
class BudgetBatches:
    """The batches of a rank's epoch; see Batches and Note [batches of a budget]."""

    windows: EpochRows  # of one rank: each of its batches is a window
    ranks: Ranks  # that share the epoch
    _: KW_ONLY
    drop_last: bool  # leave out batches that only some ranks would get
    deal: Callable[[int], Dealt]  # of a window
    # The key of the draws by which the batches of a window are ordered; None: they stay in order.
    key: int | None
    counts: Int64s  # (windows,) batches of each, from count_batches

    @cached_property
    def _first_batches(self) -> Int64s:
        """(windows + 1,) the first batch of each window, over all ranks, and the end."""
        return starts_of(self.counts)

    @property
    def _count_of_all(self) -> int:
        """The number of batches over all ranks."""
        return int(self._first_batches[-1])

    def __len__(self) -> int:
        world_size = self.ranks.world_size
        if self.drop_last:
            return self._count_of_all // world_size
        return -(-self._count_of_all // world_size)  # rounded up

    def count_samples(self) -> int:
        count = 0
        for batch in range(len(self)):
            number = self._number_of_all(batch, self.ranks.rank)
            window, start, stop = self._find(number)
            edges = self._window(window).edges
            batch_samples = edges[stop] - edges[start]
            count += int(batch_samples)
        return count

    def rows(self, batch: int) -> BatchRows:
        number = self._number_of_all(batch, self.ranks.rank)
        window, start, stop = self._find(number)
        dealt = self._window(window)
        first_sample = dealt.edges[start]
        end_sample = dealt.edges[stop]
        places = dealt.places[first_sample:end_sample]
        rows = self.windows.window(window)
        # Batches behind the last one repeat others, to give all ranks equally many.
        is_valid = number < self._count_of_all
        valid = np.full(len(places), is_valid)
        ids = rows.ids[places]
        names = rows.names[places]
        return BatchRows(ids, valid, names)

    def size(self, batch: int) -> Size:
        number = self._number_of_all(batch, self.ranks.rank)
        window, in_window, _ = self._find(number)
        sizes = self._window(window).sizes
        return sizes[in_window]

    def spans_ahead(self, batch: int, *, is_first: bool) -> list[Span]:
        """The spans of the next window, of which no batch has asked; of the batch's own ones, too,
        if it is the first.
        """
        last_window = self._last_window(batch)
        first_window = last_window + 1
        end_window = last_window + 2
        if is_first:
            number_of_rank_0 = self._number_of_all(batch, 0)
            first_window, _, _ = self._find(number_of_rank_0)
        elif batch > 0:
            # The batch before has asked for all up to the window behind its own.
            last_window_before = self._last_window(batch - 1)
            first_window = last_window_before + 2
        # The batches of this partition are the windows.
        partition = self.windows.partition
        first_window = min(first_window, partition.batches)
        end_window = min(end_window, partition.batches)
        spans = []
        for sequence, _ in partition.sequences:
            start = partition.edge(sequence, first_window)
            stop = partition.edge(sequence, end_window)
            spans.append(Span(sequence, start, stop))
        return spans

    def is_mine(self, sequence: int, positions: Int64s) -> Bools:
        is_mine = np.zeros(len(positions), dtype=np.bool_)
        if not len(positions):
            return is_mine
        windows = self.windows.partition.batches_of(sequence, positions)
        for window in np.unique(windows).tolist():
            in_window = windows == window
            positions_in_window = positions[in_window]
            numbers = self._numbers_at(window, sequence, positions_in_window)
            is_mine[in_window] = self._has(numbers)
        return is_mine

    def _numbers_at(self, window: int, sequence: int, positions: Int64s) -> Int64s:
        """(n,) the batch of all ranks that has each position of a sequence, in a window."""
        dealt = self._window(window)
        place_count = len(dealt.places)
        # (batches of the window,) their numbers among those of all ranks, and their samples.
        numbers_in_window = np.arange(len(dealt.sizes))
        numbers = self._first_batches[window] + numbers_in_window
        sample_counts = np.diff(dealt.edges)
        number_of_place = np.empty(place_count, dtype=np.int64)
        number_of_place[dealt.places] = np.repeat(numbers, sample_counts)

        # A place is a row of the window; rows are positions of its spans, one span after the other.
        rank_rows = self.windows.partition.rank_rows(window)
        valid_rows = rank_rows.rows[rank_rows.valid]
        place_of_row = np.empty(place_count, dtype=np.int64)
        place_of_row[valid_rows] = np.arange(place_count)
        first_row = 0
        for span in rank_rows.spans:
            if span.sequence == sequence:
                rows = first_row + positions - span.start
                places = place_of_row[rows]
                return number_of_place[places]
            first_row += span.stop - span.start
        raise AssertionError(f"window {window} has nothing of sequence {sequence}")

    def _has(self, numbers: Int64s) -> Bools:
        """(n,) which batches of all ranks this rank gets."""
        rank = self.ranks.rank
        world_size = self.ranks.world_size
        planned_count = len(self) * world_size
        is_planned = numbers < planned_count
        is_of_rank = numbers % world_size == rank
        has = is_planned & is_of_rank
        # The last batch may be a repeated one.
        last_batch = len(self) - 1
        last = self._number_of_all(last_batch, rank)
        is_last = numbers == last % self._count_of_all
        return np.asarray(has | is_last)

    def _number_of_all(self, batch: int, rank: int) -> int:
        """The number of a rank's batch among those of all ranks; behind the last one, of none."""
        return batch * self.ranks.world_size + rank

    def _find(self, number: int) -> tuple[int, int, int]:
        """The window of a batch of all ranks, and the batch's number in it and the next one.

        Behind the last batch they begin again.
        """
        number %= self._count_of_all
        windows_up_to = np.searchsorted(self._first_batches, number, side="right")
        window = int(windows_up_to) - 1
        first_batch = int(self._first_batches[window])
        in_window = number - first_batch
        return window, in_window, in_window + 1

    def _last_window(self, batch: int) -> int:
        """The last window that any rank needs for a batch."""
        last_rank = self.ranks.world_size - 1
        number = self._number_of_all(batch, last_rank)
        # Behind the last batch others are repeated.
        number = min(number, self._count_of_all - 1)
        window, _, _ = self._find(number)
        return window

    @cache_recent(_WINDOWS_KEPT)
    def _window(self, window: int) -> _Window:
        batches, sizes = self.deal(window)
        count = len(sizes)
        # (count,) the batches in the order in which they come.
        order = np.arange(count)
        if self.key is not None:
            numbers = self._first_batches[window] + order
            draws = bits(self.key, numbers)
            order = np.argsort(draws, kind="stable")
        # argsort inverts a permutation.
        place_of_batch = np.argsort(order)
        batch_of_sample = place_of_batch[batches]
        places = np.argsort(batch_of_sample, kind="stable")
        counts = np.bincount(batch_of_sample, minlength=count)
        edges = starts_of(counts)
        sizes_in_order = [sizes[batch] for batch in order.tolist()]
        return _Window(places, edges, sizes_in_order)


def count_batches(windows: int, deal: Callable[[int], Dealt]) -> Int64s:
    """(windows,) how many batches each window has."""
    counts = np.empty(windows, dtype=np.int64)
    for window in range(windows):
        dealt = deal(window)
        counts[window] = len(dealt.sizes)
    return counts
