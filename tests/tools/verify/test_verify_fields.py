"""verify and --repair of datasets with fields: every changed bit is found, and sidecars come back byte for byte."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.datasets.field_values import FIELDS, sample
from support.programs.cli_run import fp, succeeded
from support.sources.pack_sources import digests, jpeg_bytes
from support.sources.tars import write_tar

import fastpipe
from fastpipe.dataset.format.description import with_self_checksum
from fastpipe.dataset.format.fields import FIELDS_FOLDER
from fastpipe.dataset.format.layout import INDEX_FILE
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import DatasetError, PackError
from fastpipe.tools.verify.repair import repair
from fastpipe.tools.verify.verification import verify


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All kinds of fields, by a Writer."""
    packed = tmp_path_factory.mktemp("written") / "packed"
    with fastpipe.Writer(packed, FIELDS, shard_size=100_000) as writer:
        for number in range(12):
            writer.add(**{**sample(number), "label": None if number == 5 else 0})
    assert len(PackedIndex(packed).shards) > 1
    return packed


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `source`, a tar with texts, and `packed`."""
    folder = tmp_path_factory.mktemp("packed")
    members: dict[str, bytes] = {}
    for number in range(12):
        members |= {
            f"{number}.jpg": jpeg_bytes((140, 128), quality=98, seed=number),
            f"{number}.txt": b"t" * number,
        }
    (folder / "source").mkdir()
    write_tar(folder / "source" / "a.tar", members)
    fastpipe.pack(folder / "source", folder / "packed", shard_size=100_000)
    assert len(PackedIndex(folder / "packed").shards) > 1
    return folder


def damage(file: Path) -> None:
    """Flips a bit in the middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def sidecars(dataset: Path) -> list[str]:
    return sorted(f"{FIELDS_FOLDER}/{file.name}" for file in (dataset / FIELDS_FOLDER).iterdir())


def test_every_flipped_bit_of_sidecars_is_found(written: Path, tmp_path: Path) -> None:
    dataset = Path(shutil.copytree(written, tmp_path / "copy"))
    rng = np.random.default_rng(0)
    for name in sidecars(dataset):
        data = (dataset / name).read_bytes()
        at, bit = int(rng.integers(len(data))), int(rng.integers(8))
        (dataset / name).write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        for quick in (True, False):
            assert [found.file for found in verify(dataset, quick=quick).findings] == [name]
        (dataset / name).write_bytes(data)
    assert verify(dataset).sound


@pytest.mark.parametrize("change", ["missing", "short", "long", "folder"])
def test_a_sidecar_that_is_not_whole_is_found_and_repaired(
    packed: Path, tmp_path: Path, change: str
) -> None:
    work = Path(shutil.copytree(packed, tmp_path / "work"))
    file = work / "packed" / FIELDS_FOLDER / "txt.bytes.npy"
    if change == "short":
        os.truncate(file, file.stat().st_size - 1)
    elif change == "long":
        file.write_bytes(file.read_bytes() + b"x")
    else:
        file.unlink()
    if change == "folder":
        shutil.rmtree(work / "packed" / FIELDS_FOLDER)
    findings = {found.file for found in verify(work / "packed").findings}
    assert findings == {"fields/txt.bytes.npy"} | (
        {"fields/txt.offsets.npy"} if change == "folder" else set()
    )
    assert fp("verify", work / "packed").exit_code == 1
    assert "repaired: fields/txt.bytes.npy" in succeeded(
        "verify", work / "packed", "--repair", work / "source"
    )
    assert digests(work / "packed") == digests(packed / "packed")


def test_all_sidecars_and_the_index_are_rebuilt_from_the_shards(
    written: Path, tmp_path: Path
) -> None:
    dataset = Path(shutil.copytree(written, tmp_path / "copy"))
    names = sidecars(dataset)
    for name in [*names, INDEX_FILE]:
        damage(dataset / name)
    (tmp_path / "empty").mkdir()
    assert sorted(repair(dataset, tmp_path / "empty", verify(dataset))) == sorted(
        [INDEX_FILE, *names]
    )
    assert digests(dataset) == digests(written)


def test_a_damaged_shard_is_packed_again_with_its_fields(packed: Path, tmp_path: Path) -> None:
    work = Path(shutil.copytree(packed, tmp_path / "work"))
    damage(work / "packed" / "shard-000001.tar")
    damage(work / "packed" / FIELDS_FOLDER / "txt.offsets.npy")
    repair(work / "packed", work / "source", verify(work / "packed"))
    assert digests(work / "packed") == digests(packed / "packed")


def test_a_damaged_shard_of_a_writer_says_what_to_do(written: Path, tmp_path: Path) -> None:
    dataset = Path(shutil.copytree(written, tmp_path / "copy"))
    damage(dataset / "shard-000000.tar")
    (tmp_path / "photos" / "a").mkdir(parents=True)
    with pytest.raises(
        PackError, match=r"written by fastpipe\.Writer, .* run the program that wrote it again"
    ):
        repair(dataset, tmp_path / "photos", verify(dataset))


def test_every_flipped_bit_of_a_shard_is_found(written: Path, tmp_path: Path) -> None:
    dataset = Path(shutil.copytree(written, tmp_path / "copy"))
    shard = dataset / "shard-000000.tar"
    data = shard.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(20):
        at = int(rng.integers(len(data)))
        shard.write_bytes(
            data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :]
        )
        assert {found.file for found in verify(dataset).findings} == {shard.name}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "text", "files": {}}, "expected the files"),
        ({"kind": "words"}, "expected one of int, floats"),
        (None, "expected an object"),
    ],
)
def test_a_dataset_json_that_lies_about_fields_is_refused(
    written: Path, tmp_path: Path, entry: object, words: str
) -> None:
    dataset = Path(shutil.copytree(written, tmp_path / "copy"))
    info = {**PackedIndex(dataset).info}
    info.pop("self_xxh3_64")
    info["fields"] = {**info["fields"], "caption": entry}
    (dataset / "dataset.json").write_bytes(with_self_checksum(info)[1])
    with pytest.raises(DatasetError, match=words):
        fastpipe.open(dataset)
    assert not verify(dataset).sound
