"""Remote datasets at length: coefficients in all commands, benchmarks, and a disk that is full."""

from __future__ import annotations

import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.programs.cli_run import succeeded
from support.remote.cases import digests
from support.remote.range_server import RangeServer
from support.running.waiting import wait_until_unused

from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.picture.convert import EncodeOptions

Loaders = Callable[..., Any]


@pytest.fixture
def stored(remote_packed: Path, tmp_path: Path) -> Path:
    """The same pictures in the same order, as coefficients."""
    how = EncodeOptions(storage="coefficients")
    pack(
        remote_packed.parent / "source",
        tmp_path / "stored",
        PackOptions(how, workers=2, shard_size=2_000_000),
    )
    return tmp_path / "stored"


def test_the_commands(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTPIPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with RangeServer(stored) as server:
        assert f"sound: {server.url}: 160 samples" in succeeded("verify", server.url)
        assert "coefficients" in succeeded("inspect", server.url, "--no-sheet")
        succeeded("preview", server.url, "--rows", 2, "--out", "there.png")
    succeeded("preview", stored, "--rows", 2, "--out", "here.png")
    # The first line of the title names the dataset.
    there, here = (np.asarray(Image.open(name)) for name in ("there.png", "here.png"))
    assert np.array_equal(there[20:], here[20:])
    with RangeServer(stored) as server:
        succeeded("unpack", server.url, tmp_path / "there", "--format", "webdataset")
    succeeded("unpack", stored, tmp_path / "here", "--format", "webdataset")
    for shard in stored.glob("shard-*.tar"):
        assert (tmp_path / "there" / shard.name).read_bytes() == (
            tmp_path / "here" / shard.name
        ).read_bytes()
    with tarfile.open(next(stored.glob("shard-*.tar"))) as tar:
        assert any(name.endswith(".fpc") for name in tar.getnames())


def test_bench(range_server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTPIPE_CACHE", str(tmp_path / "cache"))
    said = succeeded(
        "bench",
        range_server.url,
        "--seconds",
        0.2,
        "--repeats",
        1,
        "--batch-size",
        16,
        "--size",
        32,
    )
    assert "160 samples" in said


def test_a_real_full_disk(
    local_digests: Callable[..., list[str]],
    range_server: RangeServer,
    open_remote: Loaders,
    tmp_path: Path,
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=5m", "none", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount")
    try:
        with open_remote(range_server.url, cache_dir=disk) as remote:
            assert digests(remote, 2) == local_digests(2)
        del remote
        wait_until_unused(disk)
        time.sleep(0.3)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
