"""A dataset that is packed beside a training set, or beside an earlier version, with other numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.pack_sources import jpeg_bytes

import fastpipe
from fastpipe.packing.job.datasets_beside import find_other_version

WORDS = "beside this dataset, numbers"


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
        f"classes: {data}/train, {WORDS} 'cow' 2; here it is 1 (2 classes have other numbers). "
    )
    assert text.endswith(f"(--classes-from {data}/train)")
    # The command that it names.
    again = {"classes_from": data / "train", "overwrite": True}
    assert texts_of(source, data / "pv", **again) == []
    assert fastpipe.open(data / "pv").classes == ["ant", "bee", "cow", "dog"]


@pytest.mark.parametrize("folder", ["data/train_v2", "data/train2", "data_v2/train", "data/new"])
def test_a_new_class_that_is_sorted_first(data: Path, tmp_path: Path, folder: str) -> None:
    source = photos(tmp_path / "second", ["aal", "ant", "bee", "cow", "dog"])
    (text,) = texts_of(source, tmp_path / folder)
    assert text.startswith(
        f"classes: {data}/train, {WORDS} 'ant' 0; here it is 1 (4 classes have other numbers). "
    )
    assert f"let {data}/train grow: fastpipe add SRC {data}/train. For a model" in text
    end = (
        "first, in their order (ant, bee, cow, dog), then the new ones (aal) (--classes-from FILE)"
    )
    assert text.endswith(end)
    # The options that it names.
    (tmp_path / "names.txt").write_text("ant\nbee\ncow\ndog\naal\n")
    again = {"classes_from": tmp_path / "names.txt", "overwrite": True}
    assert texts_of(source, tmp_path / folder, **again) == []
    fastpipe.add(source, data / "train")
    assert fastpipe.open(data / "train").classes == ["ant", "bee", "cow", "dog", "aal"]


def test_some_of_the_classes_in_a_further_training_set(data: Path, tmp_path: Path) -> None:
    (text,) = texts_of(photos(tmp_path / "second", ["cow", "dog"]), data / "train_v3")
    assert text.startswith(f"classes: {data}/train, {WORDS} 'cow' 2; here it is 0 (2 classes")
    assert text.endswith(f"(--classes-from {data}/train)")


def test_the_training_set_of_another_name_beside_both(data: Path, tmp_path: Path) -> None:
    fastpipe.pack(photos(tmp_path / "third", ["car", "cow"]), data / "coco-train")
    source = photos(tmp_path / "second", ["aal", "ant", "bee"])
    (text,) = texts_of(source, data / "new")
    assert text.startswith(f"classes: {data}/train, ")


def test_the_version_that_was_packed_last(data: Path, tmp_path: Path) -> None:
    fastpipe.pack(photos(tmp_path / "second", ["aal", "ant", "bee", "cow"]), data / "train_v2")
    source = photos(tmp_path / "third", ["aal", "ant", "bee", "cow", "dog"])
    assert texts_of(source, data / "train_v3") == []


@pytest.mark.parametrize(
    ("folder", "classes"),
    [
        ("data/val", ["ant", "bee", "cow"]),  # the same numbers
        ("data/birds", ["crow", "dog", "finch", "gull"]),  # another dataset
        ("data/train-2", ["ant", "bee", "cow", "dog", "elk"]),  # a new class behind the others
        ("data/train-birds", ["crow", "dog", "finch", "gull"]),  # another dataset
        ("data/train-pets", ["cat", "dog"]),
        ("data/cars-train", ["cow", "dog"]),  # not a version of train
        ("other/val", ["cow", "dog"]),  # elsewhere
    ],
)
def test_nothing_is_said_of_others(
    data: Path, tmp_path: Path, folder: str, classes: list[str]
) -> None:
    assert data.exists()
    assert texts_of(photos(tmp_path / "second", classes), tmp_path / folder) == []


@pytest.mark.parametrize(
    ("name", "other_name", "are_versions"),
    [
        ("train", "train_v2", True),
        ("photos-3", "photos.2", True),
        ("2024-05", "2025-01", True),
        ("v1", "v2", True),
        ("0", "1", False),
        ("a", "animals", False),
        ("dog", "dogs_and_cats", False),
        ("imagenet", "imagenet-val", False),
        ("1" * 60 + "_x", "train", False),  # a slow pattern would take hours
    ],
)
def test_which_names_are_of_versions(
    tmp_path: Path, name: str, other_name: str, are_versions: bool
) -> None:
    other = tmp_path / "data" / other_name
    other.mkdir(parents=True)
    (other / "dataset.json").write_text("{}")
    expected = other if are_versions else None
    assert find_other_version(tmp_path / "data" / name) == expected
