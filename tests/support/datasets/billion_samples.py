"""Recipes for small batches, and what stands in for the index of a billion photos, which no test can have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.dataset.format.layout import INDEX_DTYPE
from fastpipe.plan.content import Content
from fastpipe.plan.crops import RandomResizedCrop
from fastpipe.plan.recipe import Recipe


class Billion:
    """The parts of an Index that a plan reads."""

    jpeg_bytes = 10**9 * 110_000
    is_scattered = False
    packed = True

    def __len__(self) -> int:
        return 10**9

    def samples_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places

    def read(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        records = np.zeros(len(samples), dtype=INDEX_DTYPE)
        records["width"], records["height"], records["size"] = 500, 375, 110_000
        return records


def recipe_of(index: Any, **changes: Any) -> Recipe:
    """Of all samples of an index, in batches of 8."""
    recipe = Recipe(
        batch_size=8,
        size=(20, 24),
        crop=RandomResizedCrop(),
        flip=0.5,
        shuffle=True,
        drop_last=False,
        seed=1,
        content=Content.of(index),
    )
    return replace(recipe, **changes)


RECIPE = recipe_of(Billion())
