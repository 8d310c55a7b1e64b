"""with_column and with_labels: values of the user's own, in samples, in batches and in all that is chosen."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.datasets.field_columns import hash_index
from support.pictures.drawn import FLAT_CLASSES, FLAT_IMAGES

import fastpipe
from fastpipe.dataset.format.layout import INDEX_FILE
from fastpipe.errors import ConfigError, DatasetError

NUMBERS = np.arange(FLAT_IMAGES)
TEACHER = np.random.default_rng(0).random((FLAT_IMAGES, 2, 3), dtype=np.float32)
# As a user may have them; and what samples then have.
GIVEN: dict[str, tuple[Any, NDArray[Any]]] = {
    "list": ((NUMBERS / 3).tolist(), NUMBERS / 3),
    "floats": (TEACHER, TEACHER),
    "halves": (TEACHER.astype(np.float16), TEACHER.astype(np.float16)),
    "bytes": (NUMBERS.astype(np.uint8), NUMBERS.astype(np.uint8)),
    "truths": (NUMBERS % 2 == 0, NUMBERS % 2 == 0),
    "of another machine": (NUMBERS.astype(">i4"), NUMBERS.astype(np.int32)),
    "tensor": (torch.from_numpy(TEACHER).requires_grad_(), TEACHER),
    "texts": (
        [f"ü {number}" for number in NUMBERS],
        np.array([f"ü {number}" for number in NUMBERS], dtype=object),
    ),
    "column by column": (np.asfortranarray(TEACHER), TEACHER),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_values_are_in_columns_samples_and_batches(flat: Path, kind: str) -> None:
    given, expected = GIVEN[kind]
    data = fastpipe.open(flat).with_column("mine", given)
    assert "mine" in data.columns
    np.testing.assert_array_equal(data["mine"], expected)
    assert data["mine"].dtype == expected.dtype
    assert data["mine"].shape == expected.shape
    assert np.array_equal(np.asarray(data.with_fields(["mine"])[7]["mine"]), expected[7])
    with fastpipe.loader(
        data, 8, size=16, num_workers=1, fields=["image", "mine", "id"], seed=3
    ) as loader:
        for batch in loader:
            mine = batch["mine"]
            assert np.array_equal(
                np.asarray(mine, dtype=expected.dtype), expected[batch["id"].numpy()]
            )
            assert isinstance(mine, list) == (expected.dtype == object)


def test_values_of_a_file(flat: Path, tmp_path: Path) -> None:
    for kind in ("floats", "texts", "of another machine"):
        given, expected = GIVEN[kind]
        np.save(tmp_path / "mine.npy", np.asarray(given))
        for path in (tmp_path / "mine.npy", str(tmp_path / "mine.npy")):
            data = fastpipe.open(flat).with_column("mine", path)
            np.testing.assert_array_equal(data["mine"], expected)
            assert np.array_equal(np.asarray(data.with_fields(["mine"])[7]["mine"]), expected[7])


def test_of_a_file_only_rows_of_a_batch_are_read(
    flat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its pickle has the path; the values are opened where they are read."""
    row = 1 << 16
    values = np.random.default_rng(1).integers(0, 255, (FLAT_IMAGES, row), dtype=np.uint8)
    np.save(tmp_path / "teacher.npy", values)
    data = fastpipe.open(flat).with_column("teacher", tmp_path / "teacher.npy")
    assert len(pickle.dumps(data)) < len(pickle.dumps(fastpipe.open(flat))) + 500
    again: fastpipe.Dataset = pickle.loads(pickle.dumps(data))  # noqa: S301 (our own)
    reads: list[int] = []
    real = os.pread

    def count(descriptor: int, size: int, at: int) -> bytes:
        found = real(descriptor, size, at)
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("teacher.npy"):
            reads.append(len(found))
        return found

    monkeypatch.setattr(os, "pread", count)
    for each in (data, again):
        assert np.array_equal(each["teacher"][5:7], values[5:7])
        assert np.array_equal(each.select([9, 3])["teacher"][0], values[9])
        assert np.array_equal(each.with_fields(["teacher"])[11]["teacher"], values[11])
        assert sum(reads) == 4 * row
        reads.clear()
    fields = ["image", "teacher", "id"]
    with fastpipe.loader(
        data, 4, size=16, num_workers=1, prefetch_factor=1, fields=fields
    ) as loader:
        batch = next(iter(loader))
        assert np.array_equal(batch["teacher"].numpy(), values[batch["id"].numpy()])
        assert 4 * row <= sum(reads) <= 4 * 4 * row


