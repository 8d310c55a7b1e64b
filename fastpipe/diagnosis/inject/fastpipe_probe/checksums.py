"""A sample or a batch -> its size, its name, and a checksum of its content."""

from __future__ import annotations

import contextlib
import os
import zlib
from itertools import islice
from typing import Any

from .objects import PLAIN_TYPES, walk

_MAX_PARTS = 4
_MAX_LETTERS = 65536
_MAX_NUMBERS = 8192  # of each array
_MAX_SUBSETS = 4
# The attributes in which datasets usually list their files.
_FILE_LISTS = (
    "samples",
    "imgs",
    "files",
    "paths",
    "filenames",
    "image_paths",
    "images",
)


def count_batch_bytes(batch: Any) -> int:
    """Adds up the bytes of the tensors and arrays of a batch."""
    total_bytes = 0
    for _, value in walk(batch, ""):
        size_bytes = getattr(value, "nbytes", None)
        if isinstance(size_bytes, int):
            total_bytes += size_bytes
    return total_bytes


def checksum_parts(sample: Any) -> list[int]:
    """The checksum of a sample, then of its first parts.

    Augmentation changes the image each time, and its name or number stays.
    """
    parts: Any = ()
    if isinstance(sample, dict):
        parts = sample.values()
    elif isinstance(sample, (list, tuple)):
        parts = sample
    return [checksum(sample), *(checksum(part) for part in islice(parts, _MAX_PARTS))]


def checksum(sample: Any) -> int:
    """A checksum of a sample's numbers and letters, at most 64 kB of each array."""
    total = 0
    for path, value in walk(sample, "", with_plain=True):
        kind = f"{path} {type(value).__name__}"
        total = zlib.crc32(kind.encode("utf-8", "replace"), total)
        if isinstance(value, PLAIN_TYPES):
            text = repr(value)[:_MAX_LETTERS]
            total = zlib.crc32(text.encode("utf-8", "replace"), total)
        elif hasattr(value, "nbytes"):
            array = value
            if hasattr(value, "detach"):
                array = value.detach().cpu().numpy()
            numbers = array.reshape(-1)[:_MAX_NUMBERS]
            total = zlib.crc32(numbers.tobytes(), total)
    return total


def find_sample_name(dataset: Any, index: Any, depth: int = _MAX_SUBSETS) -> str:
    """Finds the file of a sample, if the dataset lists its files in a usual attribute; else ""."""
    with contextlib.suppress(Exception):
        if depth and hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
            # A Subset.
            return find_sample_name(dataset.dataset, dataset.indices[index], depth - 1)
        for attribute in _FILE_LISTS:
            files = getattr(dataset, "__dict__", {}).get(attribute)
            if not isinstance(files, (list, tuple)):
                continue
            file = files[index]
            if isinstance(file, (list, tuple)):  # as ImageFolder's: file, class
                file = file[0]
            if isinstance(file, (str, os.PathLike)):
                return str(file)[:300]
    return ""
