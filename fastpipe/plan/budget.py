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
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fastpipe.arrays import Bools, Int64s
from fastpipe.native import _engine
from fastpipe.plan.crops import Size
from fastpipe.plan.draws import bits
from fastpipe.plan.order import cache_recent
from fastpipe.plan.partition import Partition, Ranks, Span

_WINDOW_BATCHES = 64  # fewer would leave much of the last batch of each window empty
_WINDOW_BATCHES_OF_SIZE = 16  # fewer would often have images of two sizes in a batch
_MAX_WINDOW_SAMPLES = 1 << 18  # dealt out at once
_WINDOWS_KEPT = 4  # the current one, and those that are fetched ahead


class Dealt(NamedTuple):
    """The batches of some samples."""

    batches: Int64s  # (n,) the batch of each sample, from 0 on
    sizes: list[Size]  # (height, width) of each batch


class BudgetRows(NamedTuple):
    """The samples of a batch: their places in a window."""

    window: int
    places: Int64s  # (n,)
    # False: it repeats a batch that counts on another rank, to give all ranks equally many.
    is_valid: bool


class _Window(NamedTuple):
    # (n,) the places of the samples, batch by batch, and (batches + 1,) where each batch begins.
    places: Int64s
    edges: Int64s
    sizes: list[Size]


def samples_of_window(
    mean_cost: float, budget: int, most: int, num_sizes: int = 1
) -> int:
    """How many samples a window has.

    Args:
        mean_cost: of a sample, in tokens or pixels.
        budget: of a batch.
        most: samples of a batch.
        num_sizes: how many sizes batches can have, if they are listed; else 1.
    """
    samples_of_batch = min(budget / max(mean_cost, 1.0), most)
    batches = max(_WINDOW_BATCHES, _WINDOW_BATCHES_OF_SIZE * num_sizes)
    return max(1, min(round(batches * samples_of_batch), _MAX_WINDOW_SAMPLES))


