"""Tests of masks and second pictures as rows of a batch: cropped as the picture is, and what fails is named."""

from __future__ import annotations

import io
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from support.batches.engine_jobs import wait_done
from support.pictures.pngs import GRAY, PALETTE, png

from fastpipe import _engine
from fastpipe.dataset.format.fields import FIELD_IMAGE_DTYPE, JPEG, NO_IMAGE, PNG
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.engine.engine import Engine
from fastpipe.engine.pictures import Pictures
from fastpipe.errors import SampleError
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.content import Content
from fastpipe.plan.crops import CenterCrop, Crop, RandomResizedCrop, Resize
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe

SIZE = (24, 20)
CROPS = [RandomResizedCrop(), CenterCrop(resize=30), Resize()]


def mask_of(record: np.void, bits: int = 8) -> NDArray[np.integer]:
    height, width = int(record["height"]), int(record["width"])
    y, x = np.mgrid[:height, :width]
    return (y * 131 + x * 29 + int(record["offset"])) % 2**bits


class Fields:
    """A copy of a dataset with a file behind the samples of each shard, and the records of these files.

    Args:
        dataset: a copy, which changes.
        file_of: the bytes for each sample's record, or None; and their format.
        bits: of a pixel.
    """

    def __init__(
        self,
        dataset: Path,
        file_of: Callable[[np.void], tuple[bytes, int] | None],
        bits: int = 8,
        lie: int = 0,
    ) -> None:
        self.index = PackedIndex(dataset)
        self.records = np.zeros(len(self.index), dtype=FIELD_IMAGE_DTYPE)
        sizes = [shard.size_bytes for shard in self.index.shards]
        for number, record in enumerate(self.index.records):
            made = file_of(record)
            if made is None:
                continue
            shard = int(record["shard"])
            with open(dataset / self.index.shards[shard].name, "ab") as file:
                file.write(made[0])
            digest = _engine.xxh3_64(made[0])
            sides = int(record["width"]), int(record["height"])
            self.records[number] = (sizes[shard], len(made[0]) + lie, *sides, bits, made[1], digest)
            sizes[shard] += len(made[0])
        shards = [
            types.SimpleNamespace(
                name=shard.name, folder=dataset, path=dataset / shard.name, size_bytes=size
            )
            for shard, size in zip(self.index.shards, sizes, strict=True)
        ]
        self.index.shards = shards  # type: ignore[assignment]

    def plan(self, crop: Crop, *, flip: float = 0.5) -> BatchPlan:
        recipe = Recipe(
            batch_size=len(self.index),
            size=SIZE,
            crop=crop,
            flip=flip,
            shuffle=True,
            drop_last=False,
            seed=7,
            content=Content.of(self.index),
        )
        return EpochPlan(recipe, 0).batch(0)

    def run(
        self,
        plan: BatchPlan,
        out: NDArray[Any],
        *,
        rows: NDArray[np.int64] | None = None,
        **options: bool,
    ) -> list[tuple[int, str]]:
        engine = Engine(self.index, 2, **options)
        try:
            return wait_done(engine.submit_field(plan, self.records[plan.samples], out, rows=rows))
        finally:
            engine.close()


def as_mask(bits: int = 8, color: int = GRAY) -> Callable[[np.void], tuple[bytes, int]]:
    palette = bytes(range(256)) * 3 if color == PALETTE else None
    return lambda record: (
        png(mask_of(record, bits), bits=bits, color=color, filters=(0, 2, 4), palette=palette),
        PNG,
    )


