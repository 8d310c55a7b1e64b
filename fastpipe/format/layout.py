"""The bytes of a packed dataset: file names, index records and format version; docs/format.md explains them."""

from __future__ import annotations

import re

import numpy as np

DATASET_FORMAT = "fastpipe-dataset"
FORMAT_VERSION = 7

# How JPEGs are stored.
JPEG_STORAGE, COEFFICIENTS_STORAGE = "jpeg", "coefficients"
# The endings of images, by how JPEGs are stored.
PICTURE_ENDINGS = {JPEG_STORAGE: ("jpg", "png"), COEFFICIENTS_STORAGE: ("fpc", "png")}

DATASET_FILE = "dataset.json"
INDEX_FILE = "index.npy"
REJECTED_FILE = "rejected.jsonl"
SOURCES_FILE = "sources.npy"
WORK_FOLDER = ".pack"  # what an unfinished pack has made; gone when the dataset is whole

# One record a sample, in shard order: 54 bytes, packed, little-endian.
INDEX_DTYPE = np.dtype(
    [
        ("shard", "<u4"),  # its place among the shards of dataset.json
        ("offset", "<u8"),  # of the image's first byte in the shard, in bytes
        ("size", "<u4"),  # of the image, in bytes
        ("width", "<u2"),  # of the picture, in pixels
        ("height", "<u2"),
        ("channels", "u1"),  # and bits of each: pixel_form.py
        ("bits", "u1"),
        ("label", "<i8"),  # position in dataset.json's list of classes; NO_LABEL: none
        ("xxh3_64", "<u8"),  # XXH3-64 of the image's bytes, seed 0
        ("identity", "<u8"),  # of the source's picture: sample_layout.identity_of
        ("key", "<u8"),  # XXH3-64 of the path of the source
    ]
)

PICTURE = ("width", "height", "channels", "bits")  # what its header says
WITHOUT_HASHES = ("shard", "offset", "size", *PICTURE, "label")

# One record a sample, in the same order: what `fastpipe add` and `remove` need, and no loader.
SOURCES_DTYPE = np.dtype(
    [
        ("bytes", "<u8"),  # size of the source's file
        ("jpeg_bytes", "<u4"),  # size of the image as a JPEG, whatever its storage; of a PNG its size
    ]
)

MAX_SAMPLE_BYTES = 2**32 - 1
NO_LABEL = -1
MOST_CLASSES = 1_000_000  # the largest label makes the list of classes in dataset.json as long as it is


def shard_name(number: int) -> str:
    """The file name of a shard; sorts in shard order up to a million shards."""
    return f"shard-{number:06d}.tar"


def version_folder(version: int) -> str:
    """The folder of a version's index and columns, with "/" behind it: those of the first lie beside the shards."""
    return "" if version == 1 else f"v{version}/"


def shard_number(name: str) -> int:
    """-1: it has none."""
    found = re.fullmatch(r"shard-(\d{6,})\.tar", name)
    return int(found[1]) if found else -1