def test_values_go_along_with_their_samples(flat: Path) -> None:
    data = (
        fastpipe.open(flat)
        .with_column("number", NUMBERS)
        .with_column("name", [f"n{each}" for each in NUMBERS])
    )
    rest, part = data.fold(1, of=3)
    cows = data.only(["cow"])
    for each in (
        data.select([30, 2]),
        rest,
        part,
        cows,
        data.take(0.5),
        rest + part,
        fastpipe.mix({rest: 2, cows: 1}),
    ):
        numbers = each["number"].tolist()
        assert each["key"].tolist() == data["key"][numbers].tolist()
        assert each["name"].tolist() == [f"n{number}" for number in numbers]
    assert sorted((rest + part)["number"]) == NUMBERS.tolist()


def test_a_column_can_be_replaced_and_the_dataset_before_stays(fielded: Path) -> None:
    data = fastpipe.open(fielded)
    other = (
        data.with_column("caption", NUMBERS)
        .with_column("count", NUMBERS * 2)
        .with_column("count", NUMBERS * 3)
    )
    assert other["caption"].tolist() == NUMBERS.tolist()
    assert other["count"][5] == other.with_fields(["count"])[5]["count"] == 15
    assert data["caption"][0] == "sample 0 ü"
    assert data["count"][5] == 5 * 10**15
    assert other.columns == data.columns


def test_what_the_user_does_with_the_array_afterwards_changes_nothing(flat: Path) -> None:
    scores, labels = NUMBERS.astype(float), NUMBERS % 2
    data = fastpipe.open(flat).with_column("score", scores).with_labels(labels)
    scores[:], labels[:] = -1, 0
    assert data["score"].tolist() == NUMBERS.tolist()
    assert data["label"].tolist() == (NUMBERS % 2).tolist()


VALUES_THAT_DO_NOT_FIT: list[tuple[Any, str]] = [
    (
        np.zeros(36),
        r"expected 37 rows of numbers or texts, one for each sample, got float64 of shape \(36,\)",
    ),
    (3, r"got int64 of shape \(\)"),
    ([[1]] * 36 + [[1, 2]], "a row of one length for each sample"),
    (np.zeros(37, complex), "got complex128"),
    ([None] * 37, "got object"),
    ({"ant/00.jpg": 1}, "36 samples of 37 have no value"),
]


def test_values_that_do_not_fit_and_names_that_no_field_may_have(flat: Path) -> None:
    for values, words in VALUES_THAT_DO_NOT_FIT:
        with pytest.raises(ConfigError, match=f"with_column: .*{words}"):
            fastpipe.open(flat).with_column("mine", values)
    names: list[Any] = ["label", "image", "id", "key", "a b", "", 3]
    for name in names:
        with pytest.raises(
            ConfigError, match=r"with_column: expected a field's name of small letters.* got"
        ):
            fastpipe.open(flat).with_column(name, NUMBERS)


def test_files_that_are_no_columns(flat: Path, tmp_path: Path) -> None:
    data, file = fastpipe.open(flat), tmp_path / "mine.npy"
    with pytest.raises(DatasetError, match=r"mine\.npy cannot be opened: No such file"):
        data.with_column("mine", file)
    wrong: list[tuple[Callable[[], object], str]] = [
        (
            lambda: file.write_bytes(b"nothing"),
            r"mine\.npy: expected an \.npy file with a row for each sample",
        ),
        (
            lambda: np.save(file, np.array([{}] * FLAT_IMAGES), allow_pickle=True),
            r"mine\.npy: expected an \.npy file",
        ),
        (
            lambda: np.save(file, np.asfortranarray(TEACHER)),
            r"not in C order; save np\.ascontiguousarray\(values\)",
        ),
        (
            lambda: np.save(file, TEACHER[:5]),
            r"expected 37 rows .* got float32 of shape \(5, 2, 3\)",
        ),
    ]
    for write, words in wrong:
        write()
        with pytest.raises(ConfigError, match=words):
            data.with_column("mine", file)


def test_a_file_that_changes_is_an_error(flat: Path, tmp_path: Path) -> None:
    """In the process that has it open, and in one that opens it again; never other values, or the end of a program."""
    file = tmp_path / "mine.npy"
    np.save(file, TEACHER)
    data = fastpipe.open(flat).with_column("mine", file)
    pickled = pickle.dumps(data)
    assert np.array_equal(data["mine"][3], TEACHER[3])
    os.truncate(file, 200)
    with pytest.raises(DatasetError, match=r"mine\.npy was truncated after it was opened"):
        data["mine"][36]
    np.save(tmp_path / "other.npy", TEACHER + 1)
    os.utime(tmp_path / "other.npy", (1e9, 1e9))
    (tmp_path / "other.npy").rename(file)
    with pytest.raises(
        DatasetError, match=r"mine\.npy has changed since it became a column.*with_column.* again"
    ):
        pickle.loads(pickled)["mine"][3]  # noqa: S301 (our own)


