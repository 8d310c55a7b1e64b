"""Columns of a dataset: the values of its fields, read by ranges and only where they are asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.datasets.field_columns import add_fields
from support.datasets.sparse_index import records_of, sparse
from support.pictures.drawn import FLAT_IMAGES

import fastpipe
from fastpipe.dataset.format.fields import FIELDS_FOLDER, Field
from fastpipe.dataset.format.layout import INDEX_DTYPE, INDEX_FILE
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, DatasetError

Reads = Callable[[], int]  # the bytes that were read since it was last called


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """The bytes of files that the program reads; of a map it reads none."""
    real, counts = os.pread, [0]

    def count(descriptor: int, size: int, at: int) -> bytes:
        data = real(descriptor, size, at)
        counts[0] += len(data)
        return data

    def since() -> int:
        found, counts[0] = counts[0], 0
        return found

    monkeypatch.setattr(os, "pread", count)
    return since


@pytest.fixture(scope="module")
def many(flat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index and the fields of 200,000 samples; their shards are not there."""
    dataset, numbers = tmp_path_factory.mktemp("many"), np.arange(200_000)
    sparse(dataset, flat, len(numbers))[:] = records_of(numbers)
    captions = [f"number {number}" for number in numbers]
    fields = [
        (Field("score", "floats", width=1), numbers[:, None] / 2),
        (Field("caption", "text"), captions),
    ]
    return add_fields(dataset, fields)


def test_columns_have_the_values_that_were_stored(
    fielded: Path, values: dict[str, list[Any]]
) -> None:
    data, index = fastpipe.open(fielded), PackedIndex(fielded)
    assert data.columns == (
        "label",
        "width",
        "height",
        "channels",
        "bits",
        "id",
        "key",
        "source",
        *values,
    )
    for name in ("label", "width", "height", "channels", "bits"):
        assert data[name].tolist() == index.records[name].tolist()
        assert data[name].dtype == np.int64
    assert data["id"].tolist() == list(range(FLAT_IMAGES))
    assert data["source"].tolist() == [0] * FLAT_IMAGES
    assert [key.partition("/")[0] for key in data["key"]] == [
        data.classes[label] for label in data["label"]
    ]
    for name in ("caption", "notes", "sound", "count"):
        assert data[name].tolist() == values[name]
    np.testing.assert_array_equal(data["gaze"], np.array(values["gaze"], dtype=np.float32))
    for name, expected in (
        ("plain", values["plain"]),
        ("boxes", [boxes for boxes, _ in values["boxes"]]),
    ):
        assert all(
            np.array_equal(mine, boxes) for mine, boxes in zip(data[name], expected, strict=True)
        )
    assert all(np.array_equal(a, b) for a, b in zip(data["tags"], values["tags"], strict=True))
    assert all(
        np.array_equal(a, b.astype(np.float32))
        for a, b in zip(data["joints"], values["joints"], strict=True)
    )


def test_parts_of_columns_are_those_of_the_whole(fielded: Path) -> None:
    parts = (
        slice(3, 9),
        slice(None, None, -2),
        slice(40, 50),
        [5, 0, -2, 5],
        np.arange(FLAT_IMAGES) % 4 == 1,
    )
    data = fastpipe.open(fielded)
    for name in data.columns:
        column, whole = data[name], np.asarray(data[name])
        for number in (7, -1, np.int64(3)):
            assert np.array_equal(column[number], whole[number]), name
        for part in (*parts, np.array([], dtype=np.int64)):
            assert all(
                np.array_equal(*pair) for pair in zip(column[part], whole[part], strict=True)
            ), name


def test_columns_calculate_as_arrays_do(flat: Path) -> None:
    data = fastpipe.open(flat)
    width, height = data["width"], data["height"]
    wide, high = np.asarray(width), np.asarray(height)
    assert type(wide) is np.ndarray
    np.testing.assert_array_equal(width / height, wide / high)
    np.testing.assert_array_equal((width > 40) & (height <= 40), (wide > 40) & (high <= 40))
    np.testing.assert_array_equal(-width, -wide)
    assert (width.mean(), width.max(), width.shape, len(width)) == (
        wide.mean(),
        wide.max(),
        (FLAT_IMAGES,),
        len(wide),
    )
    assert np.bincount(data["label"]).tolist() == data.class_counts
    assert np.asarray(width, dtype=np.float32).dtype == np.float32
    assert sorted({*data["label"]}) == [0, 1, 2]


def test_what_is_no_place_in_a_column_is_refused(flat: Path) -> None:
    labels = fastpipe.open(flat)["label"]
    for which in (37, -38, [0, 40], 1.5, "a", None, [True, False], [[1, 2]]):
        with pytest.raises(
            IndexError, match="expected numbers of samples below 37, or a mask of 37, got"
        ):
            labels[which]


