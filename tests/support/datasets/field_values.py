"""Samples with a value of every kind, for the tests of fields; and what a packed dataset's columns hold."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from support.sources.pack_sources import jpeg_bytes

from fastpipe.dataset.format.fields import FIELDS_FOLDER, member_ending
from fastpipe.dataset.format.packed_index import PackedIndex

FIELDS = {
    "score": "int",
    "embedding": "floats",
    "tags": "classes",
    "caption": "text",
    "meta": "json",
    "raw": "bytes",
    "boxes": "boxes",
    "pose": "keypoints",
    "seg": "mask",
    "depth": "mask",
    "second": "image",
    "latent": "array",
    "tokens": "array",
    "pages": "images",
    "relief": "map",
}


def sample(
    number: int, size: tuple[int, int] = (70, 45), jpeg: bytes | None = None
) -> dict[str, Any]:
    """The arguments of `Writer.add` for one sample; every third one lacks all that may be missing."""
    width, height = size
    rng = np.random.default_rng([number, width, height])
    corners = rng.random((number % 4, 2, 2)) * size
    found: dict[str, Any] = {
        "image": jpeg_bytes(size, seed=number) if jpeg is None else jpeg,
        "label": number % 3,
        "key": f"sample-{number}",
        "score": number * 10**12 - 5,
        "embedding": rng.normal(size=7),
        "latent": np.random.default_rng(number).normal(size=(3, 4, 5)).astype(np.float16),
        "relief": np.random.default_rng(number).random(
            (-(-height // 2), -(-width // 2)), np.float32
        ),
        "tokens": np.arange(number % 4 * 6, dtype=np.int32).reshape(-1, 6) - number,
    }
    if number % 3 == 2:
        return found
    return {
        **found,
        "tags": [f"tag {each}" for each in range(number % 5)],
        "caption": f"größer {number} \U0001f600\n",
        "meta": {"n": number, "deep": [1.5, None, {"é": True}]},
        "raw": rng.bytes(number * 3),
        "boxes": {
            "boxes": np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1),
            "labels": rng.integers(0, 90, number % 4),
        },
        "pose": rng.random((number % 3, 5, 3)) * (width, height, 2),
        "seg": rng.integers(0, 256, (height, width), dtype=np.uint8),
        "depth": rng.integers(0, 65536, (height, width), dtype=np.uint16),
        "second": jpeg_bytes(size, seed=1000 + number),
        "pages": [jpeg_bytes((30 + 9 * page, 50), seed=page) for page in range(number % 4)],
    }


def column(dataset: Path, name: str) -> NDArray[Any]:
    """A sidecar file."""
    return np.load(dataset / FIELDS_FOLDER / f"{name}.npy", allow_pickle=False)


def rows(dataset: Path, values: str, offsets: str) -> list[NDArray[Any]]:
    """The values of each sample, of a column with offsets."""
    bounds = column(dataset, offsets).tolist()
    flat = column(dataset, values)
    assert bounds[0] == 0
    assert bounds[-1] == len(flat)
    return [flat[start:stop] for start, stop in itertools.pairwise(bounds)]


def stored_files(dataset: Path, name: str) -> list[bytes | None]:
    """The files of a mask or image, as the column's records say; None: the sample has none."""
    index = PackedIndex(dataset)
    found: list[bytes | None] = []
    for record, place in zip(column(dataset, name), index.records, strict=True):
        data = index.shards[int(place["shard"])].path.read_bytes()
        start, size = int(record["offset"]), int(record["size"])
        found.append(data[start : start + size] if record["format"] else None)
    return found


def notes(dataset: Path) -> Iterator[dict[str, Any]]:
    """KEY.json of each sample."""
    import tarfile

    for shard in PackedIndex(dataset).shards:
        with tarfile.open(shard.path) as tar:
            for each in tar:
                if each.name.split(".", 1)[1] == "json":
                    yield json.loads(tar.extractfile(each).read())  # type: ignore[union-attr]


def opened(data: bytes) -> NDArray[Any]:
    """The pixels of an image file, as they are."""
    return np.asarray(Image.open(io.BytesIO(data)))


def endings(dataset: Path) -> set[str]:
    """Of the members that fields may have."""
    return {
        str(member_ending(field))
        for field in PackedIndex(dataset).fields.values()
        if member_ending(field)
    }
