"""Small arrays go into one buffer and come out of its copy as they were."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastpipe.device.staging import pack, unpack

DTYPES = (np.uint8, np.bool_, np.int32, np.int64, np.float32, np.float64)


def allocate(shape: tuple[int, ...]) -> np.ndarray:
    return np.full(shape, 0xAB, dtype=np.uint8)


@given(
    st.lists(
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3)), max_size=6
    )
)
def test_arrays_come_back(kinds: list[tuple[type, list[int]]]) -> None:
    rng = np.random.default_rng(1)
    arrays = {
        str(n): rng.integers(0, 2, shape).astype(dtype) for n, (dtype, shape) in enumerate(kinds)
    }
    tensors = unpack(torch.from_numpy(pack(arrays, allocate)).clone(), arrays)
    assert list(tensors) == list(arrays)
    for name, array in arrays.items():
        assert tensors[name].numpy().dtype == array.dtype
        np.testing.assert_array_equal(tensors[name].numpy(), array)


def test_rows_that_are_not_contiguous() -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::3].T
    tensor = unpack(torch.from_numpy(pack({"a": array}, allocate)), {"a": array})["a"]
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_arrays_are_copied_once() -> None:
    """Masks of a batch have many bytes."""
    arrays = {
        "masks": np.ones((8, 1024, 1024), np.uint8),
        "turned": np.ones((1024, 1024), np.int64).T,
    }
    buffer = np.zeros(17 << 20, np.uint8)
    tracemalloc.start()
    pack(arrays, lambda shape: buffer)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 1 << 20


@pytest.mark.parametrize("first", [1, 3, 8, 15, 16, 17])
def test_each_begins_where_any_type_may(first: int) -> None:
    arrays = {"bytes": np.zeros(first, np.uint8), "numbers": np.array([1.5, -2.5])}
    tensors = unpack(torch.from_numpy(pack(arrays, allocate)), arrays)
    assert tensors["numbers"].data_ptr() % 8 == tensors["bytes"].data_ptr() % 8
    assert tensors["numbers"].tolist() == [1.5, -2.5]
