"""The ranks of the moment, set_size and set_weights -> the recipe of an epoch that begins now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from fastpipe.dataset.dataset import Dataset
from fastpipe.errors import ConfigError
from fastpipe.loading.ranks import RankResolver, group_by_node
from fastpipe.loading.samplers import Sampling
from fastpipe.loading.state import RANKS
from fastpipe.plan.content import MAX_ROWS
from fastpipe.plan.epoch_batches import check_batches
from fastpipe.plan.option_conflicts import conflict_error
from fastpipe.plan.partition import ALONE, Ranks
from fastpipe.plan.picks import Listed
from fastpipe.plan.recipe import Recipe


class RecipeResolver:
    """Makes the recipe of an epoch that begins now: the same object as long as nothing changes.

    `ranks` finds out which ranks there are, `size` is the size of images that set_size has set.
    """

    def __init__(
        self,
        ranks: RankResolver,
        recipe: Recipe,
        sampling: Sampling,
        partition: str | int,
    ) -> None:
        self.ranks = ranks
        self.size: tuple[int, int] | None = None
        self._sampling = sampling
        self._shuffle = recipe.shuffle
        # The latest recipe is kept: who compares recipes by `is` sees whether anything has changed.
        self._resolve = lru_cache(1)(partial(_recipe_for_ranks, recipe, partition))

    def current(self, ranks: Ranks | None = None) -> Recipe:
        """The recipe for the ranks of the moment, or for those given."""
        if ranks is None:
            ranks = self.ranks.known() or ALONE
        return self._resolve(ranks, self.size, self._sampling)

    def check_ranks(self) -> None:
        """Raises ConfigError if each process would read all batches, or a part of its share.

        For the start of an epoch: a program may make its loader before it initialises
        torch.distributed.
        """
        self.ranks.check()
        self._sampling.check_replicas(self.ranks.known() or ALONE)

    def set_weights(self, weights: Any, data: Dataset) -> None:
        """See Loader.set_weights. Weights that are refused change nothing."""
        sampling = self._sampling.with_weights(weights, data, shuffle=self._shuffle)
        # Raises if they are wrong.
        self._resolve(self.ranks.known() or ALONE, self.size, sampling)
        self._sampling = sampling

    def refresh_listed(self, epoch: int) -> None:
        """Makes a new recipe if the program's sampler gives other samples for an epoch than before.

        The epoch may have been planned early, with the samples that the sampler gave then.
        """
        for pick in self.current().picks:
            if isinstance(pick, Listed) and pick.changed(epoch):
                # An equal one, but another object.
                self._sampling = replace(self._sampling)
                return

    def for_state(self, order: Mapping[str, Any]) -> Recipe:
        """The current recipe, for a state with this order.

        As long as nothing tells the ranks, there are assumed to be as many as the state was saved
        with: as many as fill its global batch.
        """
        current = self.current()
        if self.ranks.known() is not None:
            return current
        world_size = order.get(RANKS)
        rows = order.get("global_batch_size")
        if type(rows) is int and rows % current.batch_size == 0:
            world_size = rows // current.batch_size
        if type(world_size) is int and world_size >= 1:
            return self.current(Ranks(0, world_size))
        return current


def _recipe_for_ranks(
    recipe: Recipe,
    partition: str | int,
    ranks: Ranks,
    size: tuple[int, int] | None,
    sampling: Sampling,
) -> Recipe:
    """The recipe where these ranks share epochs; see Note [partition].

    Raises ConfigError if a batch or a node would get nothing.
    """
    # Each node, or each part of the partition, reads its own sequence of samples.
    num_parts = 1
    if partition != "sample":
        ranks, num_parts = group_by_node(ranks, partition)
        if sampling.listed is not None or sampling.by_class is not None:
            raise conflict_error("partition + listing sampler")
    if size is None:
        size = recipe.size
    recipe = replace(recipe, ranks=ranks, sequences=num_parts, size=size)
    recipe = sampling.apply_to(recipe)
    content = recipe.content
    if content.mixed and recipe.rows(0) > MAX_ROWS:
        raise ConfigError(
            'epoch_size="largest": the dataset with the smallest weight comes to its end after '
            f"more than {MAX_ROWS:,} rows; give it a larger weight, or pass a number as epoch_size"
        )
    check_batches(recipe)
    global_batch_size = recipe.batch_size * ranks.world_size
    if global_batch_size % num_parts:
        raise ConfigError(
            f"batch_size={recipe.batch_size}: batch_size times world_size={ranks.world_size} "
            f"must be a multiple of the {num_parts} parts of partition=, because each part gives "
            "the same number of samples to a batch"
        )
    # Each part needs at least one sample. In a mixture it needs one of each share.
    share = ""
    counts = [recipe.rows(0), len(content)]
    if content.mixed:
        share = " of one share"
        counts = content.counts()
    smallest = min(counts)
    if smallest < num_parts:
        raise ConfigError(
            f"{content.index.path} has {smallest} samples{share}, fewer than the {num_parts} "
            'parts of partition=; pass partition="sample"'
        )
    return recipe
