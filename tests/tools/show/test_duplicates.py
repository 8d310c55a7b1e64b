"""Pictures that occur more than once: in a packed dataset, in one that grew, in two, and where nothing is packed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.programs.cli_run import failed, succeeded
from support.sources.pack_sources import jpeg_bytes, write_large_folder

import fastpipe


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """12 photos; two of them again, one under another class, and one twice."""
    root = write_large_folder(tmp_path / "source", images=12)
    shutil.copy(root / "class-0" / "00.jpg", root / "class-0" / "again.jpg")
    shutil.copy(root / "class-0" / "00.jpg", root / "class-1" / "and-again.jpg")
    shutil.copy(root / "class-1" / "03.jpg", root / "class-1" / "copy.jpg")
    return root


EXPECTED = [
    ["class-0/00.jpg", "class-0/again.jpg", "class-1/and-again.jpg"],
    ["class-1/03.jpg", "class-1/copy.jpg"],
]


def as_sets(keys: list[list[str]]) -> list[set[str]]:
    return sorted((set(each) for each in keys), key=min)


@pytest.mark.parametrize("storage", ["jpeg", "coefficients", "unpacked"])
def test_in_one_dataset(source: Path, tmp_path: Path, storage: str) -> None:
    data = source
    if storage != "unpacked":
        data = tmp_path / "packed"
        fastpipe.pack(source, data, storage=storage)
    found = fastpipe.duplicates(data)
    assert as_sets(found.group_keys()) == [set(each) for each in EXPECTED]
    assert found.samples == 5
    assert found.contradictions == 1
    assert found.groups == sorted(map(sorted, found.groups))
    assert found.others == [[], []]
    assert found.other_keys() == [[], []]


def test_between_two_however_they_are_stored(source: Path, tmp_path: Path) -> None:
    val = tmp_path / "val"
    (val / "class-1").mkdir(parents=True)
    (val / "class-1" / "new.jpg").write_bytes(jpeg_bytes(seed=99))
    shutil.copy(source / "class-1" / "03.jpg", val / "class-1" / "known.jpg")
    shutil.copy(source / "class-0" / "02.jpg", val / "class-1" / "other.jpg")
    fastpipe.pack(source, tmp_path / "train", max_size=40, quality=70)
    fastpipe.pack(val, tmp_path / "packed-val", storage="coefficients")
    for train in (tmp_path / "train", source, fastpipe.open(tmp_path / "train")):
        for other in (tmp_path / "packed-val", val):
            found = fastpipe.duplicates(train, other)
            pairs = dict(
                zip(map(tuple, map(sorted, found.group_keys())), found.other_keys(), strict=True)
            )
            assert pairs == {
                ("class-1/03.jpg", "class-1/copy.jpg"): ["class-1/known.jpg"],
                ("class-0/02.jpg",): ["class-1/other.jpg"],
            }
            assert found.contradictions == 1


def test_what_was_added_is_found_and_can_be_removed(source: Path, tmp_path: Path) -> None:
    data = tmp_path / "packed"
    fastpipe.pack(source, data)
    more = write_large_folder(tmp_path / "more", images=2)
    (more / "class-0" / "late.jpg").write_bytes((source / "class-1" / "05.jpg").read_bytes())
    for path in more.glob("*/0*.jpg"):
        path.unlink()
    fastpipe.add(more, data)
    found = fastpipe.duplicates(data)
    assert {"class-0/late.jpg", "class-1/05.jpg"} in as_sets(found.group_keys())
    fastpipe.remove(data, keys=[key for group in found.group_keys() for key in group[1:]])
    assert fastpipe.duplicates(data).groups == []
    assert len(fastpipe.open(data)) == 12


def test_the_groups_are_those_of_a_dictionary() -> None:
    from fastpipe.tools.show.duplicates import _repeated

    hashes = np.random.default_rng(1).integers(0, 300, 1000).astype(np.uint64) * np.uint64(
        0x9E3779B97F4A7C15
    )
    expected: dict[int, list[int]] = {}
    for place, value in enumerate(hashes.tolist()):
        expected.setdefault(value, []).append(place)
    assert _repeated(hashes) == sorted(each for each in expected.values() if len(each) > 1)


def test_the_command(source: Path, tmp_path: Path) -> None:
    data = tmp_path / "packed"
    fastpipe.pack(source, data)
    shown = succeeded("inspect", data, "--no-sheet", "--duplicates")
    assert "2 images more than once: 5 samples; 1 image with different classes" in " ".join(
        shown.split()
    )
    assert "class-1/copy.jpg" in shown
    shown = succeeded("inspect", data, "--no-sheet", "--duplicates", "--against", source)
    assert f"12 images in both {data} and {source}: 15 samples" in " ".join(shown.split())
    said = json.loads(succeeded("inspect", data, "--no-sheet", "--duplicates", "--json"))[
        "duplicates"
    ]
    assert as_sets(said["keys"]) == [set(each) for each in EXPECTED]
    fastpipe.pack(write_large_folder(tmp_path / "others", images=3), tmp_path / "single")
    shown = " ".join(
        succeeded("inspect", tmp_path / "single", "--no-sheet", "--duplicates").split()
    )
    assert shown.endswith("no image occurs more than once")
    assert "--against needs --duplicates" in failed(
        2, "inspect", data, "--no-sheet", "--against", source
    )
