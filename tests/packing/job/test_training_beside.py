"""A validation set that is packed beside a training set, whose classes have other numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.pack_sources import jpeg_bytes

import fastpipe

WORDS = "beside this dataset, has the classes"


def photos(folder: Path, classes: list[str]) -> Path:
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        (folder / name / f"{number}.jpg").write_bytes(jpeg_bytes((32, 24), seed=number))
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with the dataset `train` of ant, bee, cow and dog."""
    fastpipe.pack(photos(tmp_path / "first", ["ant", "bee", "cow", "dog"]), tmp_path / "data/train")
    return tmp_path / "data"


def texts_of(source: Path, destination: Path, **options: object) -> list[str]:
    summary = fastpipe.pack(source, destination, **options)  # type: ignore[arg-type]
    return [str(one) for one in summary.assumed if WORDS in one.text]


def test_other_numbers_than_those_of_the_training_set(data: Path, tmp_path: Path) -> None:
    source = photos(tmp_path / "second", ["ant", "cow", "dog"])
    (text,) = texts_of(source, data / "pv")
    assert text.startswith(
        f"classes: {data}/train, {WORDS} ant, bee, cow, dog; here cow, dog have other numbers. "
    )
    assert text.endswith(f"(--classes-from {data}/train)")
    # The command that it names.
    again = {"classes_from": data / "train", "overwrite": True}
    assert texts_of(source, data / "pv", **again) == []
    assert fastpipe.open(data / "pv").classes == ["ant", "bee", "cow", "dog"]


@pytest.mark.parametrize(
    ("folder", "classes"),
    [
        ("data/val", ["ant", "bee", "cow"]),  # the same numbers
        ("data/birds", ["crow", "dog", "finch", "gull"]),  # another dataset
        ("data/train-2", ["cow", "dog"]),  # a training set
        ("other/val", ["cow", "dog"]),  # elsewhere
    ],
)
def test_nothing_is_said_of_others(
    data: Path, tmp_path: Path, folder: str, classes: list[str]
) -> None:
    assert data.exists()
    assert texts_of(photos(tmp_path / "second", classes), tmp_path / folder) == []
