"""The patches of a Grid as the rows of an epoch."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastpipe.dataset.format.pixel_form import has_images
from fastpipe.loading.samplers import Sampling
from fastpipe.plan.crops import Grid
from fastpipe.plan.option_conflicts import conflict_error
from fastpipe.plan.picks import GridPatches
from fastpipe.plan.picture_sizes import picture_sizes
from fastpipe.plan.recipe import Recipe

_SAMPLES_AT_ONCE = 1 << 20


def sampling_of_grid(recipe: Recipe, options: dict[str, Any]) -> Sampling:
    """The patches of all images of a recipe whose crop is a Grid.

    Args:
        recipe: checked, without ranks.
        options: arguments of the loader, by name.

    Raises:
        ConfigError: an option that says otherwise which rows an epoch has.
    """
    grid = recipe.crop
    assert isinstance(grid, Grid)
    steps = grid.steps(recipe.size)
    content = recipe.content
    for name in ("sampler", "epoch_size"):
        if options[name] is not None:
            raise conflict_error("grid + order", f"{name}={options[name]!r}")
    if options["partition"] != "sample":
        raise conflict_error("grid + order", f"partition={options['partition']!r}")
    if content.mixed:
        raise conflict_error("grid + order", "fastpipe.mix(...)")
    if recipe.sizes is not None:
        raise conflict_error("grid + other crops", "several sizes")
    if options["on_error"] == "replace":
        raise conflict_error("grid + replace")

    counts = np.empty(len(content), dtype=np.int32)
    for start in range(0, len(content), _SAMPLES_AT_ONCE):
        stop = min(start + _SAMPLES_AT_ONCE, len(content))
        ids = np.arange(start, stop, dtype=np.int64)
        if recipe.shuffle:
            ids = content.ids_at(ids)  # in the reading order
        records = content.records_of(ids)
        columns_and_rows = grid.counts(picture_sizes(records), recipe.size)
        patch_counts = columns_and_rows.prod(axis=1)
        # A sample without an image has one row of zeros.
        counts[start:stop] = np.where(has_images(records), patch_counts, 1)
    identity = {"grid": [*recipe.size, *steps]}
    return Sampling(picks=(GridPatches(counts),), identity=identity)
