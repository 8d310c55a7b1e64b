"""Tests of --storage coefficients with every kind of source: tables by way of the spool, manifests, tars of ours."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sources.listed import by_path, class_folders, names_of, shard_bytes, write_lines
from support.sources.pack_sources import digests, jpeg_bytes, saved
from support.sources.tables import jpegs, write_table

import fastpipe
from fastpipe.errors import ConfigError, PackError
from fastpipe.format.index import Index
from fastpipe.packing.pipeline import exchange
from fastpipe.verify.repair import repair
from fastpipe.verify.verification import verify


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several spool files of a small source."""
    monkeypatch.setattr(exchange, "_SPOOLED_BYTES", 6000)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Images of several kinds with labels and a column that becomes a field."""
    images = [*jpegs(27), saved("PNG"), saved(progressive=True), b"no image"]
    columns = {"label": [at % 3 for at in range(30)], "caption": [f"photo {at}" for at in range(30)]}
    return write_table(tmp_path / "source" / "a.parquet", images, **columns)


def epoch(data: Path, *fields: str) -> list[dict[str, Any]]:
    with fastpipe.loader(data, 5, size=32, num_workers=2, fields=("image", "label", "key", *fields)) as loader:
        return [{**batch, "image": batch["image"].numpy().copy()} for batch in loader]


def assert_same_epochs(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert len(one) == len(other) > 0
    for mine, theirs in zip(one, other, strict=True):
        assert mine.keys() == theirs.keys()
        assert np.array_equal(mine["image"], theirs["image"])
        assert np.array_equal(mine["label"], theirs["label"])
        assert all(mine[name] == theirs[name] for name in mine if name not in ("image", "label"))


def test_tables(table: Path, tmp_path: Path, small_runs: None) -> None:
    made = {}
    for storage in ("jpeg", "coefficients"):
        made[storage] = fastpipe.pack(table, tmp_path / storage, storage=storage, workers=2).info
    assert len(list((tmp_path / "coefficients").glob("shard-*.tar"))) == 1
    for name in ("samples", "jpeg_bytes", "counts", "classes"):
        assert made["jpeg"][name] == made["coefficients"][name], name
    assert made["coefficients"]["counts"]["rejected"] == 1
    assert_same_epochs(epoch(tmp_path / "jpeg", "caption"), epoch(tmp_path / "coefficients", "caption"))
    assert verify(tmp_path / "coefficients").sound


def test_a_spool_of_the_other_storage_is_not_used(
    table: Path, tmp_path: Path, small_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack that stops while it assembles leaves its spool; the next pack has another storage."""

    def stop(*_: object) -> Any:
        raise PackError("stopped")

    whole = fastpipe.pack(table, tmp_path / "whole", storage="coefficients")
    with monkeypatch.context() as patched:
        patched.setattr(exchange, "read_ahead", stop)
        with pytest.raises(PackError, match="stopped"):
            fastpipe.pack(table, tmp_path / "packed", storage="jpeg")
    assert list((tmp_path / "packed" / ".pack").rglob("*")), "the spool is there"
    with pytest.raises(PackError, match="storage 'jpeg' there, 'coefficients' now"):
        fastpipe.pack(table, tmp_path / "packed", storage="coefficients")
    again = fastpipe.pack(table, tmp_path / "packed", storage="coefficients", overwrite=True)
    assert again.info["fingerprint"] == whole.info["fingerprint"]
    assert digests(tmp_path / "packed") == digests(tmp_path / "whole")


def test_a_table_is_repaired(table: Path, tmp_path: Path) -> None:
    fastpipe.pack(table, tmp_path / "packed", storage="coefficients")
    before = digests(tmp_path / "packed")
    with open(tmp_path / "packed" / "shard-000000.tar", "r+b") as file:
        file.seek(5_000)
        file.write(b"damage")
    report = verify(tmp_path / "packed")
    assert not report.sound
    assert repair(tmp_path / "packed", table, report, workers=1)
    assert digests(tmp_path / "packed") == before


def test_a_manifest_gives_the_shards_of_the_folder(tmp_path: Path) -> None:
    photos = class_folders(tmp_path / "photos")
    expected = fastpipe.pack(photos, tmp_path / "folder", shard_size=100_000, storage="coefficients")
    rows = [{"path": path, "label": label} for path, label in names_of(photos)]
    source = write_lines(photos / "list.jsonl", *rows)
    summary = fastpipe.pack(source, tmp_path / "listed", shard_size=100_000, storage="coefficients")
    assert summary.info["classes"] == expected.info["classes"]
    assert shard_bytes(tmp_path / "listed") == shard_bytes(tmp_path / "folder")
    assert fastpipe.pack(source, tmp_path / "listed", shard_size=100_000, storage="coefficients").already_packed


