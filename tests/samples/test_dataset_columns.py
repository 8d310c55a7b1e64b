"""Columns of a dataset: the values of its fields, read by ranges and only where they are asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.datasets.field_columns import add_fields, values_of
from support.pictures.drawn import FLAT_IMAGES

import fastpipe
from fastpipe.errors import ConfigError, DatasetError
from fastpipe.format.fields import FIELDS_FOLDER, Field
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, INDEX_DTYPE, INDEX_FILE

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
def values(fielded: Path) -> dict[str, list[Any]]:
    return {field.name: values for field, values in values_of(Index(fielded))}


@pytest.fixture(scope="module")
def many(flat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index and the fields of 200,000 samples; their shards are not there."""
    import json

    dataset = tmp_path_factory.mktemp("many")
    samples = 200_000
    info = json.loads((flat / DATASET_FILE).read_text())
    records = np.zeros(samples, dtype=INDEX_DTYPE)
    records["label"], records["width"] = np.arange(samples) % 3, np.arange(samples) % 5000
    np.save(dataset / INDEX_FILE, records)
    counts = np.bincount(records["label"]).tolist()
    shards = [{**info["shards"][0], "samples": samples}]
    info |= {"samples": samples, "shards": shards, "class_counts": counts, "fields": {}}
    (dataset / DATASET_FILE).write_text(json.dumps(info))
    return add_fields(
        dataset,
        [
            (Field("score", "floats", width=1), np.arange(samples)[:, None] / 2),
            (Field("caption", "text"), [f"number {number}" for number in range(samples)]),
        ],
    )


