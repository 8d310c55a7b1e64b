"""The samples of an epoch in their order, batch by batch, and the names of their random draws."""

from __future__ import annotations

from functools import partial

import numpy as np

from fastpipe.arrays import Bools, Int64s
from fastpipe.plan.batches import BatchRows
from fastpipe.plan.crops import Size
from fastpipe.plan.draws import Stream, key
from fastpipe.plan.order import Ids, OrderRows, Passes, cache_recent
from fastpipe.plan.partition import Partition, Span
from fastpipe.plan.recipe import Recipe

_WINDOWS_KEPT = 4


class EpochRows:
    """The batches of a partition in the order of their sequences; see Batches."""

    def __init__(self, recipe: Recipe, epoch: int, partition: Partition) -> None:
        self._recipe = recipe
        self._epoch = epoch
        self.partition = partition
        self.orders = {}  # by the number of a sequence
        for number, size in partition.sequences:
            self.orders[number] = self._order_of(number, size)

    def _order_of(self, sequence: int, size: int) -> Passes:
        """The order of a sequence: a node's part of a share; see Note [partition]."""
        recipe = self._recipe
        content = recipe.content
        share_count = len(content.weights)
        # The sequence is the part [first, end) of the share's places that belongs to a canonical node.
        node, share = divmod(sequence, share_count)
        share_places = recipe.places(share, self._epoch)
        first = node * share_places // recipe.sequences
        end = (node + 1) * share_places // recipe.sequences
        places = end - first

        # The position in the endless row of passes at which this epoch begins.
        begin = self.partition.begins[sequence]
        chunk = content.chunk
        if recipe.picks:
            # If neighbouring places are any samples, nothing is gained by reading them together.
            if not recipe.picks[share].together:
                chunk = 1
            if not content.mixed:
                # A sampler draws anew for each epoch, so epoch e is pass e.
                begin = self._epoch * places * recipe.repeats
        seed = recipe.seed
        if recipe.sequences * share_count > 1:
            seed = key(recipe.seed, sequence, Stream.SEQUENCE)
        return Passes(
            places,
            chunk,
            seed=seed,
            begin=begin,
            size=size,
            repeats=recipe.repeats,
            shuffle=recipe.shuffle,
            # Not a method, which would refer to this object: a circle, which only the garbage
            # collector frees.
            ids=partial(ids_of_pass, recipe, self._epoch, share),
            base=first + int(content.starts[share]),
        )

    def __len__(self) -> int:
        return self.partition.batches

    def size(self, batch: int) -> Size | None:
        return None

    def spans_ahead(self, batch: int, *, is_first: bool) -> list[Span]:
        return self.partition.spans(batch)

    def is_mine(self, sequence: int, positions: Int64s) -> Bools:
        return self.partition.is_mine(sequence, positions)

    def count_samples(self) -> int:
        return self.partition.count_rows()

    def rows(self, batch: int) -> BatchRows:
        # The rows of all spans are taken, and then those of this rank chosen from them.
        rank_rows = self.partition.rank_rows(batch)
        ids = []
        names = []
        for sequence, start, stop in rank_rows.spans:
            rows = self.orders[sequence].take(start, stop)
            ids.append(rows.ids)
            names.append(self.names(sequence, rows))
        chosen = rank_rows.rows
        return BatchRows(
            np.concatenate(ids)[chosen], rank_rows.valid, np.concatenate(names)[chosen]
        )

    @cache_recent(_WINDOWS_KEPT)
    def window(self, number: int) -> BatchRows:
        """The same rows without those that only fill the batch up."""
        ids, valid, names = self.rows(number)
        return BatchRows(ids[valid], valid[valid], names[valid])

    def names(self, sequence: int, rows: OrderRows) -> Int64s:
        """(n,) numbers that name the random draws of rows, different for all rows of an epoch.

        If a sample comes once in a pass, its first name is its own number, so that its draws do not
        depend on its place in the epoch.
        """
        recipe = self._recipe
        content = recipe.content
        share = sequence % len(content.weights)
        has_repeats = recipe.picks and not recipe.picks[share].distinct(self._epoch)
        if has_repeats:
            return rows.places + rows.times * recipe.count_names(share, self._epoch)
        numbers = content.numbers(rows.ids)
        return numbers + rows.times * len(content.index)


def ids_of_pass(recipe: Recipe, epoch: int, share: int, number: int) -> Ids:
    """A function from places of pass `number` through a share to ids, in an epoch."""
    content = recipe.content
    ids_at: Ids = content.ids_at if recipe.shuffle else np.asarray
    if not recipe.picks:
        return ids_at
    # A pick counts the places of a share from 0, the content those of all shares together.
    start = content.starts[share]
    seed = recipe.seed
    if content.mixed:
        seed = key(recipe.seed, share, Stream.SEQUENCE)
    place_count = recipe.places(share, epoch)
    pick = recipe.picks[share].ids(place_count, seed=seed, epoch=number)

    def pick_ids(places: Int64s) -> Int64s:
        picked = pick(places - start)
        return ids_at(picked + start)

    return pick_ids