LABELS = {
    "numbers": (NUMBERS % 4 - 1, None),
    "of a byte": ((NUMBERS % 4).astype(np.uint8), None),
    "names": ([FLAT_CLASSES[number % 3] for number in NUMBERS], None),
    "names and classes": (
        [FLAT_CLASSES[number % 3] for number in NUMBERS],
        ["cow", "dog", "bee", "ant"],
    ),
    "tensor": (torch.from_numpy(NUMBERS % 4), None),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels(flat: Path, kind: str) -> None:
    labels, names = LABELS[kind]
    names = names or (sorted(FLAT_CLASSES) if isinstance(labels, list) else ["a", "b", "c", "d"])
    data = fastpipe.open(flat).with_labels(labels, classes=names)
    expected = np.asarray(
        [names.index(each) for each in labels] if isinstance(labels, list) else labels,
        dtype=np.int64,
    )
    assert data.classes == names
    assert data["label"].tolist() == data.targets.tolist() == expected.tolist()
    assert data["label"].dtype == data.targets.dtype == np.int64
    assert data.class_counts == [int((expected == label).sum()) for label in range(len(names))]
    assert [label for _, label in data] == expected.tolist()
    with fastpipe.loader(data, 8, size=16, num_workers=1, train=False) as loader:
        assert torch.cat([batch.labels for batch in loader]).tolist() == expected.tolist()
    some = data.select([8, 5, 2])
    assert some["label"].tolist() == expected[[8, 5, 2]].tolist()
    first = data.only(names[:1])
    assert first["id"].tolist() == list(range(int((expected == 0).sum())))
    assert first["key"].tolist() == data["key"][expected == 0].tolist()


def test_labels_of_a_file_are_those_of_the_array(flat: Path, tmp_path: Path) -> None:
    """A state of a run goes on, too: it is the same data."""
    labels = (NUMBERS % 2).astype(np.uint8)
    np.save(tmp_path / "labels.npy", labels)
    one, other = (
        fastpipe.open(flat).with_labels(each) for each in (labels.tolist(), tmp_path / "labels.npy")
    )
    assert one["label"].tolist() == other["label"].tolist()
    options: dict[str, Any] = {"size": 16, "num_workers": 1}
    with (
        fastpipe.loader(one, 8, **options) as first,
        fastpipe.loader(other, 8, **options) as second,
    ):
        batches = iter(first)
        next(batches)
        second.load_state_dict(first.state_dict())
        assert next(iter(second)).ids.tolist() == next(batches).ids.tolist()
    changed = fastpipe.open(flat).with_labels(1 - labels)
    with fastpipe.loader(changed, 8, **options) as third, pytest.raises(ConfigError, match="label"):
        third.load_state_dict(first.state_dict())


WRONG_LABELS: list[tuple[Any, Any, str]] = [
    (NUMBERS % 5, None, "expected labels from -1 to 2, of 3 classes, got 4; pass classes="),
    (NUMBERS % 3 + 1, None, "labels go from 1 to 3, .* If they count from 1, subtract 1"),
    (NUMBERS % 5 - 1, None, "expected labels from -1 to 2, of 3 classes, got 3; pass classes="),
    (NUMBERS - 2, list(map(str, NUMBERS)), "expected labels from -1 to 36, .*got -2"),
    (NUMBERS / 2, None, "expected whole numbers or names, got float64"),
    (np.zeros((37, 2), int), None, r"got int64 of shape \(37, 2\)"),
    (NUMBERS[:5], None, "expected 37 rows"),
    (["ant"] * 37, ["bee"], r"expected names of \['bee'\], got 'ant'"),
    (NUMBERS % 2, "ab", "expected names of classes, each once, got 'ab'"),
    (NUMBERS % 2, ["a", "a"], "expected names of classes, each once"),
]


def test_labels_that_are_none(flat: Path) -> None:
    for labels, classes, words in WRONG_LABELS:
        with pytest.raises(ConfigError, match=f"with_labels: {words}|with_labels: .*{words}"):
            fastpipe.open(flat).with_labels(labels, classes=classes)


def test_damaged_labels_are_named_where_they_are_read(
    flat: Path, copied: Callable[[Path], Path]
) -> None:
    """A label of the index that no class has: of a sample that a user labels anew, it does not count."""
    path = copied(flat)
    records = np.load(path / INDEX_FILE)
    records["label"][4] = 10**6
    np.save(path / INDEX_FILE, records)
    hash_index(path)
    for data in (
        fastpipe.open(path).with_labels(NUMBERS % 2),
        fastpipe.open(path).only(["bee", "ant"]),
    ):
        assert len(data) >= 20
    with pytest.raises(DatasetError, match="the record of sample 4 is impossible"):
        [label for _, label in fastpipe.open(path)]
