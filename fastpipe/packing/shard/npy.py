"""Values in pieces -> .npy files, which may be larger than memory, and their hashes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
import xxhash

from fastpipe.packing.fields.stored import LENGTHS, Column


def write_column(
    file: BinaryIO,
    column: Column,
    parts: Iterable[bytes],
    size_bytes: int,
    samples: int,
) -> str:
    """Writes one file of DST/fields; returns the XXH3-64 of the file in hex.

    `parts` has `size_bytes` of values. For the offsets of a field it has the lengths of the values,
    as int64.
    """
    if column.part == LENGTHS:
        count = samples + 1
        parts = _offsets_of(parts)
    else:
        num_values = int(np.prod(column.width, dtype=np.int64))
        value_bytes = column.dtype.itemsize * num_values
        count = size_bytes // value_bytes if value_bytes else 0
    _, file_hash = write_npy(file, column.dtype, count, parts, column.width)
    return file_hash


def write_npy(
    file: BinaryIO,
    dtype: np.dtype[Any],
    count: int,
    parts: Iterable[bytes],
    width: tuple[int, ...] = (),
) -> tuple[str, str]:
    """Writes (count, *width) values; the XXH3-64 of the values, and of the file, in hex."""
    header = io.BytesIO()
    described = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": (count, *width),
    }
    np.lib.format.write_array_header_1_0(header, described)
    file.write(header.getvalue())
    values_hash = xxhash.xxh3_64()
    file_hash = xxhash.xxh3_64(header.getvalue())
    for data in parts:
        values_hash.update(data)
        file_hash.update(data)
        file.write(data)
    return values_hash.hexdigest(), file_hash.hexdigest()


def _offsets_of(lengths: Iterable[bytes]) -> Iterator[bytes]:
    """Lengths as int64, in pieces -> the offsets of all values, and the end of the last one."""
    total = 0
    yield total.to_bytes(8, "little")
    for data in lengths:
        ends = total + np.cumsum(np.frombuffer(data, "<i8"))
        total = int(ends[-1])
        yield ends.tobytes()
