"""The bytes of a packed dataset: file names, index records and format version; docs/format.md explains them."""

from __future__ import annotations

import numpy as np

DATASET_FORMAT = "fastpipe-dataset"
DATASET_VERSION = 1
FIELDS_VERSION = 2  # of datasets with fields, or with samples that have no label

DATASET_FILE = "dataset.json"
INDEX_FILE = "index.npy"
REJECTED_FILE = "rejected.jsonl"
WORK_FOLDER = ".pack"  # what an unfinished pack has made; gone when the dataset is whole

# One record a sample, in shard order: 36 bytes, packed, little-endian.
INDEX_DTYPE = np.dtype(
    [
        ("shard", "<u4"),  # number of the shard
        ("offset", "<u8"),  # of the JPEG's first byte in the shard, in bytes
        ("size", "<u4"),  # of the JPEG, in bytes
        ("width", "<u2"),  # of the picture, in pixels
        ("height", "<u2"),
        ("label", "<i8"),  # position in dataset.json's list of classes; NO_LABEL in version 2: none
        ("xxh3_64", "<u8"),  # XXH3-64 of the JPEG's bytes, seed 0
    ]
)

MAX_SAMPLE_BYTES = 2**32 - 1
NO_LABEL = -1
MOST_CLASSES = 1_000_000  # the largest label makes the list of classes in dataset.json as long as it is


def shard_name(number: int) -> str:
    """The file name of a shard; sorts in shard order up to a million shards."""
    return f"shard-{number:06d}.tar"


def sample_key(sample: int) -> str:
    """The WebDataset key of a sample: its number in the dataset, ten digits or more."""
    return f"{sample:010d}"
