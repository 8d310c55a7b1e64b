"""Tests of fastpipe.tools.verify.repair: damaged files come back byte for byte, and nothing else takes their place."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.datasets.packed import damage
from support.programs.cli_run import failed, fp, succeeded
from support.running.soak import Tried
from support.sources.pack_sources import digests, jpeg_bytes

import fastpipe
from fastpipe.dataset.format.description import SELF_CHECKSUM, fingerprint, with_self_checksum
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_FILE, shard_name
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, PackError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.picture.convert import EncodeOptions
from fastpipe.tools.verify.repair import repair
from fastpipe.tools.verify.verification import verify

Files = dict[str, bytes]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `source` and `packed`: several shards, a file that was rejected, options that are not the usual."""
    folder = tmp_path_factory.mktemp("repair")
    rng = np.random.default_rng(8)
    for number in range(16):
        place = folder / "source" / ("ä", "b")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (96 + number, 100, 3), dtype=np.uint8)
        suffix, options = (".png", {}) if number == 5 else (".jpg", {"quality": 95})
        Image.fromarray(pixels).save(place / f"{number}{suffix}", **options)  # type: ignore[arg-type]
    (folder / "source" / "b" / "broken.jpg").write_bytes(b"no picture")
    options = PackOptions(EncodeOptions(tile=16), shard_size=100_000, seed=5, workers=1)
    pack(folder / "source", folder / "packed", options)
    assert len(PackedIndex(folder / "packed").shards) >= 3
    return folder


@pytest.fixture
def work(original: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(original, tmp_path / "work"))


def content(dataset: Path) -> Files:
    return {file.name: file.read_bytes() for file in dataset.iterdir()}


def mend(work: Path) -> list[str]:
    return repair(work / "packed", work / "source", verify(work / "packed"), workers=2)


def remove(dataset: Path) -> None:
    (dataset / shard_name(0)).unlink()


def shorten(dataset: Path) -> None:
    os.truncate(dataset / shard_name(1), 5000)


def change(dataset: Path) -> None:
    damage(dataset, 3)
    damage(dataset, len(PackedIndex(dataset)) - 1)


@pytest.mark.parametrize("harm", [remove, shorten, change])
def test_damaged_shards_come_back_byte_for_byte(work: Path, harm: Callable[[Path], None]) -> None:
    dataset = work / "packed"
    before = content(dataset)
    times = {name: (dataset / name).stat().st_mtime_ns for name in before}
    harm(dataset)
    damaged = {found.file for found in verify(dataset).findings}
    assert set(mend(work)) == damaged
    assert content(dataset) == before
    untouched = before.keys() - damaged
    assert all((dataset / name).stat().st_mtime_ns == times[name] for name in untouched)
    assert verify(dataset).sound


@pytest.mark.parametrize("what", ["row", "head", "gone"])
def test_a_damaged_index_is_made_anew_from_the_shards(work: Path, what: str) -> None:
    dataset = work / "packed"
    before = content(dataset)
    index = dataset / INDEX_FILE
    if what == "gone":
        index.unlink()
    else:
        data = bytearray(index.read_bytes())
        data[100 if what == "head" else -30] ^= 4
        index.write_bytes(data)
    damage_too = shard_name(1)
    (dataset / damage_too).write_bytes(b"")
    assert mend(work) == [damage_too, INDEX_FILE]
    assert content(dataset) == before


def refused(work: Path, words: str) -> None:
    """Repair raises, and leaves everything as it was."""
    before = content(work / "packed")
    with pytest.raises(PackError, match=words):
        mend(work)
    assert content(work / "packed") == before


def test_another_source_is_refused_with_what_differs(work: Path) -> None:
    damage(work / "packed", 3)
    (work / "source" / "new").mkdir()
    shutil.copy(work / "source" / "b" / "1.jpg", work / "source" / "new" / "1.jpg")
    refused(work, r"class 'new' is new; 17 files then, 18 now; .* bytes then")
    shutil.rmtree(work / "source" / "new")
    (work / "source" / "b" / "1.jpg").rename(work / "source" / "b" / "one.jpg")
    refused(work, "the same number of files and bytes, but a path")


