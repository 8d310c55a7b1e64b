"""Datasets of coefficients behind a URL: the same batches as of the folder, and as of JPEGs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.remote.cases import digests
from support.remote.range_server import RangeServer

import fastpipe
from fastpipe.errors import SampleError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.picture.convert import EncodeOptions

Loaders = Callable[..., Any]


@pytest.fixture(scope="module")
def stored(remote_packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same pictures in the same order, as coefficients: packed from the shards."""
    root = tmp_path_factory.mktemp("coefficients")
    how = EncodeOptions(storage="coefficients")
    pack(remote_packed.parent / "source", root / "packed", PackOptions(how, workers=2, shard_size=2_000_000))
    return root / "packed"


@pytest.mark.parametrize("limit", [0, "1GB"])
def test_batches_are_those_of_the_folder_and_of_jpegs(
    stored: Path, remote_packed: Path, open_remote: Loaders, limit: Any
) -> None:
    with RangeServer(stored) as server:
        with open_remote(remote_packed) as jpegs, open_remote(stored) as local:
            expected = digests(jpegs, 2)
            assert digests(local, 2) == expected
        with open_remote(server.url, cache_limit=limit) as remote:
            assert digests(remote, 2) == expected


def test_samples_are_those_of_the_folder(stored: Path, tmp_path: Path) -> None:
    with RangeServer(stored) as server:
        local, remote = fastpipe.open(stored), fastpipe.open(server.url, cache_dir=tmp_path)
        for (image, label), (wanted, name) in zip(
            remote.__getitems__([5, 159, 0]), local.__getitems__([5, 159, 0]), strict=True
        ):
            assert label == name
            assert torch.equal(image, wanted)


def test_a_sample_that_is_damaged_in_the_bucket(stored: Path, open_remote: Loaders, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(stored, tmp_path / "copy"))
    shard, _, offset = fastpipe.open(copy).index.where(123)
    with open(shard, "r+b") as file:
        file.seek(offset + 1000)
        byte = file.read(1)[0]
        file.seek(offset + 1000)
        file.write(bytes([byte ^ 4]))
    with (
        RangeServer(copy) as server,
        open_remote(server.url, train=False) as loader,
        pytest.raises(SampleError, match=r"sample 123 .*fetched again and are no better"),
    ):
        digests(loader)
