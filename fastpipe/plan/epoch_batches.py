"""(recipe, epoch) -> the batches of this rank's epoch, in order, grouped by shape or of a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from fastpipe.arrays import Int64s
from fastpipe.errors import ConfigError
from fastpipe.plan.batches import Batches
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.budget import BudgetBatches, count_batches
from fastpipe.plan.crop_boxes import check_covered
from fastpipe.plan.dealing import Dealt, deal_by_cost
from fastpipe.plan.draws import Stream, key
from fastpipe.plan.epoch_rows import EpochRows
from fastpipe.plan.grouping import GroupedBatches, Grouping
from fastpipe.plan.order import Passes
from fastpipe.plan.picture_sizes import picture_sizes
from fastpipe.plan.recipe import Recipe, partition_of


def make_batches(recipe: Recipe, epoch: int) -> tuple[Batches, Mapping[int, Passes]]:
    """The batches of an epoch, and the order of each sequence, by its number."""
    partition = partition_of(recipe, epoch)
    if recipe.crop.budget is not None:
        # The partition is one into windows.
        rows = EpochRows(recipe, epoch, partition)
        return _deal_out(recipe, epoch, rows), rows.orders
    if not isinstance(recipe.crop, Buckets):
        rows = EpochRows(recipe, epoch, partition)
        return rows, rows.orders
    # A global batch has one size on all ranks, which follows from all its images. So the orders are
    # those of all nodes.
    one_node = replace(recipe.ranks, nodes=1)
    partition_of_all = partition_of(replace(recipe, ranks=one_node), epoch)
    rows = EpochRows(recipe, epoch, partition_of_all)
    grouping = _group(recipe, recipe.crop, epoch, rows)
    return GroupedBatches(grouping, partition, rows), rows.orders


def num_batches(recipe: Recipe, epoch: int = 0) -> int:
    """How many batches an epoch has on each rank."""
    if recipe.crop.budget is None:
        return partition_of(recipe, epoch).batches
    batches, _ = make_batches(recipe, epoch)
    return len(batches)


def check_batches(recipe: Recipe, epoch: int = 0) -> None:
    """Raises ConfigError if an epoch has no batch: a loop over it would end at once."""
    if num_batches(recipe, epoch) > 0:
        return
    path = recipe.content.index.path
    world_size = recipe.ranks.world_size
    if recipe.crop.budget is not None:
        budget = "pixels=" if isinstance(recipe.crop, Buckets) else "tokens="
        raise ConfigError(
            f"drop_last=True gives no batch: epoch {epoch} of {path} has fewer batches than there "
            f"are ranks, {world_size}. Pass a smaller {budget}, or drop_last=False"
        )
    needs = ""
    if world_size > 1:
        needs = f", and a global batch of {world_size} ranks needs {recipe.batch_size * world_size}"
    advice = "Pass a smaller batch_size, or drop_last=False"
    epoch_size = recipe.epoch_size
    if isinstance(epoch_size, int):
        rows_of_batches = epoch_size * recipe.batch_size * world_size
        advice = (
            f"epoch_size={epoch_size} counts samples, not batches: so many batches are "
            f"epoch_size={rows_of_batches}. Or pass a smaller batch_size, or drop_last=False"
        )
    raise ConfigError(
        f"batch_size={recipe.batch_size} with drop_last=True gives no full batch: epoch {epoch} of "
        f"{path} has {recipe.rows(epoch)} samples{needs}. {advice}"
    )


def _group(recipe: Recipe, buckets: Buckets, epoch: int, rows: EpochRows) -> Grouping:
    """Groups the samples of an epoch by shape; `rows` has those of all nodes."""
    content = recipe.content
    partition = rows.partition
    orders = rows.orders

    def pictures(sequence: int, start: int, stop: int) -> Int64s:
        ids = orders[sequence].take(start, stop).ids
        return _pictures_of(recipe, buckets, ids)

    num_sizes = max(1, len(buckets.listed_sizes))
    batches = Grouping.batches_of(content.chunk, partition.global_batch_size, num_sizes)
    return Grouping(
        partition, pictures, buckets, batches=batches, key=_order_key(recipe, epoch)
    )


def _deal_out(recipe: Recipe, epoch: int, rows: EpochRows) -> BudgetBatches:
    """The batches of an epoch of a recipe with a budget; `rows` has those of each window."""

    def deal(window: int) -> Dealt:
        ids = rows.window(window).ids
        if isinstance(recipe.crop, Buckets):
            pictures = _pictures_of(recipe, recipe.crop, ids)
            return recipe.crop.deal(pictures, recipe.batch_size)
        costs = recipe.costs(ids)
        _check_costs(recipe, ids, costs)
        return deal_by_cost(costs, recipe.crop.budget or 0, recipe.batch_size)

    counts = recipe.window_batches.get(epoch)
    if counts is None:
        counts = count_batches(len(rows), deal)
        recipe.window_batches[epoch] = counts
    return BudgetBatches(
        rows,
        recipe.ranks,
        drop_last=recipe.drop_last,
        deal=deal,
        key=_order_key(recipe, epoch),
        counts=counts,
    )


def _pictures_of(recipe: Recipe, buckets: Buckets, ids: Int64s) -> Int64s:
    """(n, 2) width and height of samples. ConfigError: a bucket's size does not cover one."""
    content = recipe.content
    pictures = picture_sizes(content.records_of(ids))
    check_covered(buckets, pictures, partial(content.sample_name, ids))
    return pictures


def _order_key(recipe: Recipe, epoch: int) -> int | None:
    """The key of the draws by which batches are ordered; None: they stay in order."""
    if not recipe.shuffle:
        return None
    return key(recipe.seed, epoch, Stream.GROUP)


def _check_costs(recipe: Recipe, ids: Int64s, costs: Int64s) -> None:
    """Raises ConfigError if a sample alone has more tokens than a batch may have."""
    budget = recipe.crop.budget
    assert budget is not None
    wrong = np.flatnonzero((costs > budget) | (costs < 1))
    if not len(wrong):
        return
    position = int(wrong[0])
    name = recipe.content.sample_name(ids, position)
    if costs[position] < 1:
        raise ConfigError(
            f"Patches(text_tokens=): {name} has {int(costs[position]):,} tokens, of its image and "
            "its text. Pass a field with the number of text tokens, 0 or more"
        )
    raise ConfigError(
        f"Patches: {name} has {int(costs[position]):,} tokens, of its image and its text, and a "
        f"batch has tokens={budget:,}. Pass more tokens, a smaller max_tokens, or leave such samples "
        "out with data.select"
    )
