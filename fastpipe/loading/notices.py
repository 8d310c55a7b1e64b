"""What a new loader's user should know about the machine and the data -> warnings, each once."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Collection

import numpy as np
import torch

from fastpipe.arrays import Records
from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.fields import MIXING_FIELDS
from fastpipe.dataset.format.fields import CLASS_KINDS
from fastpipe.dataset.format.folder import Url
from fastpipe.dataset.format.index import Index
from fastpipe.errors import format_count
from fastpipe.loading.ranks import ranks_per_node
from fastpipe.machine import binding
from fastpipe.pages import name_page
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.native import Native
from fastpipe.plan.partition import Ranks
from fastpipe.plan.spread import spread
from fastpipe.plan.whole_images import WholeImages
from fastpipe.warnings_once import is_known, warn_once

_LOG = logging.getLogger("fastpipe")
_SMALL_AREA = 32 * 32  # fewer pixels than any image that people train on
_LARGEST_SIDE = 4096  # an area up to this one may be the side of images
# Images of so many times an area lose three quarters of each side: then the area is rather a side.
_MUCH_LARGER = 16
_NUM_RECORDS_READ = 64
# Two shapes are the same if their ratios differ by less.
_SAME_SHAPE = 0.02
_NEARLY_ALL = 0.95  # of the images
_MUCH_ENLARGED = 2  # times as many pixels a side
_LEAST_LIST = 8  # samples


def warn_shared_by_nodes(index: Index, ranks: Ranks, partition: str | int) -> None:
    """Says on one rank if every node will fetch the whole of a remote dataset."""
    if not isinstance(index.path, Url):
        return
    nodes = ranks.world_size // ranks_per_node(ranks)
    if partition != "sample" or nodes == 1 or ranks.rank != 0:
        return
    size_gb = int(index.shard_sizes.sum()) / 1e9
    _LOG.warning(
        f'{index.path} is read by {nodes} nodes with partition="sample": over the epochs each of '
        f"them fetches the whole dataset, {size_gb:,.1f} GB, into a cache of its own. If each is "
        'to fetch its part only: fastpipe.loader(..., partition="node")'
    )


def warn_one_thread(cpus: int) -> None:
    """Says that num_workers=0 means one thread."""
    if is_known("num_workers=0") or cpus == 1:
        return
    warn_once(
        "num_workers=0",
        "num_workers=0: one thread decodes, beside the training loop. Workers are threads of this "
        "process, so there is no need for 0: leave num_workers out for as many threads as CPUs are "
        f"granted, {cpus}",
    )


def warn_bound_process() -> None:
    """Says if OpenMP has bound this process to one CPU, so that decoding has one CPU."""
    if not binding.is_started_bound():
        return
    variable = binding.variable()
    name = variable.partition("=")[0]
    warn_once(
        f"bound by {variable}",
        f"this process was started with one CPU of {os.cpu_count() or 1}, and {variable} is set: "
        "OpenMP binds the main thread of a program that imports torch, such as torchrun, to one "
        "CPU, and all that it starts has no more. So decoding has one CPU. Unset the variable, or "
        f"set {name}=false, before the program starts",
    )


def warn_unpacked(index: Index) -> None:
    """Says that a source is not packed, and what packing would change."""
    warning = f"not packed {index.fingerprint}"
    if index.packed or is_known(warning):
        return
    text = f"{index.path} is not packed: its {len(index):,} images are read where they lie."
    converted = int(index.counts["converted"])
    if converted:
        are_none = f"{converted:,} of them are no baseline JPEGs or PNGs, so they are"
        if converted == 1:
            are_none = "1 of them is no baseline JPEG or PNG, so it is"
        text += (
            f" {are_none} converted again in each epoch, which takes several times as long as "
            "decoding."
        )
    warn_once(
        warning,
        f"{text} `fastpipe pack` stores all of them once, so that a loader decodes only the part "
        "of an image that it needs, reads the disk in large pieces, and checks the bytes; "
        f"{name_page('unpacked')} compares them",
    )


def warn_no_labels(data: Dataset) -> None:
    """Says that batches of (images, labels) have no labels, where fields have classes."""
    if data.classes or is_known("no labels"):
        return
    names = [field.name for field in data.fields.values() if field.kind in CLASS_KINDS]
    if not names:
        return
    listed = ["image", *names]
    warn_once(
        "no labels",
        f"{data.path}: no sample has a label, so all labels of a batch are -1. The classes are in "
        f"fields: pass fields={listed} to fastpipe.loader",
    )


def warn_some_without_label(data: Dataset) -> None:
    """Says that some samples have no label, where others have one."""
    warning = f"some labels {data.path}"
    if not data.classes or is_known(warning):
        return
    # The counts of chosen samples are read from the labels, which takes seconds of a large dataset.
    is_complete = sum(data.index.class_counts) == len(data.index)
    if is_complete:
        return
    num_labelled = sum(data.class_counts)
    num_missing = len(data) - num_labelled
    if not num_missing:
        return
    verb = "has" if num_missing == 1 else "have"
    warn_once(
        warning,
        f"{data.path}: {num_missing:,} of {format_count(len(data), 'sample')} {verb} no label, which is -1 "
        "in a batch. A loss takes it for a class that does not exist: pass it ignore_index=-1, or leave "
        "these samples out: data.select(lambda columns: columns['label'] >= 0)",
    )


def warn_mixed_without_shares(names: Collection[str]) -> None:
    """Says if batches of these fields have mixed images, and nothing that says of which."""
    if "image" not in names or is_known("mixed without shares"):
        return
    if not {"label", *MIXING_FIELDS}.isdisjoint(names):
        return
    warn_once(
        "mixed without shares",
        "augment= mixes the images of fields=, and no field says with which image, and how much: add "
        '"label", which is mixed alike, or "mix_index" and "mix_lam" for targets of your own',
    )


def warn_small_area(data: Dataset, whole_images: WholeImages | None) -> None:
    """Says if a number of pixels of whole images looks like a side."""
    if isinstance(whole_images, Buckets):
        options = "Buckets(area="
        area = whole_images.area
    elif isinstance(whole_images, Native):
        options = "Native(max_pixels="
        area = whole_images.max_pixels
    else:
        return
    if area is None or area > _LARGEST_SIDE or is_known("area"):
        return
    if area >= _SMALL_AREA and _usual_area(data) < _MUCH_LARGER * area:
        return
    side = math.isqrt(area)
    option = options.partition("(")[2]
    warn_once(
        "area",
        f"{options}{area}): images get about {area} pixels, such as {side} x {side}. For images "
        f"of about {area} x {area} pass {option}{area} * {area}",
    )


def warn_swapped_size(data: Dataset, size: object) -> None:
    """Says if (width, height) was passed as the size, of images that all have about this shape.

    Libraries of pictures have sizes as (width, height), and those of tensors as (height, width).
    """
    if not isinstance(size, tuple) or len(size) != 2 or is_known("swapped size"):
        return
    first, second = size
    if first == second:
        return
    records = _some_records(data)
    widths = records["width"].astype(np.float64)
    heights = records["height"].astype(np.float64)
    # As shares, so that images of other sizes and of one shape are compared, too.
    is_like = np.abs(widths * second - heights * first) <= _SAME_SHAPE * heights * first
    # Rows that are high, of images that are wide, or the other way round.
    is_turned = (widths - heights) * (second - first) < 0
    if max(is_like.mean(), is_turned.mean()) < _NEARLY_ALL:
        return
    warn_once(
        "swapped size",
        f"size={size} is (height, width), and images of {data.path} are {int(widths[0])} wide and "
        f"{int(heights[0])} high, or similar: rows are {second} wide and {first} high. For rows that are "
        f"{first} wide and {second} high pass size=({second}, {first})",
    )


def warn_small_images(data: Dataset, size: int) -> None:
    """Says if the default size enlarges nearly all images of a dataset several times."""
    records = _some_records(data)
    longer_sides = np.maximum(records["width"], records["height"]).astype(np.int64)
    usual_side = int(np.quantile(longer_sides, _NEARLY_ALL))
    if not usual_side or usual_side * _MUCH_ENLARGED > size:
        return
    warn_once(
        f"small images {data.path}",
        f"nearly all images of {data.path} have at most {usual_side} pixels a side, and rows are "
        f"{size} x {size}, the default: images are enlarged, and a step takes as long as with large ones. "
        f"Pass size={usual_side} for their own size, or size={size} if you mean it",
    )


def warn_shrunk_images(data: Dataset, height_width: tuple[int, int]) -> None:
    """Says if packing has made all images smaller than the rows of a batch."""
    max_size = data.index.max_size
    height, width = height_width
    if max_size is None or max_size >= max(height, width):
        return
    warn_once(
        f"shrunk images {data.path}",
        f"{data.path} was packed with max_size={max_size}, so no side of an image is longer, and rows are "
        f"{width} wide and {height} high: all images are enlarged again. Pass a smaller size=, or pack "
        "the images with a larger max_size",
    )


def warn_ordered_list(sampler: object, *, train: bool, shuffle: bool | None) -> None:
    """Says if a list of samples for training is sorted: the loader keeps the order of a list."""
    is_list = isinstance(sampler, (list, tuple, range, np.ndarray, torch.Tensor))
    if not train or shuffle is not None or not is_list or is_known("ordered list"):
        return
    numbers = np.asarray(sampler)
    if (
        numbers.ndim != 1
        or len(numbers) < _LEAST_LIST
        or not (np.diff(numbers) > 0).all()
    ):
        return
    warn_once(
        "ordered list",
        "sampler= is a sorted list of samples, and a list is also their order: each epoch has the same "
        "one, and nothing is shuffled. To train on these samples in a random order: "
        "fastpipe.loader(data.select(numbers), ...); to keep the order: shuffle=False",
    )


def _some_records(data: Dataset) -> Records:
    """The records of samples that lie evenly in the dataset."""
    ids = np.array(spread(len(data), _NUM_RECORDS_READ), dtype=np.int64)
    return data.content.records_of(ids)


def _usual_area(data: Dataset) -> float:
    """The pixels of an image as most are, of some that lie evenly in the dataset."""
    records = _some_records(data)
    return float(np.median(records["width"].astype(np.int64) * records["height"]))
