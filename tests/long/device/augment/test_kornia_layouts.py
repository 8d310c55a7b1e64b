"""Every augmentation of kornia in a loader: a sample gets the same in any batch, on any rank, and when resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.batches.kornia_cases import CASES
from support.batches.layouts import assert_same_in_all_layouts, samples_of_rows

from fastpipe import Augment

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def samples(textured: Path) -> dict[str, list[bytes]]:
    return samples_of_rows(textured)


@pytest.mark.parametrize("name", CASES)
def test_a_sample_gets_the_same_parameters_anywhere(
    name: str, textured: Path, samples: dict[str, list[bytes]]
) -> None:
    assert_same_in_all_layouts(textured, samples, Augment([CASES[name]()], mean=None, std=None))
