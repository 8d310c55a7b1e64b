"""Tests of the columns of fields: values of any samples, and no lie of a file goes unnoticed or costs memory."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.datasets.field_columns import add_fields
from support.pictures.drawn import FLAT_IMAGES

from fastpipe.dataset.format.columns import open_column
from fastpipe.dataset.format.fields import FIELDS_FOLDER, MAX_VALUE_BYTES, Field
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import DatasetError

RNG = np.random.default_rng(8)
COUNTS = RNG.integers(0, 4, FLAT_IMAGES)
VALUES: dict[str, list[Any]] = {
    "count": RNG.integers(-(2**62), 2**62, FLAT_IMAGES).tolist(),
    "gaze": RNG.random((FLAT_IMAGES, 3), dtype=np.float32).tolist(),
    "tags": [RNG.integers(0, 7, n).tolist() for n in COUNTS],
    "caption": [f"säule {n} " * n for n in COUNTS],
    "notes": [None if n == 0 else {"n": int(n), "word": "é"} for n in COUNTS],
    "sound": [RNG.bytes(900 * n) for n in COUNTS],
    "boxes": [
        (
            np.sort(RNG.random((n, 2, 2), dtype=np.float32), axis=1).reshape(n, 4),
            RNG.integers(0, 9, n),
        )
        for n in COUNTS
    ],
    "plain": [
        np.sort(RNG.random((n, 2, 2), dtype=np.float32), axis=1).reshape(n, 4) for n in COUNTS
    ],
    "joints": [RNG.random((n, 5, 3), dtype=np.float32) for n in COUNTS],
}
FIELDS = [
    Field("count", "int"),
    Field("gaze", "floats", width=3),
    Field("tags", "classes", classes=7),
    Field("caption", "text"),
    Field("notes", "json"),
    Field("sound", "bytes"),
    Field("boxes", "boxes", labelled=True),
    Field("plain", "boxes"),
    Field("joints", "keypoints", points=5),
]
RAGGED = ("tags", "boxes", "plain", "joints")
BYTES = ("caption", "notes", "sound")

Copy = Callable[[Path], Path]


@pytest.fixture(scope="module")
def dataset(flat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = Path(shutil.copytree(flat, tmp_path_factory.mktemp("columns") / "packed"))
    return add_fields(copy, [(field, VALUES[field.name]) for field in FIELDS])


def column(dataset: Path, name: str) -> Any:
    return PackedIndex(dataset).column(name)


def samples_of(numbers: list[int]) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


@given(st.lists(st.integers(0, FLAT_IMAGES - 1), max_size=60))
def test_any_samples_in_any_order(dataset: Path, numbers: list[int]) -> None:
    samples = samples_of(numbers)
    for name in ("count", "gaze"):
        got = column(dataset, name).take(samples)
        assert got.tolist() == [VALUES[name][number] for number in numbers]
        assert got.flags.writeable
    for name in RAGGED:
        got = column(dataset, name).take(samples)
        assert len(got.offsets) == len(numbers) + 1
        assert (got.labels is not None) == (name == "boxes")
        for place, number in enumerate(numbers):
            mine = slice(got.offsets[place], got.offsets[place + 1])
            value = VALUES[name][number]
            if name == "boxes":
                assert got.labels[mine].tolist() == value[1].tolist()
                value = value[0]
            assert np.array_equal(got.values[mine], value)
    for name in BYTES:
        assert column(dataset, name).take(samples) == [VALUES[name][number] for number in numbers]


def test_neighbours_are_read_in_one_go(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = column(dataset, "boxes")
    reads = []
    pread = os.pread
    monkeypatch.setattr(
        os, "pread", lambda *arguments: reads.append(arguments) or pread(*arguments)
    )
    boxes.take(np.arange(FLAT_IMAGES)[::-1])
    assert len(reads) == 3  # offsets, boxes, labels


def test_every_truncation_is_an_error(dataset: Path, copied: Copy) -> None:
    """At any length, before it is opened and after, each file."""
    copy = copied(dataset)
    everyone = np.arange(FLAT_IMAGES)
    for field in FIELDS:
        index = PackedIndex(copy)
        for name in index.fields[field.name].files:
            file = copy / FIELDS_FOLDER / name
            whole = file.read_bytes()
            opened = index.column(field.name)
            for length in {*range(0, len(whole), 37), len(whole) - 1}:
                os.truncate(file, length)
                with pytest.raises(DatasetError, match=name) as caught:
                    index.column(field.name)
                assert "fastpipe verify DATA --repair SRC" in str(caught.value)
            with pytest.raises(DatasetError, match="truncated after it was opened"):
                opened.take(everyone)
            file.write_bytes(whole)
            opened.take(everyone)


@pytest.mark.parametrize("name", [field.name for field in FIELDS])
def test_a_flipped_bit_is_an_error_or_another_value(dataset: Path, copied: Copy, name: str) -> None:
    """Never a crash, another exception, or memory for what is not there: of each third byte one of its bits in turn."""
    copy = copied(dataset)
    index = PackedIndex(copy)
    everyone = np.arange(FLAT_IMAGES)
    for file in index.fields[name].files:
        path = copy / FIELDS_FOLDER / file
        whole = path.read_bytes()
        errors = 0
        for at in range(0, min(len(whole), 400), 3):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            with contextlib.suppress(DatasetError):
                index.column(name).take(everyone)
                continue
            errors += 1
        assert errors > 20, "most of the header matters"
        path.write_bytes(whole)


def rewrite(dataset: Path, name: str, change: Callable[[NDArray[Any]], None]) -> None:
    file = dataset / FIELDS_FOLDER / name
    array = np.load(file)
    change(array)
    np.save(file, array)


@pytest.mark.parametrize("name", [*RAGGED, *BYTES])
def test_lying_offsets(dataset: Path, copied: Copy, name: str) -> None:
    copy = copied(dataset)
    everyone = np.arange(FLAT_IMAGES)
    offsets = np.load(copy / FIELDS_FOLDER / f"{name}.offsets.npy")
    count = int(offsets[-1])
    for lie in (-1, -(2**63), 2**63 - 1, count + 1, 2**40):
        rewrite(
            copy,
            f"{name}.offsets.npy",
            lambda array, lie=lie: array.__setitem__(slice(None), offsets),
        )
        rewrite(copy, f"{name}.offsets.npy", lambda array, lie=lie: array.__setitem__(5, lie))
        with pytest.raises(
            DatasetError, match=r"sample [45] cannot have the values .* overlaps no other sample's"
        ):
            column(copy, name).take(everyone)
        column(copy, name).take(np.array([0, 1, 2, 30]))  # others are as before
    rewrite(copy, f"{name}.offsets.npy", lambda array: array.__setitem__(slice(1, -1), 0))
    rewrite(copy, f"{name}.offsets.npy", lambda array: array.__setitem__(7, count))
    with pytest.raises(
        DatasetError, match=r"overlaps no other sample's"
    ):  # 6 and the last both have all of them
        column(copy, name).take(np.array([FLAT_IMAGES - 1, 6]))
    for place, lie in ((0, 1), (-1, count - 1)):
        rewrite(copy, f"{name}.offsets.npy", lambda array: array.__setitem__(slice(None), offsets))
        rewrite(
            copy, f"{name}.offsets.npy", lambda array, p=place, lie=lie: array.__setitem__(p, lie)
        )
        with pytest.raises(
            DatasetError, match=rf"expected offsets from 0 to {count}.*do not belong together"
        ):
            column(copy, name)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("tags", 7, "numbers of classes from 0 to 6, got 7"),
        ("tags", -1, "numbers of classes from 0 to 6, got -1"),
        ("boxes", np.nan, r"finite numbers, x0 at most x1, y0 at most y1, got \[nan"),
        ("plain", 3.0, r"x0 at most x1, y0 at most y1, got \[3\.0"),
        ("joints", np.inf, r"finite numbers, got \[\[inf"),
    ],
)
def test_impossible_values(
    dataset: Path, copied: Copy, name: str, value: float, words: str
) -> None:
    copy = copied(dataset)
    rewrite(
        copy,
        f"{name}.npy",
        lambda array: array.reshape(len(array), -1)[4].__setitem__(slice(0, 1), value),
    )
    sample = (
        int(np.searchsorted(np.load(copy / FIELDS_FOLDER / f"{name}.offsets.npy"), 4, side="right"))
        - 1
    )
    with pytest.raises(
        DatasetError,
        match=rf"{name}\.npy: a value of sample {sample} is impossible: expected .*{words}",
    ):
        column(copy, name).take(np.arange(FLAT_IMAGES)[::-1])


def test_a_caption_of_2_gb_is_refused_before_it_is_read(dataset: Path, copied: Copy) -> None:
    copy = copied(dataset)
    file = copy / FIELDS_FOLDER / "caption.bytes.npy"
    size = 2 << 30
    with file.open("r+b") as values:
        values.truncate(0)
        np.lib.format.write_array_header_1_0(
            values, {"descr": "|u1", "fortran_order": False, "shape": (size,)}
        )
        values.truncate(values.tell() + size)  # a hole
    rewrite(copy, "caption.offsets.npy", lambda array: array.__setitem__(slice(20, None), size))
    rewrite(copy, "caption.offsets.npy", lambda array: array.__setitem__(slice(0, 20), 0))
    opened = column(copy, "caption")
    with pytest.raises(
        DatasetError, match=f"sample 19 cannot have .* of at most {MAX_VALUE_BYTES:,} bytes"
    ):
        opened.take(np.array([3, 19]))
    assert opened.take(np.array([3, 18])) == ["", ""]


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("count.npy", np.zeros(FLAT_IMAGES, dtype=np.int32), "37 rows of int64"),
        ("count.npy", np.zeros(FLAT_IMAGES - 1, dtype=np.int64), "37 rows"),
        (
            "count.npy",
            np.array([print] * FLAT_IMAGES, dtype=object),
            "37 rows",
        ),  # a pickle, which is not loaded
        ("gaze.npy", np.zeros((FLAT_IMAGES, 4), dtype=np.float32), r"37 rows of \('<f4', \(3,\)\)"),
        ("gaze.npy", np.zeros((3, FLAT_IMAGES), dtype=np.float32).T, "37 rows"),
        (
            "boxes.npy",
            np.zeros((5, 5), dtype=np.float32),
            r"any number of rows of \('<f4', \(4,\)\)",
        ),
        ("boxes.labels.npy", np.zeros(1, dtype=np.int64), r".* rows of int64"),
        ("boxes.offsets.npy", np.zeros(FLAT_IMAGES, dtype=np.int64), "38 rows"),
        ("caption.bytes.npy", np.array(5, dtype=np.uint8), "any number of rows"),
    ],
)
def test_files_of_another_dataset(
    dataset: Path, copied: Copy, name: str, array: NDArray[Any], words: str
) -> None:
    copy = copied(dataset)
    np.save(copy / FIELDS_FOLDER / name, array)
    with pytest.raises(
        DatasetError,
        match=rf"{name} is not a complete .npy file of {words}.* as dataset.json has it: got",
    ):
        column(copy, name.partition(".")[0])


def test_no_file_and_no_numbers(dataset: Path, copied: Copy) -> None:
    copy = copied(dataset)
    (copy / FIELDS_FOLDER / "count.npy").unlink()
    with pytest.raises(DatasetError, match=r"count\.npy cannot be opened: No such file"):
        column(copy, "count")
    for width in (0, 2**40):
        with pytest.raises(
            DatasetError,
            match=rf"field 'gaze': expected values of 1 to .* got the shape \({width},\)",
        ):
            open_column(dataset / FIELDS_FOLDER, FLAT_IMAGES, Field("gaze", "floats", width=width))


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("caption", b"\xff", "not valid text .*invalid start byte"),
        ("notes", b"{", "not valid json"),
    ],
)
def test_what_is_no_text(dataset: Path, copied: Copy, name: str, data: bytes, words: str) -> None:
    copy = copied(dataset)
    begin = int(np.load(copy / FIELDS_FOLDER / f"{name}.offsets.npy")[9])
    assert COUNTS[9]
    with (copy / FIELDS_FOLDER / f"{name}.bytes.npy").open("r+b") as file:
        file.seek(128 + begin)
        file.write(data if name == "caption" else data * 4)
    with pytest.raises(
        DatasetError, match=rf"{name}\.bytes\.npy: the value of sample 9 is {words}"
    ):
        column(copy, name).take(np.array([2, 9]))
    assert column(copy, name).take(np.array([2])) == [VALUES[name][2]]


def test_json_of_brackets_alone(dataset: Path, copied: Copy) -> None:
    """Python's parser goes only so deep."""
    copy = copied(dataset)
    add_fields(copy, [(Field("notes", "text"), ["[" * 100_000] * FLAT_IMAGES)])
    with pytest.raises(DatasetError, match="the value of sample 0 is not valid json"):
        open_column(copy / FIELDS_FOLDER, FLAT_IMAGES, Field("notes", "json")).take(np.array([0]))


def failing_after(reads: int) -> Callable[[int, int, int], bytes]:
    """os.pread, for so many calls."""
    pread, left = os.pread, iter(range(reads))

    def read(descriptor: int, size: int, offset: int) -> bytes:
        if next(left, None) is None:
            raise OSError(5, "Input/output error")
        return pread(descriptor, size, offset)

    return read


@pytest.mark.parametrize("name", [field.name for field in FIELDS])
def test_a_disk_that_fails(dataset: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """At each read in turn; afterwards the column works on."""
    opened = column(dataset, name)
    everyone = np.arange(FLAT_IMAGES)
    for reads in range(len(PackedIndex(dataset).fields[name].files)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", failing_after(reads))
            with pytest.raises(
                DatasetError,
                match=rf"{name}\..*npy cannot be read: Input/output error, for .* at byte",
            ):
                opened.take(everyone)
    opened.take(everyone)
