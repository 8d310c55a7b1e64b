"""What decides a loader's batches, and how many there are.

Note [views]
The first view of a loader is what the loader would be without views=. View k, from 1 on, draws its crops, mirroring and
augmentation with a seed of its own, `view_seed(seed, k)`: so it has the rows that a loader of this seed has, in the
order of the loader's seed. Nothing else of a plan depends on a view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastpipe.errors import ConfigError
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.content import Content
from fastpipe.plan.crops import Crop
from fastpipe.plan.draws import Stream, key, uniform_one
from fastpipe.plan.partition import ALONE, Partition, Ranks, rows_of_mixture
from fastpipe.plan.picks import Pick

Size = tuple[int, int]  # (height, width) in pixels


@dataclass(frozen=True)
class Sizes:
    """What decides sizes that change. One of the two."""

    schedule: Callable[[int], Size] | None = None  # epoch -> the size of its batches
    choices: tuple[Size, ...] = ()  # each batch has one: the same on all ranks, whichever batches were before it

    def in_epoch(self, epoch: int, seed: int) -> Callable[[int], Size]:
        """The number of a batch -> its size. The schedule is asked once."""
        choices = (self.schedule(epoch),) if self.schedule is not None else self.choices
        stream = key(seed, epoch, Stream.SIZE)
        return lambda batch: choices[int(uniform_one(stream, batch) * len(choices))]


@dataclass(frozen=True)
class ViewRecipe:
    """How a picture becomes its row of one view."""

    size: Size | None  # None: that of the loader, which may change
    crop: Crop | Buckets
    flip: float  # probability of mirroring left and right
    seed: int


def view_seed(seed: int, view: int) -> int:
    """The seed of a view's draws; of the first view, 0, it is the loader's own."""
    return seed if view == 0 else key(seed, view, Stream.VIEW)


@dataclass(frozen=True)
class Recipe:
    """What decides a loader's batches, checked; nothing else does."""

    batch_size: int  # of each rank
    size: Size
    crop: Crop | Buckets  # Buckets also decide which samples are in one batch, and its size
    flip: float  # probability of mirroring left and right
    shuffle: bool  # a new order each epoch; False: the order of the dataset
    drop_last: bool  # leave out a last global batch that is not full
    seed: int  # in [0, 2**64)
    content: Content
    picks: tuple[Pick, ...] = ()  # of the samples of each of its shares; none: epochs go through all of them
    repeats: int = 1  # how often in a row a sample comes
    # Rows of an epoch; of a mixture also "smallest" (None) or "largest". None: as many as there are samples.
    epoch_size: int | str | None = None
    ranks: Ranks = ALONE  # that share an epoch
    sequences: int = 1  # that an epoch's order is cut into; see Note [partition]
    sizes: Sizes | None = None  # where they change, instead of `size`, which is the largest that is known
    first_size: Size | None = None  # of the first view, where it is not `size`
    more: tuple[ViewRecipe, ...] = ()  # the views after the first, which crop and flip describe; see Note [views]
    sampling: Mapping[str, Any] = field(default_factory=dict)  # what a state has to say of the sampler

    @property
    def views(self) -> tuple[ViewRecipe, ...]:
        return ViewRecipe(self.first_size, self.crop, self.flip, self.seed), *self.more

    def rows(self, epoch: int) -> int:
        """Rows of an epoch of all ranks; the last ones may fill no batch."""
        content = self.content
        picked = self.picks[0].rows(epoch) if self.picks else None
        if picked is not None:
            return picked * self.repeats
        if isinstance(self.epoch_size, int):
            return self.epoch_size
        if content.mixed:
            return rows_of_mixture(content.weights, content.counts(), self.repeats, self.epoch_size or "smallest")
        return len(content)

    def places(self, share: int, epoch: int) -> int:
        """Places of a pass through a share; its sequences get equal parts of draws."""
        if not self.picks or self.content.mixed:
            return self.content.counts()[share]
        return self.sequences * -(-self.rows(epoch) // (self.sequences * self.repeats))


def partition_of(recipe: Recipe, epoch: int = 0) -> Partition:
    return Partition(
        recipe.rows(epoch),
        recipe.batch_size,
        drop_last=recipe.drop_last,
        ranks=recipe.ranks,
        sequences=recipe.sequences,
        in_turn=recipe.repeats > 1,
        weights=recipe.content.weights,
        epoch=epoch,
        seed=recipe.seed,
    )


def check_batches(recipe: Recipe, epoch: int = 0) -> None:
    """Raises ConfigError if an epoch has none: a loop over it would end at once, and nobody would be told."""
    if partition_of(recipe, epoch).batches == 0:
        world = recipe.ranks.world_size
        needs = f", and a global batch of {world} ranks needs {recipe.batch_size * world}" if world > 1 else ""
        raise ConfigError(
            f"batch_size={recipe.batch_size} with drop_last=True gives no full batch: epoch {epoch} of "
            f"{recipe.content.index.path} has {recipe.rows(epoch)} samples{needs}. Pass a smaller batch_size, or "
            "drop_last=False"
        )
