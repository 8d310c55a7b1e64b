"""The bytes of a packed dataset: file names, index records and format version (docs/explanation/format.md)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fastpipe.arrays import Records

DATASET_FORMAT = "fastpipe-dataset"
# `pack` writes this version. docs/stability.md promises that each later fastpipe reads it without
# packing again. Whoever changes the bytes raises it: CONTRIBUTING.md, "A new format version".
FORMAT_VERSION = 1
# A number that a release has written stays here.
READABLE_VERSIONS = (1,)

# How JPEGs are stored.
JPEG_STORAGE = "jpeg"
COEFFICIENTS_STORAGE = "coefficients"
# The endings of images, by how JPEGs are stored.
PICTURE_ENDINGS = {
    JPEG_STORAGE: ("jpg", "png", "tif"),
    COEFFICIENTS_STORAGE: ("fpc", "png", "tif"),
}

DATASET_FILE = "dataset.json"
INDEX_FILE = "index.npy"
REJECTED_FILE = "rejected.jsonl"
SOURCES_FILE = "sources.npy"
# Holds the files of an unfinished pack; a finished dataset has none.
WORK_FOLDER = ".pack"
LOCK_FILE = "lock"  # in the work folder, locked by the program that writes there

# One record a sample, in shard order: 54 bytes, packed, little-endian.
INDEX_DTYPE = np.dtype(
    [
        ("shard", "<u4"),  # position in dataset.json's list of shards
        ("offset", "<u8"),  # of the image's first byte in the shard, in bytes
        ("size", "<u4"),  # of the image, in bytes
        ("width", "<u2"),  # of the picture, in pixels
        ("height", "<u2"),
        ("channels", "u1"),
        ("bits", "u1"),  # of each channel: pixel_form.py
        ("label", "<i8"),  # position in dataset.json's list of classes; NO_LABEL: none
        ("xxh3_64", "<u8"),  # XXH3-64 of the image's bytes, seed 0
        ("identity", "<u8"),  # of the source's picture: sample_layout.identity_of
        ("key", "<u8"),  # XXH3-64 of the path of the source
    ]
)

# The same for a dataset that has a picture with a longer side than MAX_NARROW_SIDE: 58 bytes.
_WIDE = {"width": "<u4", "height": "<u4"}
WIDE_INDEX_DTYPE = np.dtype(
    [(name, _WIDE.get(name, INDEX_DTYPE[name])) for name in INDEX_DTYPE.names or ()]
)
MAX_NARROW_SIDE = 65_535

# The columns that the header of an image states.
PICTURE = ("width", "height", "channels", "bits")
WITHOUT_HASHES = ("shard", "offset", "size", *PICTURE, "label")

# One record a sample, in the same order. `fastpipe add` and `remove` need it; loaders do not.
SOURCES_DTYPE = np.dtype(
    [
        ("bytes", "<u8"),  # size of the source's file
        # Size of the image as a JPEG, whatever its storage; of a PNG its size.
        ("jpeg_bytes", "<u4"),
    ]
)

MAX_SAMPLE_BYTES = 2**32 - 1
NO_LABEL = -1
# dataset.json lists the classes up to the largest label, so a huge label would make a huge file.
MAX_CLASSES = 1_000_000


def index_dtype(*, is_wide: bool) -> np.dtype[Any]:
    """The type of index records; `is_wide`: the dataset has a side above MAX_NARROW_SIDE."""
    return WIDE_INDEX_DTYPE if is_wide else INDEX_DTYPE


def needs_wide_index(records: Records) -> bool:
    """Whether a picture has a side above MAX_NARROW_SIDE."""
    if not len(records):
        return False
    longest_side = max(records["width"].max(), records["height"].max())
    return bool(longest_side > MAX_NARROW_SIDE)


def shard_name(number: int) -> str:
    """The file name of a shard. Names sort in shard order up to a million shards."""
    return f"shard-{number:06d}.tar"


def version_folder(version: int) -> str:
    """The folder of a version's index and columns, with "/" at its end.

    It is "" for version 1, whose files lie beside the shards.
    """
    return "" if version == 1 else f"v{version}/"


def shard_number(name: str) -> int:
    """The number in a shard's file name; -1 if the name is not that of a shard."""
    match = re.fullmatch(r"shard-(\d{6,})\.tar", name)
    return int(match[1]) if match else -1
