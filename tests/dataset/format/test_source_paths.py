"""Tests of the sources' paths, read from the notes in the shards."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.running.process_state import open_shards

from fastpipe.dataset.format import source_paths as format_source_paths
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.source_paths import SourcePaths
from fastpipe.errors import DatasetError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions

COUNT = 30


def name_of(number: int) -> str:
    """A path of 5 to 750 characters, so that notes have one block or two."""
    return "/".join(["a", *(["long" * 60] * (number % 4)), f"{number:02d}.png"])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 pictures in several shards, in the order of their names."""
    folder = tmp_path_factory.mktemp("paths")
    for number in range(COUNT):
        file = folder / "source" / name_of(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(
            0, 256, (130, 60 + number, 3), dtype=np.uint8
        )
        Image.fromarray(pixels).save(file)
    pack(folder / "source", folder / "packed", PackOptions(workers=1, shard_size=100_000))
    assert len(PackedIndex(folder / "packed").shards) > 2
    return folder / "packed"


def paths_of(data: Path, samples: list[int]) -> list[str]:
    index = PackedIndex(data)
    numbers = np.array(samples, dtype=np.int64)
    return SourcePaths(index).of(numbers, index.read(numbers))


def test_paths_are_those_of_the_pictures(data: Path) -> None:
    widths = np.asarray(PackedIndex(data).records["width"])
    everyone = np.random.default_rng(0).permutation(COUNT).tolist()
    assert paths_of(data, everyone) == [name_of(int(widths[sample]) - 60) for sample in everyone]
    assert paths_of(data, []) == []


def test_few_shards_are_open_at_a_time(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_source_paths, "_MAX_OPEN_SHARDS", 2)
    index = PackedIndex(data)
    numbers = np.random.default_rng(1).permutation(COUNT)
    records = index.read(numbers)
    paths = SourcePaths(index)
    before = open_shards(data)
    assert len(paths.of(numbers, records)) == COUNT
    assert open_shards(data) == before + 2


def test_a_program_may_change_its_folder(
    data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(data.parent)
    index = PackedIndex(data.name)
    paths = SourcePaths(index)
    monkeypatch.chdir(tmp_path)
    assert paths.of(np.array([3]), index.read(np.array([3]))) == paths_of(data, [3])


def test_a_damaged_note_is_named(data: Path, copied: Callable[[Path], Path]) -> None:
    copy = copied(data)
    index = PackedIndex(copy)
    shard, key, offset = index.where(5)
    whole = Path(shard).read_bytes()
    at = -(-(offset + int(index.records[5]["size"])) // 512) * 512
    expected = paths_of(copy, [5, 6])
    named = whole.index(b'"path": ', at) - at
    for place in (*range(0, 512, 7), 512, named, named + 3):
        flipped = bytearray(whole)
        flipped[at + place] ^= 0x08
        Path(shard).write_bytes(flipped)
        with pytest.raises(
            DatasetError, match=rf"{key}\.json is damaged .*at byte {at}\. Restore it"
        ):
            paths_of(copy, [6, 5])
    Path(shard).write_bytes(whole)
    assert paths_of(copy, [5, 6]) == expected
    os.truncate(shard, at + 100)
    with pytest.raises(DatasetError, match="was truncated after it was opened"):
        paths_of(copy, [5])
