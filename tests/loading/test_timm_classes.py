"""fastpipe.timm numbers classes as timm does, or refuses."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.timm import TimmLoader, create_dataset, create_loader

NAMES = ["1", "10", "2", "Bee", "ant", "ant10", "ant9", "é"]


def folders(root: Path, classes: Sequence[str]) -> Path:
    for name in classes:
        (root / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16)).save(root / name / "1.jpg")
    return root


def timms_numbers(root: Path) -> dict[str, int]:
    """timm 1.0: the names of folders with images, sorted by parts, of which those of digits are numbers."""

    def natural_key(text: str) -> list[Any]:
        return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text.lower())]

    labels = {Path(folder).name for folder, _, files in os.walk(root) if files}
    return {name: number for number, name in enumerate(sorted(labels, key=natural_key))}


def loader(data: fastpipe.Dataset, **how: Any) -> TimmLoader:
    return create_loader(data, (3, 16, 16), 2, device="cpu", color_jitter=None, **how)


def test_class_folders_have_timms_numbers(tmp_path: Path) -> None:
    random.seed(0)
    folders(tmp_path / "train", random.sample(NAMES, len(NAMES)))
    (tmp_path / "train" / "3").mkdir()  # without an image: timm does not see it
    data = create_dataset("", tmp_path, "train")
    assert data.class_to_idx == timms_numbers(tmp_path / "train")
    assert data.classes == ["1", "2", "10", "ant", "ant9", "ant10", "Bee", "é"]
    for key, label in zip(data["key"], data["label"], strict=True):
        assert data.classes[label] == key.split("/")[0]


def test_a_packed_dataset_says_which_numbers_it_has(tmp_path: Path) -> None:
    source = folders(tmp_path / "src", ["1", "10", "2"])
    fastpipe.pack(source, tmp_path / "packed")
    with pytest.raises(
        ConfigError, match=r"'2' is 2 here, and 1 in timm and its checkpoints.*class_map="
    ):
        create_dataset("", tmp_path / "packed")
    assert create_dataset("", tmp_path / "packed", class_map=tmp_path / "packed").classes == [
        "1",
        "10",
        "2",
    ]
    (tmp_path / "names.txt").write_text("1\n2\n10\n")
    as_timm = create_dataset("", tmp_path / "packed", class_map=str(tmp_path / "names.txt"))
    assert as_timm.class_to_idx == {"1": 0, "2": 1, "10": 2}
    assert create_dataset("", tmp_path / "packed", class_map={"10": 2, "1": 0, "2": 1}).classes == [
        "1",
        "2",
        "10",
    ]
    assert create_dataset("", fastpipe.open(tmp_path / "packed")).classes == ["1", "10", "2"]
    fastpipe.pack(source, tmp_path / "timms", classes_from=tmp_path / "names.txt")
    assert create_dataset("", tmp_path / "timms").classes == ["1", "2", "10"]
    fastpipe.pack(folders(tmp_path / "ab", ["a", "b"]), tmp_path / "same")
    assert create_dataset("", tmp_path / "same").classes == ["a", "b"]


def test_training_and_evaluation_have_the_same(tmp_path: Path) -> None:
    folders(tmp_path / "train", ["1", "2", "10"])
    folders(tmp_path / "val", ["1", "10"])
    training = loader(create_dataset("", tmp_path, "train"), is_training=True)
    with pytest.raises(
        ConfigError, match=r"'10' is 1 in evaluation and 2 in training.*--class-map"
    ):
        loader(create_dataset("", tmp_path / "val"))
    evaluation = create_dataset("", tmp_path, "validation", class_map="train")
    assert (evaluation.classes, evaluation["label"][:].tolist()) == (["1", "2", "10"], [0, 2])
    loader(evaluation).close()
    training.close()


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_split_alone_has_the_numbers_of_training(tmp_path: Path, is_packed: bool) -> None:
    """timm's validate.py opens no other split, so nothing else could tell."""
    folders(tmp_path / "src/train", ["ant", "bee", "cow"])
    (tmp_path / "src/train/cat").mkdir()  # without an image
    folders(tmp_path / "src/val", ["ant", "cow"])
    root = tmp_path / "src"
    if is_packed:
        root = tmp_path / "packed"
        fastpipe.pack(tmp_path / "src/train", root / "train", classes_from=["ant", "bee", "cow"])
        shutil.copytree(tmp_path / "src/val", tmp_path / "alone")
        fastpipe.pack(tmp_path / "alone", root / "val")
        assert fastpipe.open(root / "val").classes == ["ant", "cow"]
    evaluation = create_dataset("", root, "validation")
    assert evaluation.classes == ["ant", "bee", "cow"]
    assert sorted(zip(evaluation["key"], evaluation["label"].tolist(), strict=True)) == [
        ("ant/1.jpg", 0),
        ("cow/1.jpg", 2),
    ]


def test_a_class_that_training_lacks_is_refused(tmp_path: Path) -> None:
    folders(tmp_path / "train", ["ant", "cow"])
    folders(tmp_path / "val", ["ant", "bee"])
    with pytest.raises(ConfigError, match="of the class 'bee', which is not among the 2 names"):
        create_dataset("", tmp_path, "validation")


def test_samples_of_classes_that_the_map_leaves_out(tmp_path: Path) -> None:
    data = create_dataset("", folders(tmp_path, NAMES), class_map={"ant": 0, "2": 1, "zebra": 2})
    assert (data.classes, data["key"][:].tolist()) == (
        ["ant", "2", "zebra"],
        ["2/1.jpg", "ant/1.jpg"],
    )
    with pytest.raises(ConfigError, match="each once"):
        create_dataset("", tmp_path, class_map={"ant": 0, "2": 0})


def test_folders_in_class_folders_are_refused(tmp_path: Path) -> None:
    folders(tmp_path / "animals", ["ant", "bee"])
    folders(tmp_path / "plants", ["elm"])
    assert timms_numbers(tmp_path) == {"ant": 0, "bee": 1, "elm": 2}
    with pytest.raises(ConfigError, match="the innermost folder"):
        create_dataset("", tmp_path)
    assert create_dataset("", fastpipe.open(tmp_path)).classes == ["animals", "plants"]


def test_images_without_classes(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "1.jpg")
    assert create_dataset("", tmp_path).classes == []
