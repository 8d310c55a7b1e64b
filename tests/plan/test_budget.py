"""Tests of batches of a budget: each sample once, the same on any number of ranks, nearly full."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import fastpipe
from fastpipe.dataset.format.layout import INDEX_DTYPE
from fastpipe.plan.content import Content
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.epoch_batches import num_batches
from fastpipe.plan.partition import Ranks
from fastpipe.plan.recipe import Recipe

COUNT = 3000
PACKED = fastpipe.Patches(8, tokens=512, max_tokens=64)
COVERING = fastpipe.Buckets(sizes=[(64, 64), (48, 80), (80, 48)], fit="cover", pixels=16 * 64 * 64)
PADDED = fastpipe.Buckets(area=64 * 64, size_divisible=8, pixels=16 * 64 * 64)


class Shapes:
    """An index of pictures of many shapes, of which a plan needs no more."""

    path = "shapes"
    packed = True
    is_scattered = False
    jpeg_bytes = COUNT << 14
    form_counts: ClassVar[dict[Any, int]] = {}

    def __init__(self) -> None:
        sides = np.random.default_rng(0).integers(20, 200, (COUNT, 2))
        self.records = np.zeros(COUNT, dtype=INDEX_DTYPE)
        self.records["width"], self.records["height"] = sides.T

    def __len__(self) -> int:
        return COUNT

    def samples_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places

    def records_of(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        return self.records[samples]

    def read(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        return self.records_of(samples)


def recipe_of(crop: Any, **options: Any) -> Recipe:
    content = Content.of(Shapes())  # type: ignore[arg-type]
    values: dict[str, Any] = {"shuffle": True, "drop_last": False, "seed": 3, **options}
    size = crop.largest if isinstance(crop, fastpipe.Buckets) else (1, 1)
    return Recipe(1 << 20, size, crop, 0.0, content=content, **values)


def ids_of_ranks(recipe: Recipe, world_size: int, epoch: int = 0) -> list[list[int]]:
    """The ids of all batches that count, in the order of the steps and ranks."""
    plans = []
    for rank in range(world_size):
        plans.append(EpochPlan(replace(recipe, ranks=Ranks(rank, world_size)), epoch))
    batches = []
    for number in range(len(plans[0])):
        for plan in plans:
            batch = plan.batch(number)
            if batch.valid.all():
                batches.append(batch.ids.tolist())
            else:
                assert not batch.valid.any()
    return batches


@pytest.mark.parametrize("crop", [PACKED, COVERING, PADDED])
@pytest.mark.parametrize("shuffle", [True, False])
def test_each_sample_comes_once_on_any_number_of_ranks(crop: Any, shuffle: bool) -> None:
    recipe = recipe_of(crop, shuffle=shuffle)
    alone = ids_of_ranks(recipe, 1)
    assert sorted(sample for batch in alone for sample in batch) == list(range(COUNT))
    for world_size in (2, 3, 4):
        assert ids_of_ranks(recipe, world_size) == alone


@pytest.mark.parametrize("crop", [PACKED, COVERING, PADDED])
def test_ranks_have_equally_many_batches(crop: Any) -> None:
    recipe = recipe_of(crop)
    count = num_batches(recipe)
    for world_size in (2, 7):
        ranks = Ranks(1, world_size)
        assert num_batches(replace(recipe, ranks=ranks)) == -(-count // world_size)
        dropping = replace(recipe, ranks=ranks, drop_last=True)
        assert num_batches(dropping) == count // world_size


def test_any_batch_is_planned_without_those_before_it() -> None:
    recipe = recipe_of(PACKED)
    plan = EpochPlan(recipe, 2)
    batches = [plan.batch(number).ids.tolist() for number in range(len(plan))]
    again = EpochPlan(recipe, 2)
    for number in (len(plan) - 1, 3, 70):
        assert again.batch(number).ids.tolist() == batches[number]
    assert ids_of_ranks(recipe, 1, epoch=3) != batches


def test_packed_batches_keep_to_the_budget_and_are_nearly_full() -> None:
    recipe = recipe_of(PACKED)
    plan = EpochPlan(recipe, 0)
    tokens = []
    for number in range(len(plan)):
        row_sizes = plan.batch(number).crops.row_sizes
        assert row_sizes is not None
        tokens.append(int(PACKED.tokens_of_rows(row_sizes).sum()))
    assert max(tokens) <= 512
    assert np.mean(tokens) / 512 > 0.97


def test_large_and_small_images_are_mixed() -> None:
    """A batch of small images only would train on small images only."""
    plan = EpochPlan(recipe_of(fastpipe.Patches(8, tokens=4096, max_tokens=64)), 0)
    means = []
    for number in range(len(plan) - 1):
        row_sizes = plan.batch(number).crops.row_sizes
        assert row_sizes is not None
        means.append(PACKED.tokens_of_rows(row_sizes).mean())
    assert np.std(means) < 0.1 * np.mean(means)


@pytest.mark.parametrize("crop", [COVERING, PADDED])
def test_batches_of_buckets_have_at_most_so_many_pixels(crop: Any) -> None:
    plan = EpochPlan(recipe_of(crop), 0)
    pixels = []
    for number in range(len(plan)):
        batch = plan.batch(number)
        height, width = batch.crops.size
        pixels.append(height * width * len(batch))
    assert max(pixels) <= crop.pixels
    assert np.mean(pixels) / crop.pixels > 0.9


def test_sizes_come_as_often_as_shapes() -> None:
    recipe = recipe_of(COVERING)
    plan = EpochPlan(recipe, 0)
    wanted: Counter[tuple[int, int]] = Counter()
    had: Counter[tuple[int, int]] = Counter()
    ids = np.arange(COUNT)
    records = recipe.content.records_of(ids)
    pictures = np.stack([records["width"], records["height"]], axis=1).astype(np.int64)
    for width, height in COVERING.row_sizes(pictures).tolist():
        wanted[height, width] += 1
    for number in range(len(plan)):
        batch = plan.batch(number)
        had[batch.crops.size] += len(batch)
    for size, count in wanted.items():
        assert abs(had[size] - count) < 0.1 * count


def test_a_window_is_read_before_it_is_used() -> None:
    """All samples of a batch were named for reading before it, or with it if it is the first."""
    recipe = recipe_of(PACKED)
    for rank, world_size, start in ((0, 1, 0), (1, 3, 0), (0, 2, 90)):
        plan = EpochPlan(replace(recipe, ranks=Ranks(rank, world_size)), 0)
        named: set[int] = set()
        for number in range(start, len(plan)):
            upcoming = plan.upcoming(number, is_first=number == start)
            named.update(upcoming.tolist())
            assert named.issuperset(plan.batch(number).samples.tolist())
