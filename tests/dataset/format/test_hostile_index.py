"""Tests of an index and a description that lie: a named error or the true pictures; no code of theirs runs."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.datasets.field_columns import hash_index
from support.pictures.drawn import FLAT_IMAGES
from support.running.soak import Tried, times

import fastpipe
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_DTYPE, INDEX_FILE
from fastpipe.errors import DatasetError

Copy = Callable[[Path], Path]


def batch(dataset: Path) -> torch.Tensor:
    """All pictures, small."""
    options = {
        "batch_size": FLAT_IMAGES,
        "size": 8,
        "train": False,
        "shuffle": False,
        "num_workers": 1,
    }
    with fastpipe.loader(dataset, **options) as loader:  # type: ignore[arg-type]
        return next(iter(loader))[0]


@pytest.fixture(scope="module")
def true(flat: Path) -> torch.Tensor:
    return batch(flat)


def refused(dataset: Path, true: torch.Tensor) -> DatasetError | None:
    """The error, in which a user finds the place; None if the pictures are the true ones. All else fails the test."""
    found = None
    try:
        assert torch.equal(batch(dataset), true)
    except DatasetError as problem:
        found = problem
    assert found is None or str(dataset) in str(found)
    return found


def lie(dataset: Path, sample: int, **changes: int) -> None:
    records = np.load(dataset / INDEX_FILE)
    for name, value in changes.items():
        records[name][sample] = value
    np.save(dataset / INDEX_FILE, records)
    hash_index(dataset)


@pytest.mark.parametrize("name", [INDEX_FILE, DATASET_FILE])
def test_truncated_anywhere(flat: Path, copied: Copy, name: str, tried: Tried) -> None:
    dataset = copied(flat)
    whole = (dataset / name).read_bytes()
    end = len(whole.rstrip())
    lengths = sorted({*range(0, end, times(5, 1)), *range(120, 136), *range(end - 20, end)})
    for length in lengths:
        (dataset / name).write_bytes(whole[:length])
        with pytest.raises(DatasetError, match=r"pack the source again|fastpipe dataset"):
            fastpipe.open(dataset)
    tried(f"{name} truncated at every byte", len(lengths), "a named error")


@pytest.mark.parametrize("name", [INDEX_FILE, DATASET_FILE])
def test_flipped_bits(
    flat: Path, copied: Copy, true: torch.Tensor, name: str, tried: Tried
) -> None:
    dataset = copied(flat)
    whole = (dataset / name).read_bytes()
    errors, rng = 0, np.random.default_rng(3)
    count = min(times(60, 50_000), 8 * len(whole))
    for bit in rng.choice(8 * len(whole), count, replace=False).tolist():
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (dataset / name).write_bytes(flipped)
        errors += refused(dataset, true) is not None
    assert errors > count / 20
    tried(f"one bit of {name} flipped, loaded", count, "a named error, or the same pictures")


LIES: list[dict[str, int]] = [
    {"offset": 0},
    {"offset": 1},
    {"offset": 2**63 - 1},
    {"size": 1},
    {"size": 2},
    {"size": 100},
    {"width": 1},
    {"width": 65535},
    {"width": 65535, "height": 65535},
    {"width": 65500, "height": 65500},
    {"height": 60},
    {"label": 2**63 - 1},
    {"label": -(2**63)},
    {"shard": 2**31},
]


def test_rows_that_lie(flat: Path, copied: Copy, true: torch.Tensor, tried: Tried) -> None:
    dataset = copied(flat)
    whole = (dataset / INDEX_FILE).read_bytes()
    description = (dataset / DATASET_FILE).read_bytes()
    for changes in LIES:
        lie(dataset, 5, **changes)
        problem = refused(dataset, true)
        assert re.search("sample [456] ", str(problem)), (
            changes
        )  # a lie may make its neighbours look wrong
        with pytest.raises(DatasetError, match="sample 5 "):
            fastpipe.open(dataset)[5]
        assert len(fastpipe.open(dataset)[7]) == 2
        (dataset / INDEX_FILE).write_bytes(whole)
        (dataset / DATASET_FILE).write_bytes(description)
    tried("a field of a row of the index lies", len(LIES), "a named error")


def test_rows_that_point_at_others(
    flat: Path, tmp_path: Path, true: torch.Tensor, tried: Tried
) -> None:
    """At the shard's end, into the next member, at a whole other one, and with more bytes than are its own."""
    records = np.load(flat / INDEX_FILE)
    shard_bytes = (flat / "shard-000000.tar").stat().st_size
    size, offset, other = (
        int(records["size"][5]),
        int(records["offset"][5]),
        int(records["offset"][6]),
    )
    for number, changes in enumerate(
        [
            {"offset": shard_bytes - 1},
            {"offset": shard_bytes - size},
            {"offset": offset + 512},
            {"offset": offset - 512},
            {"offset": other},
            {"offset": other, "size": int(records["size"][6])},
            {"size": shard_bytes - offset},
        ]
    ):
        dataset = Path(shutil.copytree(flat, tmp_path / str(number)))
        lie(dataset, 5, **changes)
        assert refused(dataset, true) is not None, changes
        with pytest.raises(DatasetError, match="sample 5 "):
            fastpipe.open(dataset)[5]
    tried("a row of the index points outside the shard, or into another member", 7, "a named error")


