"""Arrays as .npy files: what is written, what is read from other programs' files, what is refused."""

from __future__ import annotations

import gc
import io
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastpipe.dataset.format.array_file import (
    ARRAY_DTYPES,
    BFLOAT16,
    array_bytes,
    encode_array,
    normalise_array_file,
    numpy_dtype,
    read_array_header,
)

SHAPES = [(), (0,), (5,), (3, 0, 2), (4, 16, 16), (1,) * 16]


def saved(array: NDArray[Any], version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


@pytest.mark.parametrize("dtype", ARRAY_DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_numpy_reads_what_is_written(dtype: str, shape: tuple[int, ...]) -> None:
    stored = numpy_dtype(dtype)
    count = int(np.prod(shape))
    values = np.arange(count).astype(stored).reshape(shape)
    array = values.view("V2") if dtype == BFLOAT16 else values
    data = encode_array(array)
    header = read_array_header(data)
    assert (header.dtype, header.shape) == (dtype, shape)
    assert len(data) == header.header_bytes + array_bytes(dtype, shape)
    assert header.header_bytes % 64 == 0  # so the numbers are aligned in a tar
    read = np.load(io.BytesIO(data), allow_pickle=False)
    assert read.shape == shape
    assert read.tobytes() == values.tobytes()


def test_files_of_any_order_and_version_become_one_form() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    expected = encode_array(array)
    others = [
        saved(np.asfortranarray(array)),
        saved(array.astype(">f4")),
        saved(array, (2, 0)),
        saved(array, (3, 0)),
        expected,
    ]
    for data in others:
        assert normalise_array_file(data) == expected


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}], dtype=object),
        np.zeros(3, dtype=[("a", "<f4")]),
        np.zeros(3, dtype="complex64"),
        np.array(["text"]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.zeros(2, dtype="V4"),
        np.zeros((1,) * 17),
    ],
    ids=lambda array: str(array.dtype),
)
def test_other_arrays_are_refused(array: NDArray[Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        encode_array(array)


def test_a_pickle_is_not_loaded() -> None:
    data = saved(np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        normalise_array_file(data)


def test_damaged_files_are_refused() -> None:
    data = encode_array(np.arange(100, dtype=np.int16))
    for damaged in (b"", data[:5], data[:60], data[:-1], b"x" + data[1:], data + b"\0" * 10_000):
        with pytest.raises(ValueError, match=r"\S"):
            normalise_array_file(damaged)
    for damaged in (data[:-1], data + b"\0", b"x" + data[1:], saved(np.zeros(2, ">f4"))):
        with pytest.raises(ValueError, match=r"\S"):
            read_array_header(damaged)


def test_headers_are_read_in_several_threads_at_once() -> None:
    """In Python 3.11 the parser fails then (github.com/python/cpython/issues/106905)."""
    data = encode_array(np.zeros((3, 4, 5), np.float16))

    def read_many(_: int) -> None:
        for _ in range(300):
            assert read_array_header(data).shape == (3, 4, 5)
            assert normalise_array_file(data) == data

    def switch_threads(*_: object) -> None:
        time.sleep(0)

    # The collector runs within the parser, and what it calls lets other threads run.
    thresholds = gc.get_threshold()
    gc.callbacks.append(switch_threads)
    gc.set_threshold(5)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(read_many, range(4)))
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(switch_threads)
