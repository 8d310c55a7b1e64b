"""The kernels of a colour pass, carried out by torch: what the same stages give one by one.

The long tier does the same in Triton's own interpreter, and compiles them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.batches.triton_passes import compare_16_bits, compare_runs, compare_steps
from support.devices.small_triton import small_triton

pytestmark = pytest.mark.usefixtures("one_thread", "triton")


@pytest.fixture
def triton() -> Iterator[None]:
    with small_triton():
        yield


def test_each_step_is_the_formula() -> None:
    compare_steps()


def test_a_run_is_its_stages() -> None:
    compare_runs()


def test_16_bits_and_many_blocks() -> None:
    compare_16_bits()
