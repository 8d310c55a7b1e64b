"""An array -> the .npy file that a shard has of it; and what such a file says about its array.

The format is numpy's (numpy.org/doc/stable/reference/generated/numpy.lib.format.html), of version 1,
in C order and little-endian. bfloat16, which numpy does not have, is written as numbers of two bytes
without a type ("|V2"), as `ml_dtypes` and so JAX write it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.dataset.format.array_containers import is_container, only_array
from fastpipe.machine.parser import parse_again_on_system_error

BFLOAT16 = "bfloat16"
_BFLOAT16_IN_FILES = np.dtype("V2")
# The dtypes of arrays, by the names that numpy and torch have for them.
ARRAY_DTYPES = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    BFLOAT16,
    "float32",
    "float64",
)
MAX_AXES = 16
_VERSION = (1, 0)


class ArrayHeader(NamedTuple):
    """What a .npy file says about its array."""

    dtype: str  # one of ARRAY_DTYPES
    shape: tuple[int, ...]
    header_bytes: int  # before the first number


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype in which numpy holds arrays: of bfloat16 the bits, as uint16."""
    if name == BFLOAT16:
        return np.dtype("<u2")
    return np.dtype(name).newbyteorder("<")


def array_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """The size of an array's numbers."""
    return math.prod(shape) * numpy_dtype(dtype).itemsize


def describe_shape(shape: tuple[int | None, ...]) -> str:
    """A shape in words, in which None is any length: (16, any, 64)."""
    lengths = ["any" if length is None else str(length) for length in shape]
    return f"({', '.join(lengths)})"


def common_shape(shapes: Iterable[Sequence[int | None]]) -> tuple[int | None, ...]:
    """The shape of several arrays: None for an axis in which their lengths differ."""
    common = []
    for lengths in zip(*shapes, strict=True):
        is_common = len(set(lengths)) == 1
        common.append(lengths[0] if is_common else None)
    return tuple(common)


def encode_array(array: NDArray[Any]) -> bytes:
    """The file of an array; one of "V2" or of ml_dtypes' bfloat16 is bfloat16.

    Raises:
        ValueError: no such array can be stored.
    """
    dtype = _dtype_name(array.dtype)
    if array.ndim > MAX_AXES:
        raise ValueError(f"expected at most {MAX_AXES} axes, got {array.ndim}")
    values = np.ascontiguousarray(array).reshape(array.shape)
    if dtype == BFLOAT16:
        values = values.view(_BFLOAT16_IN_FILES)
    else:
        values = values.astype(numpy_dtype(dtype), copy=False)
    file = io.BytesIO()
    np.lib.format.write_array(file, values, _VERSION, allow_pickle=False)
    return file.getvalue()


def normalise_array_file(data: bytes) -> bytes:
    """A .npy file of any version, order and byte order, as a shard has it.

    Also the only array of an .npz or .safetensors file.

    Raises:
        ValueError: it is damaged, or has an array that cannot be stored.
    """
    if is_container(data):
        return encode_array(only_array(data))
    array = parse_again_on_system_error(
        lambda: np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    )
    normalised = encode_array(array)
    # Behind the numbers a file may have others: numpy writes several arrays into one if asked to.
    if len(data) > len(normalised) + 4096:
        raise ValueError(
            f"expected one array, got {len(data) - len(normalised):,} more bytes"
        )
    return normalised


def read_array_header(data: bytes) -> ArrayHeader:
    """What the file of an array in a shard says about it.

    Raises:
        ValueError: it is damaged, or not as `encode_array` writes it.
    """
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != _VERSION:
        raise ValueError("expected a .npy file of version 1.0")
    shape, is_fortran_order, dtype = read_npy_header(file)
    name = _dtype_name(dtype)
    header = ArrayHeader(name, shape, file.tell())
    size_bytes = header.header_bytes + array_bytes(name, shape)
    is_swapped = dtype.newbyteorder("<") != dtype
    if is_fortran_order or is_swapped or size_bytes != len(data):
        raise ValueError(
            f"expected {size_bytes:,} bytes of a little-endian array in C order, got {len(data):,}"
        )
    return header


def read_npy_header(file: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it is in Fortran order, and dtype; `file` stands behind the version, which is 1.0."""
    start = file.tell()

    def read() -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        file.seek(start)
        return np.lib.format.read_array_header_1_0(file)

    return parse_again_on_system_error(read)


def _dtype_name(dtype: np.dtype[Any]) -> str:
    """One of ARRAY_DTYPES. ValueError: it is none of them."""
    name = dtype.name
    if dtype == _BFLOAT16_IN_FILES:
        name = BFLOAT16
    if name not in ARRAY_DTYPES:
        raise ValueError(f"expected one of {', '.join(ARRAY_DTYPES)}; got {dtype}")
    return name