def test_other_content_of_the_same_size_is_refused(work: Path) -> None:
    dataset = work / "packed"
    damage(dataset, 3)
    with open(dataset / shard_name(0), "rb") as file:
        data = file.read()
    start = data.index(b'"path": ') + 9
    name = data[start : data.index(b'"', start)].decode()
    path = work / "source" / json.loads(f'"{name}"')
    old = bytearray(path.read_bytes())
    old[old.index(b"\xff\xdb") + 6] ^= 1  # a quantisation step
    path.write_bytes(old)
    refused(work, f"{shard_name(0)} cannot be restored: expected hash .* but kept its size")
    path.write_bytes(b"\0" * len(old))
    refused(work, "could be packed before, but now it cannot: not an image")


def test_dataset_json_must_be_whole(work: Path) -> None:
    damage(work / "packed", 3)
    file = work / "packed" / DATASET_FILE
    file.write_bytes(file.read_bytes().replace(b'"stray_bytes": 0', b'"stray_bytes": 8'))
    refused(work, "dataset.json is damaged, and only this file defines")


@pytest.mark.parametrize(
    "name", ["../planted.tar", "/tmp/planted.tar", "a/planted.tar", "..", "pipe:touch planted"]
)
def test_names_that_lead_elsewhere_are_not_written_to(work: Path, name: str, tried: Tried) -> None:
    """Sealed anew: the description is as whole as one that somebody made up can be."""
    dataset = work / "packed"
    info = json.loads((dataset / DATASET_FILE).read_bytes())
    del info[SELF_CHECKSUM]
    info["shards"][0]["name"] = name
    info["fingerprint"] = fingerprint(info)
    (dataset / DATASET_FILE).write_bytes(with_self_checksum(info)[1])
    (dataset / shard_name(0)).rename(work / "away")
    before = digests(work)
    refused(work, "dataset.json is damaged")
    assert digests(work) == before
    tried(
        "names of shards that lead out of the dataset, repaired",
        1,
        "a named error, nothing is written elsewhere",
    )


def test_a_source_inside_the_dataset_is_refused(work: Path) -> None:
    with pytest.raises(ConfigError, match="must not contain"):
        repair(work / "packed", work / "packed" / "source", verify(work / "packed"))


def test_the_command_repairs(work: Path) -> None:
    dataset = work / "packed"
    before = content(dataset)
    damage(dataset, 3)
    text = succeeded("verify", dataset, "--repair", work / "source")
    assert f"--repair SRC\nrepaired: {shard_name(0)}, as it was packed" in text
    assert content(dataset) == before
    assert "repaired" not in succeeded("verify", dataset, "--repair", work / "source")

    damage(dataset, 3)
    told = json.loads(fp("verify", dataset, "--repair", work / "source", "--json").stdout)
    assert told["repaired"] == [shard_name(0)]
    assert told["bad_samples"] == [[3, 3]]

    damage(dataset, 3)
    assert "does not exist" in fp("verify", dataset, "--repair", work / "nowhere").stderr
    assert "does not exist" in failed(1, "verify", dataset, "--repair", work / "nowhere", "--json")


@pytest.mark.parametrize("packed_of", ["split", "folder"])
def test_a_source_of_other_splits_is_named(tmp_path: Path, packed_of: str) -> None:
    """A dataset of one split is repaired from the folder of all splits, and one of a folder from this folder."""
    source = tmp_path / "source"
    for number in range(6):
        path = source / ("train", "val")[number % 2] / "cat" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg_bytes((30, 20), seed=number))
    data = tmp_path / "data"
    if packed_of == "split":
        fastpipe.pack(source, data, split="train")
        wrong, words = source / "train", "with --split train: pass the folder that holds the splits"
    else:
        fastpipe.pack(source / "train", data)
        wrong, words = source, "of a folder without splits: pass the folder of its split"
    os.truncate(data / "shard-000000.tar", 2000)
    with pytest.raises(PackError, match=words):
        repair(data, wrong, verify(data))
