"""Tests of fastpipe.packing.job.threads: what a pack writes, counts and refuses."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import PIL
import pytest
import webdataset
import xxhash
from PIL import Image
from support.checkout import PHOTOS
from support.datasets.members import member_of
from support.sources.pack_sources import (
    assert_same_pixels,
    digests,
    files,
    jpeg_bytes,
    saved,
    write_folder,
    write_large_folder,
)

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError
from fastpipe.packing.job.progress import PackProgress
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.picture.convert import EncodeOptions
from fastpipe.sources.picture.jpeg import made_with

SMALL_SHARDS = PackOptions(shard_size=100_000, workers=2)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "source")


@pytest.fixture
def large_source(tmp_path: Path) -> Path:
    return write_large_folder(tmp_path / "source")


@pytest.mark.filterwarnings(
    "ignore:unclosed file:ResourceWarning"
)  # webdataset leaves closing to the collector
def test_shards_open_with_webdataset(source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "packed")
    index = PackedIndex(tmp_path / "packed")
    urls = [str(shard.path) for shard in index.shards]
    samples = list(webdataset.WebDataset(urls, shardshuffle=False, empty_check=False))
    assert [sample["__key__"] for sample in samples] == [
        member_of(index, number) for number in range(24)
    ]
    for sample in samples:
        note = json.loads(sample["json"])
        assert index.classes[int(sample["cls"])] == note["path"].split("/")[0]
        assert_same_pixels(sample["jpg"], (source / note["path"]).read_bytes())
    assert {json.loads(sample["json"])["path"] for sample in samples} == set(files(source))


def test_shards_are_plain_tar_files_and_the_index_is_exact(
    large_source: Path, tmp_path: Path
) -> None:
    pack(large_source, tmp_path / "packed", SMALL_SHARDS)
    index = PackedIndex(tmp_path / "packed")
    assert len(index.shards) >= 6
    sample = 0
    for number, shard in enumerate(index.shards):
        data = shard.path.read_bytes()
        assert len(data) == shard.size_bytes <= 200_000
        assert index.info["shards"][number]["xxh3_64"] == xxhash.xxh3_64_hexdigest(data)
        with tarfile.open(shard.path) as tar:
            members = tar.getmembers()
            assert [member.name.split(".")[1] for member in members] == [
                "cls",
                "jpg",
                "json",
            ] * shard.samples
            for cls, jpg in zip(members[::3], members[1::3], strict=True):
                record = index.records[sample]
                assert jpg.name == f"{member_of(index, sample)}.jpg"
                assert (record["shard"], record["offset"], record["size"]) == (
                    number,
                    jpg.offset_data,
                    jpg.size,
                )
                jpeg = data[jpg.offset_data : jpg.offset_data + jpg.size]
                assert record["xxh3_64"] == xxhash.xxh3_64_intdigest(jpeg)
                assert record["label"] == int(tar.extractfile(cls).read())  # type: ignore[union-attr]
                assert (record["height"], record["width"]) == (128, 140)
                sample += 1
    assert sample == len(index) == 24
    whole_index = index.records.tobytes()
    assert index.info["index"]["xxh3_64"] == xxhash.xxh3_64_hexdigest(whole_index)


def test_the_same_bytes_for_any_number_of_workers_and_every_run(
    large_source: Path, tmp_path: Path
) -> None:
    (large_source / "class-0" / "bad.jpg").write_bytes(b"bad")
    runs = [tmp_path / name for name in ("one", "four", "again")]
    for run, workers in zip(runs, (1, 4, 4), strict=True):
        pack(large_source, run, PackOptions(shard_size=100_000, workers=workers))
    assert digests(runs[0]) == digests(runs[1]) == digests(runs[2])
    assert sorted(digests(runs[0]))[:3] == ["dataset.json", "index.npy", "rejected.jsonl"]


def test_nothing_of_the_machine_is_in_the_output(source: Path, tmp_path: Path) -> None:
    elsewhere = Path(shutil.copytree(source, tmp_path / "else" / "where"))
    for file in elsewhere.rglob("*.jpg"):
        os.utime(file, (1, 1))
        file.chmod(0o600)
    pack(source, tmp_path / "here")
    pack(elsewhere, tmp_path / "there")
    assert digests(tmp_path / "here") == digests(tmp_path / "there")
    with tarfile.open(tmp_path / "here" / "shard-000000.tar") as tar:
        owners = {
            (one.uid, one.gid, one.uname, one.gname, one.mtime, one.mode)
            for one in tar.getmembers()
        }
    assert owners == {(0, 0, "", "", 0, 0o444)}
    content = b"".join(files(tmp_path / "here").values())
    assert str(tmp_path).encode() not in content


def test_what_dataset_json_says(source: Path, tmp_path: Path) -> None:
    (source / "ant" / "a.png").write_bytes(saved("PNG"))
    (source / "bee" / "b.jpg").write_bytes(saved(mode="CMYK"))
    (source / "bee" / "c.jpg").write_bytes(jpeg_bytes()[:-2] + b"stray\xff\xd9")
    (source / "cow" / "d.jpg").write_bytes(b"bad")
    (source / "cow" / "e.gif").write_bytes(
        saved("GIF", save_all=True, append_images=[Image.new("RGB", (9, 9))])
    )
    (source / "dog").mkdir()
    (source / "README").write_bytes(b"beside")
    summary = pack(source, tmp_path / "packed")
    info = json.loads((tmp_path / "packed" / "dataset.json").read_bytes())
    assert info == summary.info
    index = PackedIndex(tmp_path / "packed")
    assert info["samples"] == len(index) == 28
    assert info["classes"] == ["ant", "bee", "cow", "dog"]
    assert (
        info["class_counts"]
        == [9, 10, 9, 0]
        == np.bincount(index.records["label"], minlength=4).tolist()
    )
    assert info["jpeg_bytes"] == index.records["size"].sum() == summary.tally.packed_bytes
    assert info["counts"] == {
        "rejected": 1,
        "reencoded": {"CMYK": 1},
        "png": {"GIF": 1, "PNG": 1},
        "exif_oriented": 0,
        "assumed_shown": 0,
        "stray_bytes": 1,
        "multi_frame": 1,
        "transparent": 0,
    }
    assert info["made_with"] == made_with()
    assert info["made_with"]["pillow"] == PIL.__version__
    in_classes = sum(file.stat().st_size for file in source.rglob("*/*.*"))
    assert (info["packs"][0]["source"]["files"], info["packs"][0]["source"]["bytes"]) == (
        29,
        in_classes,
    )
    assert info["packs"][0]["options"]["seed"] == 0
    assert summary.stray == ["README"]
    assert summary.seconds > 0


def test_rejected_files_are_listed_with_reasons(source: Path, tmp_path: Path) -> None:
    (source / "ant" / "empty.jpg").write_bytes(b"")
    (source / "bee" / "half.jpg").write_bytes(jpeg_bytes()[:700])
    (source / "cow" / "ä.txt").write_bytes(b"words")
    with open(os.fsencode(source) + b"/cow/\xff.jpg", "wb"):
        pass
    os.mkfifo(source / "cow" / "pipe.jpg")
    summary = pack(source, tmp_path / "packed")
    lines = (tmp_path / "packed" / "rejected.jsonl").read_text("utf-8").splitlines()
    rejected = {line["path"]: line["reason"] for line in map(json.loads, lines)}
    assert rejected.pop("bee/half.jpg").startswith("the JPEG is truncated")
    assert rejected.pop("cow/ä.txt").startswith(
        "not an image of a known format: starts with b'words'"
    )
    assert rejected == {
        "ant/empty.jpg": "empty file",
        "cow/\\xff.jpg": "empty file",
        "cow/pipe.jpg": "not a regular file (a folder, pipe, socket or device)",
    }
    assert summary.info["counts"]["rejected"] == 5
    assert summary.info["samples"] == 24


def test_fail_fast_stops_at_the_first_bad_file(source: Path, tmp_path: Path) -> None:
    (source / "ant" / "bad.jpg").write_bytes(b"bad")
    with pytest.raises(PackError, match=r"ant/bad.jpg cannot be packed: not an image") as caught:
        pack(source, tmp_path / "packed", PackOptions(fail_fast=True))
    assert "--on-error" in str(caught.value)
    assert not (tmp_path / "packed" / "dataset.json").exists()
    (source / "ant" / "bad.jpg").write_bytes(jpeg_bytes())
    assert pack(source, tmp_path / "packed", PackOptions(fail_fast=True)).info["samples"] == 25


def test_max_size_shrinks_what_is_larger(large_source: Path, tmp_path: Path) -> None:
    (large_source / "class-0" / "small.jpg").write_bytes(jpeg_bytes((60, 40)))
    summary = pack(
        large_source, tmp_path / "packed", PackOptions(EncodeOptions(max_size=70, quality=80))
    )
    index = PackedIndex(tmp_path / "packed")
    assert Counter(zip(index.records["width"], index.records["height"], strict=True)) == {
        (70, 64): 24,
        (60, 40): 1,
    }
    assert summary.info["counts"]["reencoded"] == {"shrunk": 24}
    assert (
        summary.info["packs"][0]["options"]["max_size"],
        summary.info["packs"][0]["options"]["quality"],
    ) == (70, 80)


def test_progress_counts_up_to_the_end(source: Path, tmp_path: Path) -> None:
    (source / "ant" / "bad.jpg").write_bytes(b"bad")
    seen: list[PackProgress] = []
    pack(source, tmp_path / "packed", on_progress=seen.append)
    assert [one.files for one in seen] == list(range(1, 26))
    assert seen[-1].bytes == seen[-1].total_bytes == sum(map(len, files(source).values()))
    assert (seen[-1].total_files, seen[-1].rejected) == (25, 1)


@pytest.mark.photos
def test_real_photos_are_packed_without_loss(tmp_path: Path) -> None:
    if not PHOTOS.is_dir():
        pytest.skip(f"no photos at {PHOTOS}")
    summary = pack(PHOTOS, tmp_path / "packed")
    assert summary.info["counts"]["rejected"] == 0
    assert summary.info["samples"] == len(files(PHOTOS))
    assert 0.97 <= summary.tally.packed_bytes / summary.tally.source_bytes <= 1.02
    with tarfile.open(tmp_path / "packed" / "shard-000000.tar") as tar:
        for note in [name for name in tar.getnames() if name.endswith(".json")][:30]:
            path = json.load(tar.extractfile(note))["path"]  # type: ignore[arg-type]
            packed = tar.extractfile(note.replace("json", "jpg")).read()  # type: ignore[union-attr]
            assert_same_pixels(packed, (PHOTOS / path).read_bytes())