def expected_of(plan: BatchPlan, whole: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Each mask resized by itself; tests/csrc/resize/test_nearest.py compares that with torchvision."""
    rows = [
        _engine.resize_mask(mask, *SIZE, tuple(box.tolist()), tuple(bounds.tolist()), bool(flip))  # type: ignore[arg-type]
        for mask, box, bounds, flip in zip(
            whole, plan.crops.boxes, plan.crops.bounds, plan.flips, strict=True
        )
    ]
    return np.stack(rows)


@pytest.mark.parametrize(("bits", "color"), [(8, GRAY), (8, PALETTE), (4, GRAY), (1, GRAY)])
def test_masks_are_cropped_as_their_pictures(
    textured: Path, copied: Callable[[Path], Path], bits: int, color: int
) -> None:
    fields = Fields(copied(textured), as_mask(bits, color))
    for crop in CROPS:
        plan = fields.plan(crop)
        whole = [mask_of(record, bits) for record in plan.records]
        for dtype in (np.uint8, np.int32):
            out = np.full((len(plan), *SIZE), 9, dtype=dtype)
            assert fields.run(plan, out, verify=True) == []
            assert np.array_equal(out, expected_of(plan, [mask.astype(dtype) for mask in whole])), (
                crop,
                dtype,
            )


def test_masks_of_16_bits_keep_their_ids(textured: Path, copied: Callable[[Path], Path]) -> None:
    fields = Fields(copied(textured), as_mask(16), bits=16)
    plan = fields.plan(RandomResizedCrop())
    out = np.zeros((len(plan), *SIZE), dtype=np.int32)
    assert fields.run(plan, out) == []
    assert np.array_equal(
        out, expected_of(plan, [mask_of(record, 16).astype(np.int32) for record in plan.records])
    )
    assert out.max() > 2**15
    narrow = fields.run(plan, np.zeros((len(plan), *SIZE), dtype=np.uint8))
    assert len(narrow) == len(plan)
    assert "a mask of 16 bits; the batch's masks have 8" in narrow[0][1]


def test_rows_go_where_they_are_told_and_samples_without_a_mask_are_filled(
    textured: Path, copied: Callable[[Path], Path]
) -> None:
    make = as_mask()
    fields = Fields(copied(textured), lambda record: make(record) if record["offset"] % 3 else None)
    plan = fields.plan(Resize(mask_fill=9))
    without = fields.records[plan.samples]["format"] == NO_IMAGE
    assert 0 < without.sum() < len(plan)
    rows = np.arange(len(plan))[::-1] + 2
    out = np.full((len(plan) + 3, *SIZE), 77, dtype=np.uint8)
    assert fields.run(plan, out, rows=rows) == []
    expected = expected_of(plan, [mask_of(record).astype(np.uint8) for record in plan.records])
    expected[without] = 9
    assert np.array_equal(out[rows], expected)
    assert (out[[0, 1, -1]] == 77).all()


def test_a_row_that_fails_is_named_by_its_place_in_the_plan(
    textured: Path, copied: Callable[[Path], Path]
) -> None:
    make = as_mask()

    def file_of(record: np.void) -> tuple[bytes, int] | None:
        data, kind = make(record)
        return (
            (data, kind)
            if record["offset"] % 2
            else (data[:-20] + bytes(20), kind)
            if record["label"]
            else None
        )

    fields = Fields(copied(textured), file_of)
    plan = fields.plan(Resize())
    damaged = np.flatnonzero((plan.records["offset"] % 2 == 0) & (plan.records["label"] == 1))
    errors = fields.run(plan, np.zeros((len(plan), *SIZE), dtype=np.uint8))
    assert [position for position, _ in errors] == damaged.tolist()
    assert all("the PNG is" in reason for _, reason in errors)


def test_verify_compares_hashes(textured: Path, copied: Callable[[Path], Path]) -> None:
    fields = Fields(copied(textured), as_mask())
    fields.records["xxh3_64"][4] ^= 1
    plan = fields.plan(Resize())
    out = np.zeros((len(plan), *SIZE), dtype=np.uint8)
    assert fields.run(plan, out) == []
    errors = fields.run(plan, out, verify=True)
    assert [plan.samples[position] for position, _ in errors] == [4]
    assert errors[0][1].startswith("the bytes have changed since they were packed")


def test_a_mask_of_another_size_than_its_picture_is_refused(
    textured: Path, copied: Callable[[Path], Path]
) -> None:
    tall = png(np.zeros((1300, 2), int))
    fields = Fields(copied(textured), lambda record: (tall, PNG))
    plan = fields.plan(RandomResizedCrop())
    errors = fields.run(plan, np.zeros((len(plan), *SIZE), dtype=np.uint8))
    assert len(errors) == len(plan)
    assert all("the PNG's dimensions differ from the index" in reason for _, reason in errors)


def test_records_that_lie_are_named_errors(textured: Path, copied: Callable[[Path], Path]) -> None:
    fields = Fields(copied(textured), as_mask())
    good = fields.records.copy()
    plan = fields.plan(Resize())
    for changes, words in (
        ({"offset": 2**64 - 1}, "beyond the end of the shard"),
        ({"size": 2**32 - 1}, "beyond the end of the shard"),
        ({"size": 0}, "not a PNG"),
        ({"size": 40}, "truncated"),
        ({"offset": 0}, "not a PNG"),
    ):
        for name, value in changes.items():
            fields.records[name] = good[name]
            fields.records[name][3] = value
        errors = fields.run(plan, np.zeros((len(plan), *SIZE), dtype=np.uint8))
        assert [plan.samples[position] for position, _ in errors] == [3]
        assert words in errors[0][1]
        fields.records = good.copy()


def test_slots_of_another_kind_are_refused(textured: Path, copied: Callable[[Path], Path]) -> None:
    fields = Fields(copied(textured), as_mask())
    two_channels = np.zeros((30, *SIZE, 2), np.uint8)
    for out in (np.zeros((30, *SIZE), np.uint16), np.zeros((30, *SIZE), np.int64), two_channels):
        with pytest.raises(
            ValueError, match=r"of uint8 or int32 \(rows, height, width\)|with 1, 3 or 4 channels"
        ):
            fields.run(fields.plan(Resize()), out)


def second(record: np.void) -> NDArray[np.uint8]:
    """Another picture of the same size, smooth, so that JPEG keeps it."""
    y, x = np.mgrid[: int(record["height"]), : int(record["width"])]
    return np.stack([x * 2, y * 2, (x + y) + int(record["offset"]) % 50], axis=-1).astype(np.uint8)


@pytest.mark.parametrize("crop", CROPS, ids=lambda crop: type(crop).__name__)
def test_second_pictures_are_cropped_as_the_first(
    textured: Path, copied: Callable[[Path], Path], crop: Crop
) -> None:
    """The bytes of the first pictures, stored again as PNG or as they are, give the same rows as these."""
    dataset = copied(textured)
    index = PackedIndex(dataset)

    def file_of(record: np.void) -> tuple[bytes, int]:
        with open(dataset / index.shards[int(record["shard"])].name, "rb") as file:
            file.seek(int(record["offset"]))
            jpeg = file.read(int(record["size"]))
        if record["offset"] % 3 == 0:
            return jpeg, JPEG
        stream = io.BytesIO()
        Image.fromarray(_engine.decode(jpeg)).save(stream, "PNG")
        return stream.getvalue(), PNG

    fields = Fields(dataset, file_of)
    assert len(np.unique(fields.records["format"])) == 2
    plan = fields.plan(crop)
    out = np.zeros((len(plan), *SIZE, 3), dtype=np.uint8)
    assert fields.run(plan, out, verify=True) == []
    first = np.zeros_like(out)
    engine = Engine(fields.index, 1)
    assert wait_done(engine.submit(plan, (first, True))) == []
    engine.close()
    assert np.array_equal(out, first)


@pytest.mark.parametrize(("bits", "dtype"), [(8, np.uint8), (16, np.int32)])
def test_whole_masks_are_read_on_the_calling_thread(
    textured: Path, copied: Callable[[Path], Path], bits: int, dtype: type
) -> None:
    fields = Fields(copied(textured), as_mask(bits), bits=bits)
    pictures = Pictures(fields.index)
    records = fields.index.read(np.arange(5))
    for sample, record in enumerate(records):
        found = pictures.whole_field(sample, record, fields.records[sample], mask=True)
        assert found.dtype == dtype
        assert np.array_equal(found, mask_of(record, bits))
    fields.records["size"][2] -= 30
    with pytest.raises(SampleError, match="the PNG is truncated"):
        pictures.whole_field(2, records[2], fields.records[2], mask=True)


def test_a_whole_second_picture(textured: Path, copied: Callable[[Path], Path]) -> None:
    fields = Fields(
        copied(textured), lambda record: (png(second(record), color=2, filters=(1, 4)), PNG)
    )
    record = fields.index.read(np.array([6]))[0]
    found = Pictures(fields.index).whole_field(6, record, fields.records[6], mask=False)
    assert np.array_equal(found, second(record))
