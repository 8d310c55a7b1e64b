"""Images of validation with a table or a list, beside class folders of training: ImageNet's val."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from support.programs.cli_run import succeeded
from support.sources.becomes import becomes
from support.sources.listed import refuse_to_list
from support.sources.people import assumed, labels, photos, write

import fastpipe

NAMES = tuple(f"ILSVRC2012_val_{number:08d}" for number in (1, 2, 3, 4))
# Training has a class that sorts first, and that validation lacks.
CLASSES = ("n01440764", "n01443537", "n01484850")
LABELS = ("n01484850", "n01443537", "n01484850", "n01443537")
WANTED = dict(zip((f"{name}.JPEG" for name in NAMES), LABELS, strict=True))


def imagenet(root: Path) -> Path:
    for name in CLASSES:
        photos(root / "train" / name, f"{name}_1.JPEG", f"{name}_2.JPEG")
    photos(root / "val", *(f"{name}.JPEG" for name in NAMES))
    return root


def text_of(form: str) -> str:
    """The labels of the images as a file of this name has them."""
    pairs = zip(NAMES, LABELS, strict=True)
    if form == "LOC_val_solution.csv":
        rows = [f"{name},{label} 1 2 30 20\n" for name, label in pairs]
        return "ImageId,PredictionString\n" + "".join(rows)
    if form == "val_labels.csv":
        return "image,label\n" + "".join(f"{name}.JPEG,{label}\n" for name, label in pairs)
    if form == "val.txt":
        return "".join(f"{name}.JPEG {label}\n" for name, label in pairs)
    return "".join(f"{label}\n" for label in LABELS)


def run_named_command(text: str, packed: Path) -> None:
    """Runs the command `fastpipe pack ... DST ...` that a message names."""
    command = text.partition("fastpipe pack ")[2].partition(". ")[0]
    words = [str(packed) if word == "DST" else word for word in shlex.split(command)]
    succeeded("pack", *words)


@becomes(
    "ImageNet: `val/` with images alone, a table or a list of their labels, and `train/` with class "
    "folders",
    "no labels; the command is named with which the classes have the numbers of train",
    "val_labels.csv --image-root val --classes-from train",
)
@pytest.mark.parametrize(
    "form",
    [
        "LOC_val_solution.csv",
        "val_labels.csv",
        "val.txt",
        "ILSVRC2012_validation_synset_labels.txt",
    ],
)
def test_table_of_val(tmp_path: Path, form: str) -> None:
    source = imagenet(tmp_path / "src")
    write(source / form, text_of(form))
    (text,) = assumed(fastpipe.pack(source / "val", tmp_path / "images"))
    assert text.startswith("labels: none, though ")
    assert f" --classes-from {source / 'train'}. " in text
    run_named_command(text, tmp_path / "packed")
    assert labels(tmp_path) == WANTED
    assert fastpipe.open(tmp_path / "packed").classes == list(CLASSES)


@becomes(
    "the same table by itself, without the option",
    "the classes of the table; that train numbers them otherwise is said",
    "--classes-from train",
)
@pytest.mark.parametrize("form", ["val_labels.csv", "val.txt"])
def test_table_by_itself(tmp_path: Path, form: str) -> None:
    source = imagenet(tmp_path / "src")
    table = write(source / form, text_of(form))
    summary = fastpipe.pack(table, tmp_path / "packed", image_root=source / "val")
    text = assumed(summary)[-1]
    assert text == (
        "classes: those of this table alone, with other numbers than those of train beside the "
        f"images (--classes-from {source / 'train'})"
    )
    options = {"image_root": source / "val", "classes_from": source / "train"}
    summary = fastpipe.pack(table, tmp_path / "packed", overwrite=True, **options)
    assert not any("beside the images" in each for each in assumed(summary))
    assert labels(tmp_path) == WANTED
    # Labels of another kind are no folders of train.
    write(table, text_of(form).replace("n0", "x0"))
    summary = fastpipe.pack(table, tmp_path / "other", image_root=source / "val")
    assert not any("beside the images" in each for each in assumed(summary))


@becomes(
    "Kaggle's ImageNet: `--split val` of the folder with `train/`, `val/` and `LOC_val_solution.csv`",
    "no labels; the table is named, with the options",
    "LOC_val_solution.csv --image-root val --classes-from train",
)
def test_split_val(tmp_path: Path) -> None:
    source = imagenet(tmp_path / "src")
    table = write(source / "LOC_val_solution.csv", text_of("LOC_val_solution.csv"))
    (text,) = assumed(fastpipe.pack(source, tmp_path / "images", split="val"))
    assert f"pass {table} " in text
    assert text.endswith(f"(--image-root {source / 'val'} --classes-from {source / 'train'})")


def test_folder_of_train_for_the_ground_truth(tmp_path: Path) -> None:
    source = imagenet(tmp_path / "src")
    write(source / "devkit/data/ILSVRC2012_validation_ground_truth.txt", "3\n2\n3\n2\n")
    (text,) = assumed(fastpipe.pack(source / "val", tmp_path / "images"))
    assert f" or with the folder of train, which is {source / 'train'}. " in text


def test_a_closed_folder_above_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A user may be called dev, and the folder of all users may be closed.
    folder = tmp_path / "users/dev/flowers"
    photos(folder / "daisy", "1.jpg")
    photos(folder / "rose", "2.jpg")
    refuse_to_list(tmp_path / "users", monkeypatch)
    assert assumed(fastpipe.pack(folder, tmp_path / "packed")) == []
