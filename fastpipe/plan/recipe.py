"""What decides a loader's batches, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass

from fastpipe.plan.buckets import Buckets
from fastpipe.plan.content import ALL, Content
from fastpipe.plan.crops import Crop
from fastpipe.plan.mixture import MixedPartition, Mixture
from fastpipe.plan.partition import ALONE, Partition, Ranks
from fastpipe.plan.sizes import Sizes
from fastpipe.plan.views import ViewRecipe


@dataclass(frozen=True)
class Recipe:
    """What decides a loader's batches, checked; nothing else does.

    Attributes:
        batch_size: samples a batch, of each rank.
        size: (height, width) of the output in pixels.
        crop: how a picture becomes its row; Buckets also decide which samples are in one batch, and its size.
        flip: probability of mirroring left and right.
        shuffle: a new order each epoch; False gives shard order.
        drop_last: leave out a last global batch that is not full.
        seed: in [0, 2**64).
        ranks: who shares an epoch.
        sequences: that an epoch's order is cut into; see Note [partition].
        sizes: where they change, instead of `size`, which is the largest that is known.
        content: which samples of the dataset epochs have.
        mixture: of the datasets of a MixedIndex; None: it is none.
        first_size: of the first view, where it is not `size`.
        more: the views after the first, which is described by crop and flip; see Note [views].
    """

    batch_size: int
    size: tuple[int, int]
    crop: Crop | Buckets
    flip: float
    shuffle: bool
    drop_last: bool
    seed: int
    ranks: Ranks = ALONE
    sequences: int = 1
    sizes: Sizes | None = None
    content: Content = ALL
    mixture: Mixture | None = None
    first_size: tuple[int, int] | None = None
    more: tuple[ViewRecipe, ...] = ()

    @property
    def views(self) -> tuple[ViewRecipe, ...]:
        """All of them."""
        return ViewRecipe(self.first_size, self.crop, self.flip, self.seed), *self.more


def partition_of(samples: int, recipe: Recipe, epoch: int = 0) -> Partition | MixedPartition:
    """Who takes what of an epoch of a dataset of so many samples."""
    if recipe.mixture is not None:
        return MixedPartition(
            recipe.mixture.weights,
            max(1, recipe.mixture.rows // (recipe.batch_size * recipe.ranks.world_size)),
            epoch,
            recipe.batch_size,
            ranks=recipe.ranks,
            nodes=recipe.sequences,
            seed=recipe.seed,
        )
    return Partition(
        recipe.content.size(samples),
        recipe.batch_size,
        drop_last=recipe.drop_last,
        ranks=recipe.ranks,
        sequences=recipe.sequences,
        in_turn=recipe.content.repeats > 1,
    )


def batches_per_epoch(samples: int, recipe: Recipe) -> int:
    """How many batches each rank's epoch of a dataset of so many samples has."""
    return partition_of(samples, recipe).batches
