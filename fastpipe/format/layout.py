"""The bytes of a packed dataset: file names, index records and format version; docs/format.md explains them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

DATASET_FORMAT = "fastpipe-dataset"
DATASET_VERSION = 4

# How images are stored: the ending of their members.
JPEG_STORAGE, COEFFICIENTS_STORAGE = "jpeg", "coefficients"
PICTURE_ENDINGS = {JPEG_STORAGE: "jpg", COEFFICIENTS_STORAGE: "fpc"}

DATASET_FILE = "dataset.json"
INDEX_FILE = "index.npy"
REJECTED_FILE = "rejected.jsonl"
WORK_FOLDER = ".pack"  # what an unfinished pack has made; gone when the dataset is whole

# One record a sample, in shard order: 52 bytes, packed, little-endian.
INDEX_DTYPE = np.dtype(
    [
        ("shard", "<u4"),  # number of the shard
        ("offset", "<u8"),  # of the image's first byte in the shard, in bytes
        ("size", "<u4"),  # of the image, in bytes
        ("width", "<u2"),  # of the picture, in pixels
        ("height", "<u2"),
        ("label", "<i8"),  # position in dataset.json's list of classes; NO_LABEL: none
        ("xxh3_64", "<u8"),  # XXH3-64 of the image's bytes, seed 0
        ("identity", "<u8"),  # of the source's picture: identity.py
        ("key", "<u8"),  # XXH3-64 of the path of the source
    ]
)

MAX_SAMPLE_BYTES = 2**32 - 1
NO_LABEL = -1
MOST_CLASSES = 1_000_000  # the largest label makes the list of classes in dataset.json as long as it is


def storage_of(info: Mapping[str, Any]) -> str:
    """How a dataset's images are stored, from the content of its dataset.json.

    Raises:
        KeyError, ValueError: it says neither "jpeg" nor "coefficients".
    """
    said = info["storage"]
    if said not in PICTURE_ENDINGS:
        raise ValueError(f"storage: expected one of {', '.join(PICTURE_ENDINGS)}, got {said!r}")
    return str(said)


def shard_name(number: int) -> str:
    """The file name of a shard; sorts in shard order up to a million shards."""
    return f"shard-{number:06d}.tar"


def sample_key(sample: int) -> str:
    """The WebDataset key of a sample: its number in the dataset, ten digits or more."""
    return f"{sample:010d}"