def test_fields_that_are_no_columns_are_named(fielded: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"has the columns label, width, height, channels, bits, id, key, source, caption.*got 'size'",
    ):
        fastpipe.open(fielded)["size"]


def test_a_field_that_is_stored_comes_before_what_every_dataset_has(
    flat: Path, copied: Callable[[Path], Path]
) -> None:
    """Tables of photos have columns of such names."""
    names = ("width", "source")
    path = add_fields(
        copied(flat), [(Field(name, "int"), range(100, 100 + FLAT_IMAGES)) for name in names]
    )
    data = fastpipe.open(path)
    assert data.columns == ("label", "width", "height", "channels", "bits", "id", "key", "source")
    for name in names:
        assert data[name][5] == data.with_fields([name])[5][name] == 105
    with fastpipe.loader(
        data, 4, train=False, size=16, num_workers=1, fields=["image", *names]
    ) as loader:
        batch = next(iter(loader))
        assert batch["width"].tolist() == batch["source"].tolist() == [100, 101, 102, 103]


def test_only_the_bytes_of_the_values_are_read(many: Path, reads: Reads) -> None:
    data = fastpipe.open(many)
    label, score, caption = data["label"], data["score"], data["caption"]
    reads()
    assert label[100_000:100_100].tolist() == list(range(100))
    assert reads() == 100 * INDEX_DTYPE.itemsize
    assert label[-1] == 999
    assert reads() == INDEX_DTYPE.itemsize
    assert label[[7, 150_000, 9]].tolist() == [7, 0, 9]
    assert reads() <= 4 * INDEX_DTYPE.itemsize, "near ones in one read"
    assert (label.dtype, label.shape, len(label), data["score"].shape) == (
        np.int64,
        (200_000,),
        200_000,
        (200_000, 1),
    )
    assert reads() < 10_000, "the head of a file"
    assert score[[3, 190_000]].tolist() == [[1.5], [95_000.0]]
    assert caption[123_456] == "number 123456"
    assert reads() < 20_000
    assert repr(label) == "<column 'label' of 200,000 samples: 0, 1, 2, 3, 4, ...>"
    assert reads() == 5 * INDEX_DTYPE.itemsize


def test_choosing_by_a_function_reads_what_it_asks_for(many: Path, reads: Reads) -> None:
    """And each value once; the others stay on the disk."""
    data = fastpipe.open(many)
    chosen = data.select(lambda columns: columns["score"][:, 0] >= 99_990)
    assert chosen["id"].tolist() == list(range(20))
    scores = 200_000 * 4
    assert scores <= reads() < scores + 20_000
    assert chosen["score"][:, 0].tolist() == [number / 2 for number in range(199_980, 200_000)]
    assert chosen["label"][3] == 983
    assert reads() < 20_000


def test_a_file_that_is_cut_short_while_in_use_is_an_error(
    fielded: Path, copied: Callable[[Path], Path]
) -> None:
    path = copied(fielded)
    data = fastpipe.open(path)
    count = data["count"]
    assert count[36] == 36 * 10**15
    os.truncate(path / FIELDS_FOLDER / "count.npy", 150)
    with pytest.raises(DatasetError, match=r"count\.npy was truncated after it was opened"):
        count[36]
    os.truncate(path / INDEX_FILE, 500)
    with pytest.raises(DatasetError, match="truncated after it was opened"):
        data["label"][36]


def test_a_column_that_is_assigned_to(fielded: Path) -> None:
    data = fastpipe.open(fielded)
    label, count, width = data["label"], data["count"], data["width"]
    with pytest.raises(TypeError, match=r"values = np.array.*data = data\.with_labels\(values\)"):
        label[:] = 0  # type: ignore[index]
    with pytest.raises(TypeError, match=r"data = data\.with_column\('count', values\)"):
        count[3] = 0  # type: ignore[index]
    with pytest.raises(TypeError, match=r"cannot be changed: change a copy"):
        width[3:5] = 0  # type: ignore[index]


def test_an_array_of_a_column_is_a_copy(flat: Path) -> None:
    """numpy's protocol: copy=False is an error where there is no array to share."""
    column = fastpipe.open(flat)["width"]
    with pytest.raises(ValueError, match="always a copy"):
        np.asarray(column, copy=False)
    for copy in (True, None):
        assert np.asarray(column, copy=copy).tolist() == column.tolist()


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_torch_takes_the_labels(flat: Path) -> None:
    """Of the whole dataset, whose labels lie between other values on the disk, and of a part."""
    data = fastpipe.open(flat)
    for dataset in (data, data.select(range(5))):
        labels = dataset["label"].tolist()
        for make_tensor in (torch.tensor, torch.as_tensor, torch.from_numpy):
            assert make_tensor(dataset.targets).tolist() == labels
