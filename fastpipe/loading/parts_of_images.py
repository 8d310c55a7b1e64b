"""The parts of images as the rows of an epoch: the patches of a Grid, or the objects of CropAt."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastpipe.arrays import Int64s
from fastpipe.dataset.column_values import spans
from fastpipe.dataset.format.pixel_form import has_images
from fastpipe.errors import ConfigError
from fastpipe.loading.samplers import Sampling
from fastpipe.plan.crops import CropAt, Grid
from fastpipe.plan.option_conflicts import conflict_error
from fastpipe.plan.picks import PartsOfImages
from fastpipe.plan.picture_sizes import picture_sizes
from fastpipe.plan.recipe import Recipe


def sampling_of_parts(recipe: Recipe, options: dict[str, Any]) -> Sampling:
    """The parts of all images of a recipe whose crop is a Grid or CropAt.

    Args:
        recipe: checked, without ranks.
        options: arguments of the loader, by name.

    Raises:
        ConfigError: an option says otherwise which rows an epoch has, or there are no objects.
    """
    crop = recipe.crop
    identity: dict[str, Any] = {}
    if isinstance(crop, Grid):
        steps = crop.steps(recipe.size)
        identity["grid"] = [*recipe.size, *steps]
    elif isinstance(crop, CropAt):
        identity["crop_at"] = crop.name
    _refuse_other_orders(recipe, options)

    content = recipe.content
    counts = np.empty(len(content), dtype=np.int32)
    for places in spans(len(content)):
        ids = places
        if recipe.shuffle:
            ids = content.ids_at(places)  # in the reading order
        counts[places] = _count_parts(recipe, ids)
    if isinstance(crop, CropAt) and not counts.any():
        raise ConfigError(
            f"crop: CropAt({crop.name!r}) needs boxes, and none of the {len(content):,} samples of "
            f"{content.index.path} has any, so an epoch would have no row. Pass another field of "
            "boxes, other samples or another crop="
        )
    return Sampling(picks=(PartsOfImages(counts),), identity=identity)


def _refuse_other_orders(recipe: Recipe, options: dict[str, Any]) -> None:
    """Raises ConfigError for an option that says otherwise which rows an epoch has."""
    for name in ("sampler", "epoch_size"):
        if options[name] is not None:
            raise conflict_error("parts + order", f"{name}={options[name]!r}")
    if options["partition"] != "sample":
        raise conflict_error("parts + order", f"partition={options['partition']!r}")
    if recipe.content.mixed:
        raise conflict_error("parts + order", "fastpipe.mix(...)")
    if recipe.sizes is not None:
        raise conflict_error("parts + other crops", "several sizes")
    if options["on_error"] == "replace":
        raise conflict_error("parts + replace")


def _count_parts(recipe: Recipe, ids: Int64s) -> Int64s:
    """(n,) how many parts the images of samples have."""
    crop = recipe.crop
    if isinstance(crop, CropAt):
        objects = recipe.objects[crop.name].take(ids)
        object_counts: Int64s = np.diff(objects.offsets)
        return object_counts
    assert isinstance(crop, Grid)
    records = recipe.content.records_of(ids)
    columns_and_rows = crop.counts(picture_sizes(records), recipe.size)
    patch_counts = columns_and_rows.prod(axis=1)
    # A sample without an image has one row of zeros.
    return np.where(has_images(records), patch_counts, 1)
