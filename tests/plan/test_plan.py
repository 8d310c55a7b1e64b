"""Tests of the plan of a batch: a pure function of the dataset, the recipe, the epoch and the batch's number."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.datasets.billion_samples import RECIPE, Billion, recipe_of

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import DatasetError
from fastpipe.loading.state import STATE_VERSION
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.content import Content
from fastpipe.plan.crops import CenterCrop, RandomResizedCrop, Resize
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import partition_of


class FiveThousand(Billion):
    """Of as many sizes, in three windows of the shuffle."""

    jpeg_bytes = 5000 * 110_000

    def __len__(self) -> int:
        return 5000

    def read(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        records = super().read(samples)
        records["width"] += (samples * 7919 % 400).astype(np.uint16)
        return records

    records_of = read


def as_bytes(plan: BatchPlan) -> bytes:
    parts = (plan.samples, plan.records, plan.crops.boxes, plan.crops.bounds, plan.flips)
    return b"".join(part.tobytes() for part in parts)


def all_batches(plan: EpochPlan) -> list[BatchPlan]:
    return [plan.batch(number) for number in range(len(plan))]


@pytest.fixture(scope="module")
def index(flat: Path) -> PackedIndex:
    return PackedIndex(flat)


def test_the_order_of_an_epoch_stays_what_it_was() -> None:
    """For a state names a place in it."""
    ids = [
        plan.batch(number).ids
        for crop in (RandomResizedCrop(), Buckets())
        for plan in (
            EpochPlan(recipe_of(FiveThousand(), batch_size=64, crop=crop, drop_last=True), n)
            for n in (0, 1)
        )
        for number in range(len(plan))
    ]
    assert (
        xxhash.xxh3_64_hexdigest(np.concatenate(ids).astype("<i8").tobytes()) == "4d47c4a4c18e2c8b"
    ), (
        f"samples come in another order: whoever changes the order must raise STATE_VERSION, {STATE_VERSION}, "
        "in loading/state.py, so that no loader goes on at a wrong place, and then write the new hash here"
    )


@pytest.mark.parametrize("batch_size", [1, 2, 8, 36, 37, 38, 1000])
def test_an_epoch_plans_each_sample_once(index: PackedIndex, batch_size: int) -> None:
    plan = EpochPlan(recipe_of(index, batch_size=batch_size), epoch=3)
    batches = all_batches(plan)
    assert sorted(np.concatenate([batch.samples for batch in batches])) == list(range(len(index)))
    assert all(len(batch) == batch_size for batch in batches[:-1])


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_batches_per_epoch(samples: int, batch_size: int) -> None:
    content = dataclasses.replace(RECIPE.content, starts=np.array([0, samples]))
    recipe = dataclasses.replace(RECIPE, batch_size=batch_size, content=content)
    assert partition_of(recipe).batches == -(-samples // batch_size)
    assert (
        partition_of(dataclasses.replace(recipe, drop_last=True)).batches == samples // batch_size
    )


def test_drop_last_leaves_the_other_batches_as_they_are(index: PackedIndex) -> None:
    kept = all_batches(EpochPlan(recipe_of(index), 0))
    dropped = all_batches(EpochPlan(recipe_of(index, drop_last=True), 0))
    assert len(dropped) == len(kept) - 1
    assert [as_bytes(batch) for batch in dropped] == [as_bytes(batch) for batch in kept[:-1]]


def test_batches_can_be_planned_in_any_order(index: PackedIndex) -> None:
    forward = [as_bytes(batch) for batch in all_batches(EpochPlan(recipe_of(index), 2))]
    plan = EpochPlan(recipe_of(index), 2)
    backward = [as_bytes(plan.batch(number)) for number in reversed(range(len(plan)))]
    assert backward[::-1] == forward


def test_a_batch_with_a_wrong_record_fails_in_its_turn(flat: Path, tmp_path: Path) -> None:
    """Though several are planned together."""
    data = tmp_path / "data"
    shutil.copytree(flat, data)
    recipe = recipe_of(PackedIndex(data), batch_size=4)
    expected = [as_bytes(batch) for batch in all_batches(EpochPlan(recipe, 2))]
    bad, wrong = 5, np.lib.format.open_memmap(data / "index.npy", mode="r+")
    wrong["width"][EpochPlan(recipe, 2).batch(bad).samples[1]] = 0
    wrong.flush()
    plan = EpochPlan(recipe, 2)
    assert [as_bytes(plan.batch(number)) for number in range(bad)] == expected[:bad]
    with pytest.raises(DatasetError, match="width 0"):
        plan.batch(bad)
    assert as_bytes(plan.batch(bad + 1)) == expected[bad + 1]


def test_what_becomes_of_a_sample_does_not_depend_on_the_batch_size(index: PackedIndex) -> None:
    def by_sample(batch_size: int) -> tuple[list[int], NDArray[np.float64], NDArray[np.bool_]]:
        batches = all_batches(EpochPlan(recipe_of(index, batch_size=batch_size), 5))
        return (
            [int(sample) for batch in batches for sample in batch.samples],
            np.concatenate([batch.crops.boxes for batch in batches]),
            np.concatenate([batch.flips for batch in batches]),
        )

    order, boxes, flips = by_sample(3)
    for batch_size in (1, 7, 64):
        other_order, other_boxes, other_flips = by_sample(batch_size)
        assert other_order == order
        assert np.array_equal(other_boxes, boxes)
        assert np.array_equal(other_flips, flips)


@pytest.mark.parametrize(
    "change", [{"seed": 2}, {"shuffle": False}, {"flip": 0.0}, {"crop": Resize()}]
)
def test_everything_in_the_recipe_counts(index: PackedIndex, change: dict[str, object]) -> None:
    first = EpochPlan(recipe_of(index), 0).batch(0)
    other = EpochPlan(recipe_of(index, **change), 0).batch(0)
    assert as_bytes(first) != as_bytes(other)
    assert as_bytes(first) == as_bytes(EpochPlan(recipe_of(index), 0).batch(0))
    assert as_bytes(first) != as_bytes(EpochPlan(recipe_of(index), 1).batch(0))


def test_without_shuffle_crops_and_flips_still_change_with_the_epoch(index: PackedIndex) -> None:
    recipe = recipe_of(index, shuffle=False, batch_size=37)
    one, other = EpochPlan(recipe, 0).batch(0), EpochPlan(recipe, 1).batch(0)
    assert np.array_equal(one.samples, other.samples)
    assert not np.array_equal(one.crops.boxes, other.crops.boxes)
    assert not np.array_equal(one.flips, other.flips)


def test_crops_fit_the_pictures_of_their_records(index: PackedIndex) -> None:
    for crop in (RandomResizedCrop(), CenterCrop(resize=30), Resize()):
        for batch in all_batches(EpochPlan(recipe_of(index, crop=crop), 0)):
            assert np.array_equal(batch.records, index.records[batch.samples])
            size = np.stack([batch.records["width"], batch.records["height"]], axis=1)
            assert (batch.crops.bounds[:, :2] + batch.crops.bounds[:, 2:] <= size).all()


def test_labels_are_a_copy(index: PackedIndex) -> None:
    batch = EpochPlan(recipe_of(index), 0).batch(0)
    assert batch.labels.dtype == np.int64
    assert np.array_equal(batch.labels, index.records["label"][batch.samples])
    batch.labels[:] = 99
    assert batch.labels.max() < 3


@pytest.mark.parametrize(
    ("flip", "least", "most"), [(0.0, 0, 0), (1.0, 1, 1), (0.5, 0.45, 0.55), (0.1, 0.07, 0.13)]
)
def test_share_of_flips(flip: float, least: float, most: float) -> None:
    plan = EpochPlan(dataclasses.replace(RECIPE, batch_size=4000, flip=flip), 0)
    assert least <= plan.batch(0).flips.mean() <= most


@pytest.mark.parametrize("attempt", [0, 1, 15])
def test_replacements_are_other_samples(index: PackedIndex, attempt: int) -> None:
    samples = np.arange(len(index))
    plan = EpochPlan(recipe_of(index), 4)
    batch = plan.of(samples)
    others = plan.others(batch, samples, attempt)
    assert (others.samples != samples).all()
    assert ((others.samples >= 0) & (others.samples < len(index))).all()
    assert len(np.unique(others.samples)) > 15
    assert as_bytes(plan.others(batch, samples, attempt)) == as_bytes(others)
    assert as_bytes(plan.others(batch, samples, attempt + 1)) != as_bytes(others)
    alone = plan.others(batch, samples[7:8], attempt)
    assert alone.samples[0] == others.samples[7]


def test_replacements_in_a_mixture_are_of_the_same_dataset(index: PackedIndex) -> None:
    starts = np.array([0, 1, 12, 37])
    content = Content(index, None, starts, (1.0, 1.0, 1.0))
    plan = EpochPlan(recipe_of(index, content=content), 4)
    ids = np.arange(len(index))
    batch = plan.of(ids)
    drawn = [plan.others(batch, ids, attempt).ids for attempt in range(200)]
    for row, share in enumerate(np.searchsorted(starts, ids, side="right") - 1):
        others = {int(other_ids[row]) for other_ids in drawn}
        # The first dataset has no other sample.
        first, end = (1, 37) if share == 0 else starts[share : share + 2]
        assert others == set(range(first, end)) - {row}