def test_fields_of_a_manifest(tmp_path: Path) -> None:
    """With a second picture and a mask, which stay a JPEG and a PNG."""
    photos = tmp_path / "photos"
    photos.mkdir()
    rows = []
    for number in range(6):
        (photos / f"{number}.jpg").write_bytes(jpeg_bytes((60, 40), seed=number))
        (photos / f"left-{number}.jpg").write_bytes(jpeg_bytes((60, 40), seed=50 + number))
        (photos / f"mask-{number}.png").write_bytes(saved("PNG", "L", (60, 40)))
        rows.append({"path": f"{number}.jpg", "left": f"left-{number}.jpg", "seg": f"mask-{number}.png", "n": number})
    source = write_lines(photos / "list.jsonl", *rows)
    found = []
    for storage in ("jpeg", "coefficients"):
        how = {"fields": {"left": "left:image", "seg": "seg:mask", "n": "n"}, "storage": storage}
        fastpipe.pack(source, tmp_path / storage, **how)
        found.append(by_path(tmp_path / storage, "image", "left", "seg", "n"))
    assert found[0].keys() == found[1].keys() == {f"{number}.jpg" for number in range(6)}
    for name, mine in found[0].items():
        for value, other in zip(mine, found[1][name], strict=True):
            assert np.array_equal(value, other), name


def test_shards_of_ours_are_sources_as_tars_are(tmp_path: Path) -> None:
    """Without dataset.json they are WebDataset tars, in which KEY.fpc is the picture."""
    fastpipe.pack(class_folders(tmp_path / "photos"), tmp_path / "packed", storage="coefficients", shuffle=False)
    fastpipe.pack(tmp_path / "photos", tmp_path / "jpeg", shuffle=False)
    (tmp_path / "tars").mkdir()
    for shard in (tmp_path / "packed").glob("shard-*.tar"):
        shutil.copy(shard, tmp_path / "tars")
    fastpipe.pack(tmp_path / "tars", tmp_path / "again", shuffle=False)
    one, other = Index(tmp_path / "jpeg"), Index(tmp_path / "again")
    assert sorted(one.records["xxh3_64"].tolist()) == sorted(other.records["xxh3_64"].tolist())


def test_a_coefficient_file_that_is_damaged_is_rejected(tmp_path: Path) -> None:
    fastpipe.pack(class_folders(tmp_path / "photos", 3), tmp_path / "packed", storage="coefficients")
    index = Index(tmp_path / "packed")
    record = index.records[0]
    with open(index.shards[0].path, "rb") as file:
        file.seek(int(record["offset"]))
        stored = file.read(int(record["size"]))
    (tmp_path / "source" / "a").mkdir(parents=True)
    (tmp_path / "source" / "a" / "whole.fpc").write_bytes(stored)
    (tmp_path / "source" / "a" / "cut.fpc").write_bytes(stored[:-200])
    (tmp_path / "source" / "a" / "newer.fpc").write_bytes(stored[:3] + b"\2" + stored[4:])
    rejected = dict(fastpipe.pack(tmp_path / "source", tmp_path / "again").tally.rejected)
    assert rejected.keys() == {"a/cut.fpc", "a/newer.fpc"}
    assert "damaged" in rejected["a/cut.fpc"]
    assert "version 2; this fastpipe reads version 1" in rejected["a/newer.fpc"]
    assert len(Index(tmp_path / "again")) == 1


def test_no_field_is_called_fpc(tmp_path: Path) -> None:
    """Its members would take the place of the picture."""
    with pytest.raises(ConfigError, match="fpc"):
        fastpipe.Writer(tmp_path / "packed", fields={"fpc": "bytes"})


def test_the_spool_needs_more_room(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = table.stat().st_size
    free = type("Usage", (), {"free": round(1.2 * size)})
    monkeypatch.setattr(exchange.shutil, "disk_usage", lambda _: free)
    fastpipe.pack(table, tmp_path / "jpeg")
    with pytest.raises(PackError, match="are free there"):
        fastpipe.pack(table, tmp_path / "coefficients", storage="coefficients")
