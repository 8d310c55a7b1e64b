"""One split that is packed by itself, beside the training: that its classes have other numbers is said."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.sources.becomes import becomes
from support.sources.pack_sources import jpeg_bytes
from support.sources.people import assumed, photos, write
from support.sources.tables import write_table

import fastpipe

# The class of each image.
CLASSES = {"train": ["ant", "deer", "fox"], "val": ["fox", "deer", "fox"]}


def images(folder: Path) -> list[str]:
    names = [f"{number}.jpg" for number in range(3)]
    photos(folder, *names)
    return names


def write_lines(file: Path, lines: list[str]) -> Path:
    return write(file, "\n".join(lines))


def write_separated(root: Path, split: str) -> Path:
    lines = ["path,tags"]
    for name, label in zip(images(root / split), CLASSES[split], strict=True):
        lines.append(f"{split}/{name},{label}|{label}")
    return write_lines(root / f"{split}.csv", lines)


def write_lists(root: Path, split: str) -> Path:
    lines = []
    for name, label in zip(images(root / split), CLASSES[split], strict=True):
        lines.append(json.dumps({"path": f"{split}/{name}", "tags": [label]}))
    return write_lines(root / f"{split}.jsonl", lines)


def write_flags(root: Path, split: str) -> Path:
    columns = sorted(set(CLASSES[split]))
    lines = [f"path,{','.join(columns)}"]
    for name, label in zip(images(root / split), CLASSES[split], strict=True):
        flags = [str(int(column == label)) for column in columns]
        lines.append(f"{split}/{name},{','.join(flags)}")
    return write_lines(root / f"{split}.csv", lines)


def write_box_lists(root: Path, split: str) -> Path:
    lines = []
    for name, label in zip(images(root / split), CLASSES[split], strict=True):
        row = {"path": f"{split}/{name}", "boxes": [[1, 2, 9, 9]], "classes": [label]}
        lines.append(json.dumps(row))
    return write_lines(root / f"{split}.jsonl", lines)


def write_metadata(root: Path, split: str) -> Path:
    lines = ["file_name,label"]
    for name, label in zip(images(root / split), CLASSES[split], strict=True):
        lines.append(f"{name},{label}")
    write_lines(root / split / "metadata.csv", lines)
    return root / split


def write_objects(root: Path, split: str) -> Path:
    lines = []
    for name, label in zip(images(root / split), CLASSES[split], strict=True):
        objects = {"bbox": [[1, 2, 9, 9]], "categories": [label]}
        lines.append(json.dumps({"file_name": name, "objects": objects}))
    write_lines(root / split / "metadata.jsonl", lines)
    return root / split


def write_tars(root: Path, split: str) -> Path:
    (root / split).mkdir(parents=True)
    with tarfile.open(root / split / "0.tar", "w") as tar:
        for number, label in enumerate(CLASSES[split]):
            for ending, content in (("jpg", jpeg_bytes()), ("cls", label.encode())):
                member = tarfile.TarInfo(f"{number}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return root / split


def write_voc(root: Path, split: str) -> Path:
    for name, label in zip(images(root / split), CLASSES[split], strict=True):
        box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
        size = "<size><width>40</width><height>30</height><depth>3</depth></size>"
        text = f"<annotation><filename>{name}</filename>{size}<object><name>{label}</name>{box}"
        write(root / split / f"{name[0]}.xml", f"{text}</object></annotation>")
    return root / split


def write_parquet(root: Path, split: str) -> Path:
    labels = CLASSES[split]
    write_table(root / split / "0.parquet", [jpeg_bytes() for _ in labels], label=labels)
    return root / split


TAGS = {"fields": ["tags=tags:classes"]}
SOURCES: dict[str, tuple[Callable[[Path, str], Path], dict[str, Any]]] = {
    "separated": (write_separated, {**TAGS, "separator": "|"}),
    "lists": (write_lists, TAGS),
    "flags": (write_flags, {"fields": ["tags=*:classes"]}),
    "lists of boxes": (write_box_lists, {"box_format": "xyxy"}),
    "metadata": (write_metadata, {}),
    "objects": (write_objects, {}),
    "tars": (write_tars, {"label_column": "cls"}),
    "voc": (write_voc, {}),
    "parquet": (write_parquet, {}),
}


def names_in(packed: Path) -> tuple[str, ...]:
    """The classes of the labels, or of the only field that has some."""
    data = fastpipe.open(packed)
    names = [tuple(data.classes)]
    names += [field.names for field in data.fields.values()]
    (only,) = (known for known in names if known)
    return only


@becomes(
    "a table, metadata, tars, VOC or Parquet of val by itself, beside those of train, with classes in "
    "lists, columns, boxes or labels",
    "numbered alone, and named",
    "--classes-from TRAIN",
)
@pytest.mark.parametrize("kind", SOURCES)
def test_a_split_by_itself(tmp_path: Path, kind: str) -> None:
    write_source, options = SOURCES[kind]
    root = tmp_path / "src"
    training = write_source(root, "train")
    source = write_source(root, "val")
    words = f"classes: those of {source.name} alone, with other numbers than those of {training.name} beside it"
    summary = fastpipe.pack(source, tmp_path / "alone", **options)
    (message,) = (line for line in assumed(summary) if line.startswith("classes: "))
    assert message.startswith(words)
    assert names_in(tmp_path / "alone") == ("deer", "fox")

    summary = fastpipe.pack(source, tmp_path / "right", classes_from=training, **options)
    assert not any(line.startswith("classes: ") for line in assumed(summary))
    assert names_in(tmp_path / "right") == ("ant", "deer", "fox")
    summary = fastpipe.pack(training, tmp_path / "training", **options)
    assert not any(line.startswith("classes: ") for line in assumed(summary))


@pytest.mark.parametrize("kind", ["metadata", "objects", "tars", "voc"])
def test_a_split_beside_the_training(tmp_path: Path, kind: str) -> None:
    """It has the numbers of both, and nothing is said."""
    write_source, options = SOURCES[kind]
    root = tmp_path / "src"
    for split in CLASSES:
        write_source(root, split)
    for split in CLASSES:
        summary = fastpipe.pack(root, tmp_path / split, split=split, **options)
        assert not any(line.startswith("classes: ") for line in assumed(summary))
        assert names_in(tmp_path / split) == ("ant", "deer", "fox")


@becomes(
    "--classes-from a source with several splits, or with classes in columns that --field names",
    "the names of all splits",
    "--classes-from SOURCE",
)
def test_names_of_a_source_with_splits(tmp_path: Path) -> None:
    lists = {"train": [["fox"], ["ant"]], "validation": [["fox"], ["deer"]]}
    for split, classes in lists.items():
        file = tmp_path / f"src/data/{split}-00000-of-00001.parquet"
        write_table(file, [jpeg_bytes() for _ in classes], tags=classes)
    other = write_table(tmp_path / "other.parquet", [jpeg_bytes()], tags=[["fox"]])
    for source in (other, file):
        fastpipe.pack(source, tmp_path / source.stem, classes_from=tmp_path / "src", **TAGS)
        assert names_in(tmp_path / source.stem) == ("ant", "deer", "fox")