def test_rows_of_pictures_that_look_alike(many_shards: Path, tmp_path: Path) -> None:
    """All are of one size: a row that points at another would give the wrong picture."""
    records = np.load(many_shards / INDEX_FILE)
    pairs = [(0, 23), (23, 0), (0, 1), (1, 0), (5, 6), (6, 5)]
    for number, (sample, other) in enumerate(pairs):
        dataset = Path(shutil.copytree(many_shards, tmp_path / str(number)))
        lie(
            dataset,
            sample,
            **{name: int(records[name][other]) for name in ("shard", "offset", "size")},
        )
        with pytest.raises(DatasetError, match=f"record of sample {sample} is impossible"):
            fastpipe.open(dataset)[sample]
        with pytest.raises(DatasetError, match=r"record of sample \d+ is impossible"):
            fastpipe.open(dataset).index.read(np.arange(24))


class Planted:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.file),)


def test_no_pickle_is_loaded(flat: Path, copied: Copy, tmp_path: Path, tried: Tried) -> None:
    dataset, planted = copied(flat), tmp_path / "planted"
    objects, archive = io.BytesIO(), io.BytesIO()
    np.save(objects, np.array([Planted(planted)] * FLAT_IMAGES, dtype=object), allow_pickle=True)
    np.savez(archive, np.array([Planted(planted)], dtype=object))
    for content in (objects.getvalue(), archive.getvalue(), pickle.dumps(Planted(planted))):
        for name in (INDEX_FILE, DATASET_FILE):
            whole = (dataset / name).read_bytes()
            (dataset / name).write_bytes(content)
            with pytest.raises(DatasetError, match="pack the source again"):
                fastpipe.open(dataset)
            (dataset / name).write_bytes(whole)
    assert not planted.exists()
    pickle.loads(pickle.dumps(Planted(planted)))  # noqa: S301 - so it would have been
    assert planted.exists()
    tried(
        "a pickle, or an array of objects, for index.npy or dataset.json",
        6,
        "a named error, no code runs",
    )


HEADER = "{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"


HEADERS = [
    "-" * 9000 + "1",
    "(" * 9000,
    "[" * 4000 + "]" * 4000,
    "{[]: 1}",
    "{1: 2, 'descr': 3}",
    "__import__('os').mkdir('planted')",
    HEADER.format(descr="__import__('os').mkdir('planted')", shape="(37,)"),
    HEADER.format(descr="'|O'", shape="(37,)"),
    HEADER.format(descr="'V0'", shape="(37,)"),
    HEADER.format(descr=INDEX_DTYPE.descr, shape="(True,)"),
    HEADER.format(descr=INDEX_DTYPE.descr, shape="(-1,)"),
    HEADER.format(descr=INDEX_DTYPE.descr, shape=f"({10**15},)"),
    HEADER.format(descr=INDEX_DTYPE.descr, shape=f"({10**30},)"),
    HEADER.format(descr=INDEX_DTYPE.descr, shape="(37, 1)"),
    HEADER.format(descr="'<f8\\ud800'", shape="(37,)"),
    "\0\0\0",
]


def test_headers_of_npy_that_are_made_up(
    flat: Path, copied: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = copied(flat)
    data = (dataset / INDEX_FILE).read_bytes()[-FLAT_IMAGES * INDEX_DTYPE.itemsize :]
    for header in HEADERS:
        text = header.encode("latin1")
        text += b" " * (-(10 + len(text)) % 64)
        (dataset / INDEX_FILE).write_bytes(
            b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data
        )
        with pytest.raises(DatasetError, match="pack the source again") as caught:
            fastpipe.open(dataset)
        assert len(str(caught.value)) < 1000
        assert not Path("planted").exists()


def test_counts_that_lie(flat: Path, copied: Copy) -> None:
    """Nothing is made as large as dataset.json says."""
    dataset = copied(flat)
    info = json.loads((dataset / DATASET_FILE).read_text())
    shard = {**info["shards"][0], "samples": 10**15}
    (dataset / DATASET_FILE).write_text(json.dumps({**info, "samples": 10**15, "shards": [shard]}))
    with pytest.raises(
        DatasetError, match=r"not a complete .npy file of 1,000,000,000,000,000 rows"
    ):
        fastpipe.open(dataset)
