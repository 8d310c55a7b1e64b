"""Datasets that are packed anew or repaired while a loader reads them: files are replaced, never written to."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from support.datasets.packed import damage
from support.running.process_state import open_shards
from support.running.soak import Tried

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import DatasetError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.picture.convert import EncodeOptions
from fastpipe.tools.verify.repair import repair
from fastpipe.tools.verify.verification import verify

OTHERS = {
    "another order": PackOptions(shard_size=100_000, seed=9, overwrite=True, workers=1),
    "other pictures": PackOptions(
        EncodeOptions(max_size=64), shard_size=100_000, overwrite=True, workers=1
    ),
}


@pytest.fixture
def source(many_shards: Path) -> Path:
    return many_shards.parent / "source"


@pytest.fixture
def data(many_shards: Path, tmp_path: Path) -> Path:
    """A copy, which is packed anew."""
    return Path(shutil.copytree(many_shards, tmp_path / "data"))


def loader_of(data: Path, open_shards: int = 256, **options: object) -> fastpipe.Loader:
    with mock.patch("fastpipe.engine.engine.most_open_shards", return_value=open_shards):
        return fastpipe.loader(
            data, 2, size=24, train=False, num_workers=2, prefetch_factor=1, **options
        )  # type: ignore[arg-type]


def rows_of(data: Path) -> torch.Tensor:
    with loader_of(data) as loader:
        return torch.cat([images for images, _ in loader])


def wait_until_open(shards: int, data: Path) -> None:
    deadline = time.monotonic() + 300
    while open_shards(data) < shards:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextlib.contextmanager
def never_written_to(data: Path) -> Iterator[None]:
    """That the files which are there at first keep their bytes, whatever takes their names."""
    held = {file: os.open(file, os.O_RDONLY) for file in data.iterdir() if file.is_file()}
    content = {file: file.read_bytes() for file in held}
    yield
    for file, descriptor in held.items():
        assert os.pread(descriptor, 2**24, 0) == content[file], f"{file} was written to"
        os.close(descriptor)


def test_open_shards_stay_what_they_were(data: Path, source: Path, tried: Tried) -> None:
    rows, others = rows_of(data), open_shards(data)
    with loader_of(data) as loader:
        got = []
        for number, (images, _) in enumerate(loader):
            if number == 1:
                wait_until_open(others + len(PackedIndex(data).shards), data)
                with never_written_to(data):
                    pack(source, data, OTHERS["another order"])
            got.append(images.clone())
        assert torch.equal(torch.cat(got), rows)
        assert torch.equal(torch.cat([images for images, _ in loader]), rows), "the next epoch, too"
    new = rows_of(data)
    assert new.shape == rows.shape
    assert not torch.equal(new, rows), "a new loader reads the new dataset"
    tried(
        "pack --overwrite while a loader reads, its shards open",
        1,
        "all batches as ever, byte for byte",
    )


@pytest.mark.parametrize(
    ("other", "verified"), [("other pictures", False), ("another order", True)]
)
def test_shards_that_are_opened_after_the_overwrite(
    data: Path, source: Path, tried: Tried, other: str, verified: bool
) -> None:
    """The files are blamed for nothing. With verify=True also where a shard has the same size by chance."""
    rows = rows_of(data)
    with loader_of(data, open_shards=1, verify=verified) as loader:
        batches = iter(loader)
        got = [next(batches)[0].clone()]
        with never_written_to(data):
            pack(source, data, OTHERS[other])
        with pytest.raises(DatasetError, match="now holds a different dataset") as caught:
            got.extend(images.clone() for images, _ in batches)
        assert torch.equal(torch.cat(got), rows[: 2 * len(got)])
        assert "It was packed again, or replaced, while it is in use" in str(caught.value)
    with loader_of(data) as loader:
        assert len(list(loader)) == 12
    tried(
        "pack --overwrite while a loader reads, its shards not open",
        1,
        "right batches, then an error that says it",
    )


def test_overwritten_before_the_first_batch(data: Path, source: Path, tried: Tried) -> None:
    with loader_of(data) as loader:
        pack(source, data, OTHERS["another order"])
        with pytest.raises(
            DatasetError,
            match=r"now holds a different dataset: expected fingerprint .*Open it again",
        ):
            next(iter(loader))
    tried("pack --overwrite between making a loader and its first batch", 1, "a DatasetError")


def test_repaired_in_mid_epoch(data: Path, source: Path, many_shards: Path, tried: Tried) -> None:
    rows, index = rows_of(many_shards), PackedIndex(many_shards)
    of_shard = np.array(index.records["shard"])
    flipped, gone = index.shards[of_shard[16]].name, index.shards[-1].name
    damage(data, 16)
    (data / gone).unlink()
    with loader_of(data, verify=True, on_error="replace") as loader:
        got = []
        for number, (images, _) in enumerate(loader):
            if number == 1:
                with never_written_to(data):
                    repaired = repair(data, source, verify(data), workers=1)
                assert repaired == [flipped, gone]
            got.append(images.clone())
        good = [row for row in range(24) if row != 16 and of_shard[row] != of_shard[-1]]
        assert torch.equal(torch.cat(got)[good], rows[good])
        assert loader.stats().replaced <= 24 - len(good)
    assert torch.equal(rows_of(data), rows), "whole for a new loader"
    tried(
        "verify --repair while a loader reads",
        1,
        "good batches as ever; a new loader has the rest, too",
    )


def test_an_index_made_anew_in_mid_epoch(
    data: Path, source: Path, many_shards: Path, tried: Tried
) -> None:
    rows = rows_of(many_shards)
    with loader_of(data) as loader:
        batches = iter(loader)
        got = [next(batches)[0].clone()]
        kept = (data / "index.npy").read_bytes()
        (data / "other").write_bytes(kept[:300] + bytes(36) + kept[336:])
        (data / "other").rename(data / "index.npy")
        with never_written_to(data):
            assert repair(data, source, verify(data), workers=1) == ["index.npy"]
        got += [images.clone() for images, _ in batches]
    assert torch.equal(torch.cat(got), rows)
    assert (data / "index.npy").read_bytes() == kept
    tried(
        "verify --repair while a loader reads",
        1,
        "good batches as ever; a new loader has the rest, too",
    )