@dataclass(frozen=True, eq=False)
class BudgetBatches:
    """The batches of an epoch; see Note [batches of a budget]."""

    windows: Partition  # of one rank: each of its batches is a window
    ranks: Ranks  # that share the epoch
    drop_last: bool  # leave out batches that only some ranks would get
    deal: Callable[[int], Dealt]  # of a window
    # The key of the draws by which the batches of a window are ordered; None: they stay in order.
    key: int | None
    counts: Int64s  # (windows,) batches of each, from count_batches

    @cached_property
    def _first_batches(self) -> Int64s:
        """(windows + 1,) the first batch of each window, over all ranks, and the end."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    def __len__(self) -> int:
        """Batches of each rank."""
        all_batches = int(self._first_batches[-1])
        world_size = self.ranks.world_size
        if self.drop_last:
            return all_batches // world_size
        return -(-all_batches // world_size)  # rounded up

    def rows(self, number: int) -> BudgetRows:
        """This rank's samples of a batch."""
        batch, is_valid = self._batch_of_all(number, self.ranks.rank)
        window, in_window = self._find(batch)
        dealt = self._window(window)
        start, stop = dealt.edges[in_window : in_window + 2]
        return BudgetRows(window, dealt.places[start:stop], is_valid)

    def size(self, number: int) -> Size:
        """(height, width) of this rank's batch."""
        batch, _ = self._batch_of_all(number, self.ranks.rank)
        window, in_window = self._find(batch)
        return self._window(window).sizes[in_window]

    def due(self, number: int, *, is_first: bool) -> list[Span]:
        """The spans to request before a batch, one window ahead of their use.

        `is_first`: it is the first batch of an iteration, which needs its own window as well.
        """
        last = self._last_window(number)
        start = last + 1
        if is_first:
            batch, _ = self._batch_of_all(number, 0)
            start, _ = self._find(batch)
        elif number > 0:
            start = self._last_window(number - 1) + 2
        end = self.windows.batches
        spans = []
        for sequence, _ in self.windows.sequences:
            start_position = self.windows.edge(sequence, min(start, end))
            stop_position = self.windows.edge(sequence, min(last + 2, end))
            spans.append(Span(sequence, start_position, stop_position))
        return spans

    def is_mine(self, sequence: int, positions: Int64s) -> Bools:
        """(n,) which positions of a sequence this rank has in a batch."""
        is_mine = np.zeros(len(positions), dtype=np.bool_)
        if not len(positions):
            return is_mine
        windows = self.windows.batches_of(sequence, positions)
        for window in np.unique(windows).tolist():
            in_window = windows == window
            batches = self._batches_of_positions(window, sequence, positions[in_window])
            is_mine[in_window] = self._has(batches)
        return is_mine

    def _batches_of_positions(
        self, window: int, sequence: int, positions: Int64s
    ) -> Int64s:
        """(n,) the batch of all ranks that has each position of a sequence, in a window."""
        dealt = self._window(window)
        batch_numbers = np.arange(len(dealt.sizes)) + self._first_batches[window]
        batch_of_place = np.empty(len(dealt.places), dtype=np.int64)
        batch_of_place[dealt.places] = np.repeat(batch_numbers, np.diff(dealt.edges))
        # The places of a window are its rows in their order: positions of its spans.
        rank_rows = self.windows.rank_rows(window)
        place_of_row = np.empty(len(dealt.places), dtype=np.int64)
        place_of_row[rank_rows.rows[rank_rows.valid]] = np.arange(len(dealt.places))
        rows_before = 0
        for span in rank_rows.spans:
            if span.sequence == sequence:
                rows = positions - span.start + rows_before
                return batch_of_place[place_of_row[rows]]
            rows_before += span.stop - span.start
        raise AssertionError(f"window {window} has nothing of sequence {sequence}")

    def _has(self, batches: Int64s) -> Bools:
        """(n,) which batches of all ranks this rank gets."""
        rank = self.ranks.rank
        world_size = self.ranks.world_size
        is_planned = batches < len(self) * world_size
        has = is_planned & (batches % world_size == rank)
        # What fills up the last batches of the ranks.
        filler = (
            len(self) * world_size - world_size + rank - int(self._first_batches[-1])
        )
        if filler >= 0:
            has |= batches == filler % int(self._first_batches[-1])
        return np.asarray(has)

    def _batch_of_all(self, number: int, rank: int) -> tuple[int, bool]:
        """The batch of all ranks that is a rank's batch, and whether it counts there."""
        batch = number * self.ranks.world_size + rank
        all_batches = int(self._first_batches[-1])
        # Behind the last batch they begin again.
        return batch % all_batches, batch < all_batches

    def _find(self, batch: int) -> tuple[int, int]:
        """The window of a batch of all ranks, and the batch's number in it."""
        window = int(np.searchsorted(self._first_batches, batch, side="right")) - 1
        return window, batch - int(self._first_batches[window])

    def _last_window(self, number: int) -> int:
        """The last window that any rank needs for a batch."""
        world_size = self.ranks.world_size
        all_batches = int(self._first_batches[-1])
        last = min((number + 1) * world_size, all_batches) - 1
        window, _ = self._find(last)
        return window

    @cache_recent(_WINDOWS_KEPT)
    def _window(self, window: int) -> _Window:
        batches, sizes = self.deal(window)
        count = len(sizes)
        # (count,) the place of each batch among those of the window.
        order = np.arange(count)
        if self.key is not None:
            numbers = self._first_batches[window] + order
            order = np.argsort(bits(self.key, numbers), kind="stable")
        place_of_batch = np.argsort(order)
        new_batches = place_of_batch[batches]
        places = np.argsort(new_batches, kind="stable")
        counts = np.bincount(new_batches, minlength=count)
        edges = np.concatenate([[0], np.cumsum(counts)])
        return _Window(places, edges, [sizes[batch] for batch in order.tolist()])


def deal_by_cost(costs: Int64s, budget: int, most: int) -> Dealt:
    """Samples that cost so much, (n,), packed into batches; *Note [best fit]* in csrc/plan/budget.h."""
    batches, count = _engine.fill_batches(costs, budget, most)
    return Dealt(batches, [(1, 1)] * count)


def count_batches(windows: int, deal: Callable[[int], Dealt]) -> Int64s:
    """(windows,) how many batches each window has."""
    counts = np.empty(windows, dtype=np.int64)
    for window in range(windows):
        counts[window] = len(deal(window).sizes)
    return counts
