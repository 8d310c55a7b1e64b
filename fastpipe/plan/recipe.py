"""The checked options that decide a loader's batches, and how many batches an epoch has.

Note [views]
The first view of a loader is what the loader would give without views=. View k, from 1 on, draws
its crops, mirroring and augmentation with a seed of its own, `view_seed(seed, k)`: so it has the
rows that a loader of this seed has, in the order of the loader's seed. Nothing else of a plan
depends on a view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.columns import Ragged, row_of_values
from fastpipe.dataset.format.pixel_form import has_images
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.content import ColumnReader, Content
from fastpipe.plan.crops import Crop
from fastpipe.plan.crops import Size as Size
from fastpipe.plan.dealing import samples_of_window
from fastpipe.plan.draws import Stream, key, uniform_one
from fastpipe.plan.partition import ALONE, Partition, Ranks, rows_of_mixture
from fastpipe.plan.picks import Pick
from fastpipe.plan.picture_sizes import picture_sizes
from fastpipe.plan.whole_images import WholeImages

_SAMPLES_FOR_MEAN = 1 << 16
MAX_BATCH_SIZE = 1 << 20


class Sizes(NamedTuple):
    """Sizes that change with the epoch or the batch: either a schedule or choices."""

    schedule: Callable[[int], Size] | None = None  # epoch -> the size of its batches
    # Each batch draws one by its number, so all ranks draw the same.
    choices: tuple[Size, ...] = ()

    def in_epoch(self, epoch: int, seed: int) -> Callable[[int], Size]:
        """A function from the number of a batch to its size. The schedule is called once."""
        choices = self.choices
        if self.schedule is not None:
            choices = (self.schedule(epoch),)
        stream = key(seed, epoch, Stream.SIZE)

        def size_of(batch: int) -> Size:
            draw = uniform_one(stream, batch)
            return choices[int(draw * len(choices))]

        return size_of


class ViewRecipe(NamedTuple):
    """How an image becomes its row of one view."""

    size: Size | None  # None: the size of the loader, which may change
    crop: Crop | WholeImages
    flip: float  # probability of mirroring left and right
    seed: int


def view_seed(seed: int, view: int) -> int:
    """The seed of a view's draws. The first view, 0, has the loader's own."""
    return seed if view == 0 else key(seed, view, Stream.VIEW)


@dataclass(frozen=True)
class Recipe:
    """All that decides a loader's batches, checked."""

    batch_size: int  # of each rank; with a budget, the most samples
    size: Size
    # Buckets also decide which samples share a batch, and its size. With Native, each row has a size
    # of its own, and `size` is not used.
    crop: Crop | WholeImages
    flip: float  # probability of mirroring left and right
    shuffle: bool  # True: a new order each epoch; False: the order of the dataset
    drop_last: bool  # leave out a last global batch that is not full
    seed: int  # in [0, 2**64)
    content: Content
    # A sampler's pick for each share; empty: epochs go through all samples.
    picks: tuple[Pick, ...] = ()
    repeats: int = 1  # how often in a row a sample comes
    # Rows of an epoch. A mixture may have "smallest" (None) or "largest"; else None means the
    # number of samples.
    epoch_size: int | str | None = None
    ranks: Ranks = ALONE  # the ranks that share an epoch
    # Canonical nodes, into which the order of an epoch is cut; see Note [partition].
    sequences: int = 1
    sizes: Sizes | None = None  # if sizes change; `size` is then the largest known one
    first_view_size: Size | None = None  # of the first view, if it is not `size`
    other_views: tuple[
        ViewRecipe, ...
    ] = ()  # the views after the first; see Note [views]
    with_images: bool = True  # batches have the images of the samples
    # Of fields of lists of pictures that batches with a budget have.
    picture_lists: tuple[ColumnReader, ...] = ()
    # The numbers of text tokens, which count against the tokens of a batch.
    text_tokens: ColumnReader | None = None
    # The fields of boxes that crops name, by name; each value is a Ragged of boxes (M, 4).
    objects: Mapping[str, ColumnReader] = field(default_factory=dict)
    # The sampler's part of a loader's state.
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def views(self) -> tuple[ViewRecipe, ...]:
        first = ViewRecipe(self.first_view_size, self.crop, self.flip, self.seed)
        return first, *self.other_views

    def rows(self, epoch: int) -> int:
        """Rows of an epoch over all ranks. The last ones may fill no batch."""
        if self.picks:
            picked = self.picks[0].rows(epoch)
            if picked is not None:
                return picked * self.repeats
        if isinstance(self.epoch_size, int):
            return self.epoch_size
        content = self.content
        if content.mixed:
            end = self.epoch_size or "smallest"
            return rows_of_mixture(content.weights, content.counts(), self.repeats, end)
        return len(content)

    def costs(self, ids: Int64s) -> Int64s:
        """(n,) what samples take of the budget, in tokens or pixels."""
        costs = np.zeros(len(ids), dtype=np.int64)
        if self.with_images or not self.picture_lists:
            records = self.content.records_of(ids)
            pictures = picture_sizes(records)
            costs += np.where(has_images(records), self.crop.costs(pictures), 0)
        for column in self.picture_lists:
            ragged: Ragged = column.take(ids)
            costs_of_pictures = self.crop.costs(picture_sizes(ragged.values))
            np.add.at(costs, row_of_values(ragged), costs_of_pictures)
        if self.text_tokens is not None:
            costs = costs + self.text_tokens.take(ids)
        if self.picture_lists:
            # A sample without a picture and without text takes a token, too.
            costs = np.where(costs == 0, 1, costs)
        return costs

    @cached_property
    def window_samples(self) -> int:
        """Samples of a window; see Note [batches of a budget]."""
        budget = self.crop.budget
        assert budget is not None
        count = len(self.content)
        step = -(-count // _SAMPLES_FOR_MEAN)  # rounded up
        ids = np.arange(0, count, step, dtype=np.int64)
        mean_cost = float(self.costs(ids).mean())
        num_sizes = 1
        if isinstance(self.crop, Buckets):
            num_sizes = max(1, len(self.crop.listed_sizes))
        return samples_of_window(mean_cost, budget, self.batch_size, num_sizes)

    @cached_property
    def window_batches(self) -> dict[int, Int64s]:
        """Epoch -> (windows,) how many batches each window has, for epochs that were counted."""
        return {}

    def places(self, share: int, epoch: int) -> int:
        """Places of a pass through a share; see Note [passes]."""
        if not self.picks or self.content.mixed:
            return self.content.counts()[share]
        # Draws are made for the rows of one epoch, and each sequence gets equally many.
        rows_of_places = self.sequences * self.repeats
        places_of_sequence = -(-self.rows(epoch) // rows_of_places)  # rounded up
        return self.sequences * places_of_sequence

    def count_names(self, share: int, epoch: int) -> int:
        """How many names of draws a pass through a share has, if a sample may come twice in it."""
        return max(self.places(share, epoch), len(self.content))


def partition_of(recipe: Recipe, epoch: int = 0) -> Partition:
    """How the ranks share the rows of an epoch; with a budget, how windows share them."""
    batch_size = recipe.batch_size
    drop_last = recipe.drop_last
    ranks = recipe.ranks
    if recipe.crop.budget is not None:
        # A window is a batch of one rank: see Note [batches of a budget].
        batch_size = min(recipe.window_samples, recipe.rows(epoch))
        drop_last = False
        ranks = ALONE
    return Partition(
        recipe.rows(epoch),
        batch_size,
        drop_last=drop_last,
        ranks=ranks,
        sequences=recipe.sequences,
        in_turn=recipe.repeats > 1,
        weights=recipe.content.weights,
        epoch=epoch,
        seed=recipe.seed,
    )
