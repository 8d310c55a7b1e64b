"""Commands with a URL as DATA, and `fastpipe cache`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.datasets.packed import flip_unseen
from support.programs.cli_run import failed, fp, succeeded
from support.remote.cases import BATCH, digests
from support.remote.range_server import Fault, RangeServer
from support.running.waiting import wait_until_unused
from support.sources.pack_sources import write_folder

import fastpipe
from fastpipe.dataset.format.folder import Url
from fastpipe.sources.scan.source import UnpackedSource
from fastpipe.tools.doctor import dataset_checks
from fastpipe.tools.doctor.check import Verdict

Loaders = Callable[..., Any]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache that commands use by default."""
    monkeypatch.setenv("FASTPIPE_CACHE", str(tmp_path / "xdg" / "fastpipe"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "xdg" / "fastpipe" / "shards"


def test_inspect(
    remote_packed: Path, range_server: RangeServer, tmp_path: Path, remote_bytes: int
) -> None:
    there = json.loads(succeeded("inspect", range_server.url, "--json", "--no-sheet"))
    here = json.loads(succeeded("inspect", remote_packed, "--json", "--no-sheet"))
    assert there.pop("path") == range_server.url
    assert here.pop("path") == str(remote_packed)
    assert there == here
    name = range_server.url.rsplit("/", 1)[1]
    assert f"40 images drawn to {name}-sheet.png" in succeeded("inspect", range_server.url)
    assert (tmp_path / f"{name}-sheet.png").read_bytes().startswith(b"\x89PNG")


def test_preview(remote_packed: Path, range_server: RangeServer, tmp_path: Path) -> None:
    succeeded("preview", range_server.url, "--rows", 2, "--out", "there.png")
    succeeded("preview", remote_packed, "--rows", 2, "--out", "here.png")
    there = np.array(Image.open("there.png"))
    here = np.array(Image.open("here.png"))
    # The first line has the URL or the path.
    assert np.array_equal(there[18:], here[18:])


def test_verify(
    remote_packed: Path, range_server: RangeServer, copied: Callable[[Path], Path]
) -> None:
    said = succeeded("verify", range_server.url)
    assert f"sound: {range_server.url}: 160 samples in 7 shards" in said
    assert "quick" not in said
    assert "no shard was read" in succeeded("verify", range_server.url, "--quick")
    copy = copied(remote_packed)
    flip_unseen(copy, 123)
    with RangeServer(copy) as server:
        result = fp("verify", server.url)
        assert result.exit_code == 1
        assert "sample 123" in result.stdout
        Path(fastpipe.open(copy).index.where(123)[0]).unlink()
        missing = fp("verify", server.url, "--quick")
        assert missing.exit_code == 1
        assert "HTTP 404" in missing.stdout
        assert "DATA is a URL" in failed(2, "verify", server.url, "--repair", remote_packed)


def test_bench_compares_with_no_other_loader(range_server: RangeServer) -> None:
    assert "--against: the other loaders read files" in failed(
        2, "bench", range_server.url, "--against", "torch"
    )


def test_doctor(range_server: RangeServer, tmp_path: Path) -> None:
    checks = {check.name: check for check in dataset_checks.check_dataset(Url(range_server.url))}
    assert (
        checks["dataset"].found == "160 samples in 7 shards; the index and all sizes are unchanged"
    )
    assert "images/s" in checks["decoding"].found
    assert re.match(
        r"[0-9,]+ MB/s; decoding at this speed needs [0-9,]+ MB/s", checks["link"].found
    )
    range_server.fault = lambda asked: Fault(status=404) if asked.path.startswith("shard") else None
    link = dataset_checks._check_link(fastpipe.open(range_server.url).index, 1.0)
    assert (link.verdict, link.advice) == (Verdict.BAD, "check the network and the server")
    assert "HTTP 404" in link.found


def test_cache_ls_verify_clear(
    remote_packed: Path,
    range_server: RangeServer,
    cache: Path,
    remote_bytes: int,
    open_remote: Loaders,
) -> None:
    for command in ("ls", "verify", "clear"):
        assert "holds no dataset" in succeeded("cache", command)
    with fastpipe.loader(range_server.url, BATCH, size=64, seed=3, drop_last=False) as loader:
        digests(loader)
        (one,) = json.loads(succeeded("cache", "ls", "--json"))["datasets"]
        assert (one["url"], one["samples"], one["in_use"]) == (range_server.url, 160, True)
        assert one["resident_bytes"] == one["shard_bytes"] == remote_bytes <= one["disk_bytes"]
        assert "in use, not removed" in fp("cache", "clear", "--all").stdout
    del loader
    listed = succeeded("cache", "ls")
    assert range_server.url in listed
    assert "100% of 0.01 GB here" in listed
    assert "sound; 160 samples in the cache" in succeeded("cache", "verify")
    flip_unseen(cache / one["fingerprint"], 44)
    assert "1 sample damaged and forgotten" in fp("cache", "verify", range_server.url).stdout
    assert "sound" in succeeded("cache", "verify")
    range_server.forget()
    with (
        open_remote(remote_packed) as local,
        fastpipe.loader(range_server.url, BATCH, size=64, seed=3) as again,
    ):
        assert digests(again) == digests(local)
        assert 0 < again.stats().fetched_bytes <= 2 << 20
    del again
    wait_until_unused(cache)
    assert "has no s3://bucket/other; it has http" in failed(
        2, "cache", "clear", "s3://bucket/other"
    )
    words = failed(2, "cache", "clear")
    assert f"the cache has 1 dataset in {cache} (0.01 GB). To remove one of those that" in words
    assert "fastpipe cache clear DATA. To remove all: fastpipe cache clear --all" in words
    assert "removed: http" in succeeded("cache", "clear", range_server.url)
    assert "holds no dataset" in succeeded("cache", "ls")


def test_cache_verify_of_a_dataset_that_has_only_begun_to_come(cache: Path) -> None:
    begun = cache / ("0" * 32)
    begun.mkdir(parents=True)
    (begun / "url").write_text("s3://bucket/x\n")
    (begun / "dataset.json").write_text("{}")
    assert succeeded("cache", "verify") == "s3://bucket/x: sound; 0 samples in the cache\n"


def test_cache_ls_and_clear_scans(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_folder(tmp_path / name, images=3)
        fastpipe.open(tmp_path / name)
    (tmp_path / "xdg" / "fastpipe" / "scan-0123456789abcdef.bin").write_bytes(b"not a scan")
    found = json.loads(succeeded("cache", "ls", "--json"))["scans"]
    assert [(each["source"], each["files"]) for each in found] == [
        *[("", 0), (str(tmp_path / "one"), 3), (str(tmp_path / "two"), 3)]
    ]
    assert f"scan of {tmp_path / 'one'}: 3 files" in succeeded("cache", "ls")
    assert "scan of" not in succeeded("cache", "ls", "--cache-dir", tmp_path)
    assert f"removed: scan of {tmp_path / 'one'}" in succeeded("cache", "clear", "one")
    assert str(tmp_path / "two") in succeeded("cache", "ls")
    words = failed(2, "cache", "clear")
    assert "the cache has 2 scans (0." in words
    assert "To remove all: fastpipe cache clear --all" in words
    assert "pass either one or --all" in failed(2, "cache", "clear", "one", "--all")
    assert len(json.loads(succeeded("cache", "ls", "--json"))["scans"]) == 2
    assert "removed: scan of nothing: damaged, " in succeeded("cache", "clear", "--all")
    assert json.loads(succeeded("cache", "ls", "--json"))["scans"] == []


def test_inspect_lists_a_source_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "photos", images=3)
    listed: list[str] = []
    listing = UnpackedSource.list_files
    monkeypatch.setattr(
        UnpackedSource, "list_files", lambda self: (listed.append(self.name), listing(self))[1]
    )
    assert "3 images drawn" in succeeded("inspect", "photos")
    assert listed == [str(tmp_path / "photos")]
