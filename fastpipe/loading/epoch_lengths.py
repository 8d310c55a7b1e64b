"""How many samples an epoch for training has -> warnings if they are hardly as many as are meant."""

from __future__ import annotations

import math

import numpy as np

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.format.folder import Place
from fastpipe.errors import format_count
from fastpipe.plan.epoch_batches import num_batches
from fastpipe.plan.recipe import Recipe
from fastpipe.warnings_once import warn_once

# Fewer batches than this are hardly an epoch that somebody wants.
_FEW_BATCHES = 4
_SMALL_SHARE = 0.05  # of the samples
_LARGE_SHARE = 0.25


def warn_of_short_epochs(data: Dataset, recipe: Recipe, epoch_size: object) -> None:
    """Says if a mixture ends early with a small dataset, or if epoch_size= may count batches.

    `epoch_size`: as the user passes it.
    """
    if data.content.mixed and epoch_size is None and recipe.epoch_size == "smallest":
        _warn_of_small_share(data, recipe)
    if epoch_size is None and recipe.drop_last and not recipe.picks:
        _warn_of_left_out(data, recipe)
    if isinstance(epoch_size, int) and recipe.crop.budget is None:
        _warn_of_few_batches(data, recipe, epoch_size)


def _warn_of_small_share(data: Dataset, recipe: Recipe) -> None:
    counts = np.array(data.content.counts())
    num_rows = recipe.rows(0)
    if 2 * num_rows >= counts.max():
        return
    # An epoch ends with the share that has the fewest samples for its weight.
    smallest = int(np.argmin(counts / np.array(data.content.weights)))
    largest = int(np.argmax(counts))
    samples = format_count(int(counts[smallest]), "sample")
    warn_once(
        f"short mixture {data.path}",
        f"an epoch of the mixture ends with {_path_of_share(data, smallest)} ({samples}): it has "
        f"{num_rows:,} rows, and {_path_of_share(data, largest)} has {counts[largest]:,} samples. "
        'epoch_size="largest" goes on until each dataset has come to its end; epoch_size=10_000 is that '
        'many rows; epoch_size="smallest" if you mean it',
    )


def _warn_of_left_out(data: Dataset, recipe: Recipe) -> None:
    """Says if the last batch, which is not full and left out, is a large part of the dataset."""
    if data.content.mixed or recipe.crop.budget is not None or recipe.crop.is_per_part:
        return
    world_size = recipe.ranks.world_size
    global_batch_size = recipe.batch_size * world_size
    num_left_out = len(data) % global_batch_size
    if num_left_out < _LARGE_SHARE * len(data) or len(data) < global_batch_size:
        return
    ranks = ""
    if world_size > 1:
        ranks = f" ({recipe.batch_size} on each of {world_size} ranks: batch_size= is that of a rank)"
    batches = format_count(len(data) // global_batch_size, "full batch")
    warn_once(
        f"left out {data.path}",
        f"an epoch of {data.path} has {batches} of {global_batch_size}{ranks}, and leaves out "
        f"{num_left_out:,} of {format_count(len(data), 'sample')}, different ones in each epoch. Pass a smaller "
        "batch_size, or drop_last=False",
    )


def _path_of_share(data: Dataset, share: int) -> Place:
    """The dataset that the first sample of a share is stored in."""
    content = data.content
    first = np.array([content.starts[share]], dtype=np.int64)
    part = int(data.index.part_of(content.numbers(first))[0])
    return data.stored[part].index.path


def _warn_of_few_batches(data: Dataset, recipe: Recipe, epoch_size: int) -> None:
    global_batch_size = recipe.batch_size * recipe.ranks.world_size
    batches = format_count(num_batches(recipe), "batch")
    # A number of steps, as other trainers ask for it.
    batches_of_all = {
        len(data) // global_batch_size,
        math.ceil(len(data) / global_batch_size),
    }
    if global_batch_size > 1 and epoch_size in batches_of_all:
        warn_once(
            f"epoch_size={epoch_size}",
            f"epoch_size={epoch_size} counts samples, and {data.path} has so many batches of "
            f"{global_batch_size}: an epoch has {batches}. For an epoch of all samples leave epoch_size out",
        )
        return
    is_whole = epoch_size % global_batch_size == 0
    is_long = (
        epoch_size >= _FEW_BATCHES * global_batch_size
        and epoch_size >= _SMALL_SHARE * len(data)
    )
    if is_whole or is_long or epoch_size >= len(data):
        return
    warn_once(
        f"epoch_size={epoch_size}",
        f"epoch_size={epoch_size} counts samples, not batches: an epoch has {batches} of "
        f"{global_batch_size}. For {format_count(epoch_size, 'batch')}: "
        f"epoch_size={epoch_size * global_batch_size}",
    )