def test_columns_have_the_values_that_were_stored(fielded: Path, values: dict[str, list[Any]]) -> None:
    data, index = fastpipe.open(fielded), Index(fielded)
    assert data.columns == ("label", "width", "height", "channels", "bits", "id", "key", "source", *values)
    for name in ("label", "width", "height", "channels", "bits"):
        assert data[name].tolist() == index.records[name].tolist()
        assert data[name].dtype == np.int64
    assert data["id"].tolist() == list(range(FLAT_IMAGES))
    assert data["source"].tolist() == [0] * FLAT_IMAGES
    assert [key.partition("/")[0] for key in data["key"]] == [data.classes[label] for label in data["label"]]
    for name in ("caption", "notes", "sound", "count"):
        assert data[name].tolist() == values[name]
    np.testing.assert_array_equal(data["gaze"], np.array(values["gaze"], dtype=np.float32))
    for name, expected in (("plain", values["plain"]), ("boxes", [boxes for boxes, _ in values["boxes"]])):
        assert all(np.array_equal(mine, boxes) for mine, boxes in zip(data[name], expected, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(data["tags"], values["tags"], strict=True))
    assert all(np.array_equal(a, b.astype(np.float32)) for a, b in zip(data["joints"], values["joints"], strict=True))


@pytest.mark.parametrize(
    "which",
    [
        7,
        -1,
        np.int64(3),
        slice(3, 9),
        slice(None, None, -2),
        slice(40, 50),
        [5, 0, -2, 5],
        np.array([], dtype=np.int64),
        np.arange(FLAT_IMAGES) % 4 == 1,
    ],
    ids=str,
)
def test_parts_of_columns_are_those_of_the_whole(fielded: Path, which: Any) -> None:
    data = fastpipe.open(fielded)
    for name in data.columns:
        part, whole = data[name][which], np.asarray(data[name])[which]
        if isinstance(which, (int, np.integer)):
            part, whole = [part], [whole]
        assert len(part) == len(whole)
        assert all(np.array_equal(mine, other) for mine, other in zip(part, whole, strict=True)), name


def test_columns_calculate_as_arrays_do(flat: Path) -> None:
    data = fastpipe.open(flat)
    width, height = data["width"], data["height"]
    wide, high = np.asarray(width), np.asarray(height)
    assert type(wide) is np.ndarray
    np.testing.assert_array_equal(width / height, wide / high)
    np.testing.assert_array_equal((width > 40) & (height <= 40), (wide > 40) & (high <= 40))
    np.testing.assert_array_equal(-width, -wide)
    assert (width.mean(), width.max(), width.shape, len(width)) == (wide.mean(), wide.max(), (FLAT_IMAGES,), len(wide))
    assert np.bincount(data["label"]).tolist() == data.class_counts
    assert np.asarray(width, dtype=np.float32).dtype == np.float32
    assert sorted({*data["label"]}) == [0, 1, 2]


@pytest.mark.parametrize("which", [37, -38, [0, 40], 1.5, "a", None, [True, False], [[1, 2]]], ids=str)
def test_what_is_no_place_in_a_column_is_refused(flat: Path, which: Any) -> None:
    with pytest.raises(IndexError, match="expected numbers of samples below 37, or a mask of 37, got"):
        fastpipe.open(flat)["label"][which]


def test_fields_that_are_no_columns_are_named(fielded: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"has the columns label, width, height, channels, bits, id, key, source, caption.*got 'size'"
    ):
        fastpipe.open(fielded)["size"]


def test_a_field_that_is_stored_comes_before_what_every_dataset_has(flat: Path, copied: Callable[[Path], Path]) -> None:
    """Tables of photos have columns of such names."""
    names = ("width", "source")
    path = add_fields(copied(flat), [(Field(name, "int"), range(100, 100 + FLAT_IMAGES)) for name in names])
    data = fastpipe.open(path)
    assert data.columns == ("label", "width", "height", "channels", "bits", "id", "key", "source")
    for name in names:
        assert data[name][5] == data.with_fields([name])[5][name] == 105
    with fastpipe.loader(data, 4, train=False, size=16, num_workers=1, fields=["image", *names]) as loader:
        batch = next(iter(loader))
        assert batch["width"].tolist() == batch["source"].tolist() == [100, 101, 102, 103]


def test_only_the_bytes_of_the_values_are_read(many: Path, reads: Reads) -> None:
    data = fastpipe.open(many)
    label, score, caption = data["label"], data["score"], data["caption"]
    reads()
    assert label[100_000:100_100].tolist() == [number % 3 for number in range(100_000, 100_100)]
    assert reads() == 100 * INDEX_DTYPE.itemsize
    assert label[-1] == 199_999 % 3
    assert reads() == INDEX_DTYPE.itemsize
    assert label[[7, 150_000, 9]].tolist() == [1, 0, 0]
    assert reads() <= 4 * INDEX_DTYPE.itemsize, "near ones in one read"
    assert (label.dtype, label.shape, len(label), data["score"].shape) == (np.int64, (200_000,), 200_000, (200_000, 1))
    assert reads() < 10_000, "the head of a file"
    assert score[[3, 190_000]].tolist() == [[1.5], [95_000.0]]
    assert caption[123_456] == "number 123456"
    assert reads() < 20_000
    assert repr(label) == "<column 'label' of 200,000 samples: 0, 1, 2, 0, 1, ...>"
    assert reads() == 5 * INDEX_DTYPE.itemsize


def test_choosing_by_a_function_reads_what_it_asks_for(many: Path, reads: Reads) -> None:
    """And each value once; the others stay on the disk."""
    data = fastpipe.open(many)
    chosen = data.select(lambda columns: columns["score"][:, 0] >= 99_990)
    assert chosen["id"].tolist() == list(range(20))
    scores = 200_000 * 4
    assert scores <= reads() < scores + 20_000
    assert chosen["score"][:, 0].tolist() == [number / 2 for number in range(199_980, 200_000)]
    assert chosen["width"][3] == 199_983 % 5000
    assert reads() < 20_000


def test_columns_of_chosen_and_joined_datasets(fielded: Path, values: dict[str, list[Any]]) -> None:
    data = fastpipe.open(fielded)
    numbers = [30, 2, 11]
    some = data.select(numbers)
    both = fastpipe.concat(some, data, labels="offset")
    for name in data.columns:
        if name in ("id", "source", "label"):
            continue
        expected = [*data[name][numbers], *data[name]]
        assert all(np.array_equal(mine, other) for mine, other in zip(both[name], expected, strict=True)), name
    assert both["id"].tolist() == list(range(3 + FLAT_IMAGES))
    assert both["source"].tolist() == [0] * 3 + [1] * FLAT_IMAGES
    assert both["label"].tolist() == [*data["label"][numbers].tolist(), *(data["label"] + 3).tolist()]
    assert both["caption"][[2, 3]].tolist() == [values["caption"][11], values["caption"][0]]


def test_a_file_that_is_cut_short_while_in_use_is_an_error(fielded: Path, copied: Callable[[Path], Path]) -> None:
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
