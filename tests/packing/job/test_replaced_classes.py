"""A dataset that is packed with --overwrite, whose classes have other numbers than before."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.pack_sources import jpeg_bytes

import fastpipe

WORDS = "than in the dataset that was replaced"


def photos(folder: Path, classes: list[str]) -> Path:
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / f"{number}.jpg").write_bytes(jpeg_bytes((32, 24), seed=number))
    return folder


def pack_again(source: Path, destination: Path, **options: object) -> list[str]:
    summary = fastpipe.pack(source, destination, overwrite=True, **options)  # type: ignore[arg-type]
    return [str(one) for one in summary.assumed if WORDS in one.text]


def test_a_new_class_that_is_sorted_before_the_others(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", ["bee", "cow"])
    fastpipe.pack(source, tmp_path / "dst")
    photos(source, ["ant"])
    (text,) = pack_again(source, tmp_path / "dst")
    assert f"other numbers {WORDS}: 'bee' was 0 and is 1, 'cow' was 1 and is 2. " in text
    assert text.endswith("first, in their order: bee, cow (--classes-from FILE)")
    # The command that it names.
    (tmp_path / "names.txt").write_text("bee\ncow\nant\n")
    assert pack_again(source, tmp_path / "dst", classes_from=tmp_path / "names.txt") == []
    assert fastpipe.open(tmp_path / "dst").classes == ["bee", "cow", "ant"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["bee", "cow"], ["bee", "cow"]),
        (["bee", "cow"], ["bee", "cow", "dog"]),
        (["bee", "cow", "dog"], ["ant", "bee", "elk"]),  # most of the classes are others
        (["1", "2"], ["0", "1", "2"]),  # numbers are no names
    ],
)
def test_nothing_to_say(tmp_path: Path, before: list[str], after: list[str]) -> None:
    fastpipe.pack(photos(tmp_path / "before", before), tmp_path / "dst")
    assert pack_again(photos(tmp_path / "after", after), tmp_path / "dst") == []


def test_a_folder_without_a_dataset(tmp_path: Path) -> None:
    assert pack_again(photos(tmp_path / "src", ["bee", "cow"]), tmp_path / "dst") == []


def test_a_damaged_dataset(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", ["bee", "cow"])
    fastpipe.pack(source, tmp_path / "dst")
    file = tmp_path / "dst/dataset.json"
    file.write_bytes(file.read_bytes().replace(b'"classes"', b'"klasses"'))
    assert pack_again(source, tmp_path / "dst") == []
