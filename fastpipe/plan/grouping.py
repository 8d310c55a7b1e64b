"""The samples of some batches that follow one another -> batches of similar shape.

Note [grouped batches]
Some batches that follow one another form a window: as many as a window of the shuffled order fills,
at least 16, and at least 16 for each size of a list. The samples of a window are sorted by shape
and dealt out again: each batch gets one stretch of the sorted samples, and a draw decides which. So
every batch is full, no sample is left over, reads stay inside the window, and any batch can be
planned without the windows before it. The samples of each sequence of Note [partition] are sorted
on their own, because a node may read its own only. A batch's samples and size depend on the global
batch, not on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np

from fastpipe.arrays import Bools, Int64s
from fastpipe.plan.batches import BatchRows
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crops import Size
from fastpipe.plan.draws import bits
from fastpipe.plan.epoch_rows import EpochRows
from fastpipe.plan.order import CHUNKS_PER_WINDOW, cache_recent
from fastpipe.plan.partition import Partition, Span

_MIN_WINDOW_BATCHES = 16  # fewer batches would leave much padding
_MAX_WINDOW_SAMPLES = 1 << 18  # sorted at once, unless one global batch has more
_WINDOWS_KEPT = 4  # the current one, and those that are fetched ahead


class _Window(NamedTuple):
    """Some batches that follow one another, after their samples were dealt out again."""

    sizes: list[Size]  # (height, width) of each batch
    # Number of a sequence -> (n,) for each place of the window, the position of its sample, counted
    # from the window's start.
    positions: dict[int, Int64s]


@dataclass(frozen=True, eq=False)
class Grouping:
    """Deals the samples of each window of batches out by shape; see Note [grouped batches]."""

    # It has the sequences of all nodes, so that all ranks agree on a batch's size.
    partition: Partition
    # (sequence, start, stop) -> (n, 2) widths and heights of the images at these positions.
    pictures: Callable[[int, int, int], Int64s]
    buckets: Buckets
    _: KW_ONLY
    batches: int  # of a window
    # The key of the draws by which batches get their stretches; None: a window goes from narrow to
    # wide images.
    key: int | None

    @staticmethod
    def batches_of(chunk: int, global_batch_size: int, num_sizes: int = 1) -> int:
        """The number of batches in a window, if the order is read in chunks of `chunk` samples.

        `num_sizes`: how many sizes batches can have, if they are listed; else 1.
        """
        window_samples = CHUNKS_PER_WINDOW * chunk
        batches_per_window = window_samples // global_batch_size
        least = _MIN_WINDOW_BATCHES * num_sizes
        wanted = max(least, batches_per_window)
        most = _MAX_WINDOW_SAMPLES // global_batch_size
        return max(1, min(wanted, most))

    def size(self, batch: int) -> Size:
        """(height, width) of a batch."""
        window, batch_in_window = divmod(batch, self.batches)
        sizes = self._window(window).sizes
        return sizes[batch_in_window]

    def positions(
        self, sequence: int, batch: int, start: int, stop: int
    ) -> tuple[int, Int64s]:
        """The samples at the places [start, stop) of a sequence, which lie in `batch`.

        Returns:
            The first position of the batch's window, and (stop - start,) positions counted from it.
        """
        # A node that has no sample left for this batch repeats its last one, of the batch before.
        batch_begin = self.partition.edge(sequence, batch)
        if batch_begin > start:
            batch -= 1
        window = batch // self.batches
        first_batch = window * self.batches
        begin = self.partition.edge(sequence, first_batch)
        positions = self._window(window).positions[sequence]
        first_place = start - begin
        end_place = stop - begin
        return begin, positions[first_place:end_place]

    def grouped(self, sequence: int, positions: Int64s) -> Int64s:
        """The inverse: the places of the samples at these positions after they were dealt out.

        Positions after the last batch stay as they are.
        """
        places = positions.copy()
        last_edge = self.partition.edge(sequence, self.partition.batches)
        is_in_batch = positions < last_edge
        if not is_in_batch.any():
            return places
        windows = np.full(len(positions), -1, dtype=np.int64)
        positions_in_batches = positions[is_in_batch]
        batches = self.partition.batches_of(sequence, positions_in_batches)
        windows_of_batches = batches // self.batches
        windows[is_in_batch] = windows_of_batches
        for window in np.unique(windows_of_batches).tolist():
            first_batch = window * self.batches
            begin = self.partition.edge(sequence, first_batch)
            in_window = windows == window
            position_of_place = self._window(window).positions[sequence]
            # argsort inverts a permutation.
            place_of_position = np.argsort(position_of_place)
            positions_in_window = positions[in_window] - begin
            places_in_window = place_of_position[positions_in_window]
            places[in_window] = begin + places_in_window
        return places

    def due(self, sequence: int, batch: int, *, is_first: bool) -> tuple[int, int]:
        """The positions [start, stop) to request before `batch`, one window ahead of their use.

        `is_first`: it is the first batch of an iteration, which needs its own window as well. Any
        batch of a window may need any of the window's samples.
        """
        start_batch = batch + self.batches
        stop_batch = start_batch + 1
        if is_first:
            window = batch // self.batches
            start_batch = window * self.batches
        # No window follows the last one.
        end_batch = self.partition.batches
        start_batch = min(start_batch, end_batch)
        stop_batch = min(stop_batch, end_batch)
        start = self.partition.edge(sequence, start_batch)
        stop = self.partition.edge(sequence, stop_batch)
        return start, stop

    @cache_recent(_WINDOWS_KEPT)
    def _window(self, window: int) -> _Window:
        """Deals out the samples of a window; see Note [grouped batches]."""
        first = window * self.batches
        next_first = first + self.batches
        end = min(next_first, self.partition.batches)
        count = end - first
        # (count,) which stretch of the sorted samples each batch gets, and the inverse.
        stretch_of_batch = np.arange(count)
        if self.key is not None:
            batches = np.arange(first, end, dtype=np.int64)
            draws = bits(self.key, batches)
            stretch_of_batch = np.argsort(draws, kind="stable")
        batch_of_stretch = np.argsort(stretch_of_batch)

        # For each batch the row sizes, (n, 2), of its images in all sequences.
        row_sizes: list[list[Int64s]] = []
        for _ in range(count):
            row_sizes.append([])
        positions = {}
        for sequence, _ in self.partition.sequences:
            # (count + 1,) the positions at which the batches begin, and the end of the last one.
            edges = []
            for batch in range(first, end + 1):
                edges.append(self.partition.edge(sequence, batch))
            # (samples of the window, 2) their sizes, and (samples,) their order by shape.
            begin = edges[0]
            window_end = edges[-1]
            pictures = self.pictures(sequence, begin, window_end)
            sizes = self.buckets.row_sizes(pictures)
            by_shape = self.buckets.sort_by_shape(pictures, sizes)
            # Batches may differ in length by one sample, so each stretch is as long as its batch.
            batch_lengths = np.diff(edges)
            stretch_lengths = batch_lengths[batch_of_stretch]
            stretch_ends = np.cumsum(stretch_lengths)
            cuts = stretch_ends[:-1]
            stretches = np.split(by_shape, cuts)
            dealt = [stretches[stretch] for stretch in stretch_of_batch]
            for batch, rows in enumerate(dealt):
                sizes_of_rows = sizes[rows]
                row_sizes[batch].append(sizes_of_rows)
            positions[sequence] = np.concatenate(dealt)
        batch_sizes = []
        for parts in row_sizes:
            row_sizes_of_batch = np.concatenate(parts)
            batch_sizes.append(self.buckets.shape(row_sizes_of_batch))
        return _Window(batch_sizes, positions)


@dataclass(frozen=True, eq=False)
class GroupedBatches:
    """The batches of a rank after their samples were grouped by shape; see Batches."""

    grouping: Grouping
    partition: Partition  # of the rank
    epoch_rows: EpochRows  # in their order, of all nodes

    def __len__(self) -> int:
        return self.partition.batches

    def count_samples(self) -> int:
        return self.partition.count_rows()

    def size(self, batch: int) -> Size:
        return self.grouping.size(batch)

    def rows(self, batch: int) -> BatchRows:
        rank_rows = self.partition.rank_rows(batch)
        ids = []
        names = []
        for sequence, start, stop in rank_rows.spans:
            begin, chosen = self.grouping.positions(sequence, batch, start, stop)
            # Up to the last position that is needed; most of the window, as a rule.
            last = int(chosen.max(initial=-1))
            end = begin + last + 1
            order = self.epoch_rows.orders[sequence]
            rows = order.take(begin, end)
            row_names = self.epoch_rows.names(sequence, rows)
            ids.append(rows.ids[chosen])
            names.append(row_names[chosen])
        # The node's rows, and then those of the rank.
        node_ids = np.concatenate(ids)
        node_names = np.concatenate(names)
        rank_ids = node_ids[rank_rows.rows]
        rank_names = node_names[rank_rows.rows]
        return BatchRows(rank_ids, rank_rows.valid, rank_names)

    def spans_ahead(self, batch: int, *, is_first: bool) -> list[Span]:
        spans = []
        for sequence, _ in self.partition.sequences:
            start, stop = self.grouping.due(sequence, batch, is_first=is_first)
            spans.append(Span(sequence, start, stop))
        return spans

    def is_mine(self, sequence: int, positions: Int64s) -> Bools:
        places = self.grouping.grouped(sequence, positions)
        return self.partition.is_mine(sequence, places)
