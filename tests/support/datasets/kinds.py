"""A dataset in each of the ways in which fastpipe makes one of others, and all that it tells of itself.

A module of its own, because a program that gets a pickle of them has to find it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.pictures.drawn import FLAT_IMAGES
from support.sources.unpacked_sources import web_tars

import fastpipe

NUMBERS = np.arange(FLAT_IMAGES)
Make = Callable[[fastpipe.Dataset, fastpipe.Dataset, Path], fastpipe.Dataset]


class Brightness:
    """A transform whose name is the same in all processes."""

    def __call__(self, image: torch.Tensor) -> float:
        return float(image.float().mean())

    def __repr__(self) -> str:
        return "Brightness()"


def file_of(folder: Path, values: Any) -> Path:
    np.save(folder / "values.npy", values)
    return folder / "values.npy"


# (data, another dataset, a folder) -> a dataset.
KINDS: dict[str, Make] = {
    "open": lambda data, other, folder: data,
    "select": lambda data, other, folder: data.select([30, 2, 7]),
    "select twice": lambda data, other, folder: data.select(lambda c: c["width"] > 30).select(
        [3, 1, 2]
    ),
    "only": lambda data, other, folder: data.only(["cow", "ant"]),
    "only, labels kept": lambda data, other, folder: data.only(["cow"], keep_labels=True),
    "take": lambda data, other, folder: data.take(0.5),
    "fold": lambda data, other, folder: data.fold(1, of=3)[0],
    "column": lambda data, other, folder: data.with_column("score", NUMBERS / 7),
    "column of texts": lambda data, other, folder: data.with_column(
        "note", [f"ü {each}" for each in NUMBERS]
    ),
    "column of a file": lambda data, other, folder: data.with_column(
        "score", file_of(folder, NUMBERS / 7)
    ).take(0.7),
    "labels": lambda data, other, folder: data.with_labels(NUMBERS % 2),
    "labels by name": lambda data, other, folder: data.with_labels(
        [f"c{each % 4}" for each in NUMBERS]
    ).only(["c3", "c0"]),
    "labels of a file": lambda data, other, folder: data.with_labels(file_of(folder, NUMBERS % 3)),
    "concat": lambda data, other, folder: fastpipe.concat(data, other),
    "concat of all that": lambda data, other, folder: fastpipe.concat(
        data.with_labels(NUMBERS % 2).with_column("score", NUMBERS).select([5, 3]),
        other.with_column("score", np.zeros(len(other))).only(other.classes[:1]),
        labels="offset",
    ),
    "mix": lambda data, other, folder: fastpipe.mix(
        {data.take(0.5): 0.7, other: 0.3}, labels="own"
    ),
    "transform": lambda data, other, folder: data.with_transform(Brightness()),
    "pixels": lambda data, other, folder: data.with_pixels("rgba", torch.uint16),
    "cropped": lambda data, other, folder: data.cropped(fastpipe.Resize(), size=24, hflip=1.0),
    "fields": lambda data, other, folder: data.with_fields(
        {"at": "boxes", "text": "caption", "pixels": "image"}
    ),
    "all": lambda data, other, folder: (
        data.with_column("score", NUMBERS)
        .with_fields(["image", "score", "boxes"])
        .cropped(fastpipe.CenterCrop(resize=30), size=24)
        .with_transform(len)
        .select([6, 2])
    ),
    "not packed": lambda data, other, folder: fastpipe.open(web_tars(folder / "tars")).take(0.5),
}


def plain(sample: Any) -> Any:
    """Without the kinds of torchvision, which a program may lack."""
    if not isinstance(sample, dict):
        return sample
    tensors = {name: each for name, each in sample.items() if isinstance(each, torch.Tensor)}
    return {**sample, **{name: each.as_subclass(torch.Tensor) for name, each in tensors.items()}}


def told(data: fastpipe.Dataset) -> dict[str, Any]:
    """All that a dataset tells of itself, and its samples."""
    names = [name for name in data.columns if name not in ("boxes", "plain", "joints", "tags")]
    return {
        "repr": repr(data),
        "classes": (data.classes, data.class_counts, data.targets.tolist()),
        "columns": {name: data[name].tolist() for name in names},
        "samples": [repr(plain(data[number])) for number in (0, len(data) // 2, -1)],
        "content": (data.content.starts.tolist(), data.content.weights, data.content.identity),
    }
