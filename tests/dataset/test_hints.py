"""Messages about a name or a path that does not exist: the one that was meant, or what to pass."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.programs.cli_run import failed

import fastpipe
from fastpipe.errors import ConfigError, DatasetError, did_you_mean, did_you_mean_path


def test_the_most_similar_name() -> None:
    assert did_you_mean("Cats", ["cat", "dog"]) == "; did you mean 'cat'?"
    assert did_you_mean("gray ", ("RGB", "GRAY")) == "; did you mean 'GRAY'?"
    assert did_you_mean("xyz", ["cat", "dog"]) == ""
    assert did_you_mean(3, []) == ""


def test_the_most_similar_path(tmp_path: Path) -> None:
    (tmp_path / "data/train").mkdir(parents=True)
    for wrong in ("data/trian", "dta/train"):
        hint = did_you_mean_path(tmp_path / wrong)
        assert hint == f"; did you mean {tmp_path / 'data/train'}?"
    assert did_you_mean_path(tmp_path / "dta/gone") == f"; did you mean {tmp_path / 'data'}?"
    assert did_you_mean_path(tmp_path / "photos") == ""


def test_a_wrong_path_is_answered_with_a_similar_one(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(flat.parent)
    wrong = flat.name[:-1]
    message = f"{wrong} does not exist; did you mean {flat.name}\\?$"
    with pytest.raises(DatasetError, match=message):
        fastpipe.open(wrong)
    assert f"did you mean {flat.name}?" in failed(1, "pack", wrong, "new")
    with pytest.raises(DatasetError, match=r"photos does not exist in .*fastpipe pack SRC photos"):
        fastpipe.open("photos")


def test_a_file_of_a_dataset_is_answered_with_its_folder(flat: Path) -> None:
    file = flat / "dataset.json"
    with pytest.raises(DatasetError, match=f"is a file of a dataset; pass its folder: {flat}$"):
        fastpipe.open(file)
    assert f"pass its folder: {flat}" in failed(1, "verify", file)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda flat: fastpipe.loader(flat, 8, fields=["image", "lable"]), "did you mean 'label'"),
        (lambda flat: fastpipe.loader(flat, 8, fields=["image", "path"]), "sample is 'key'"),
        (lambda flat: fastpipe.open(flat)["widht"], "did you mean 'width'"),
        (
            lambda flat: fastpipe.open(flat)["class"],
            r"is 'label', a number: data\.classes has the names, and data\.only\(\['ant'\]\)",
        ),
        (lambda flat: fastpipe.open("s3a://bucket/train"), "did you mean 's3://bucket/train'"),
        (lambda flat: fastpipe.open("gcs://bucket/train"), "did you mean 'gs://bucket/train'"),
        (lambda flat: fastpipe.loader(flat, 8, channels="grey"), "did you mean 'gray'"),
        (lambda flat: fastpipe.loader(flat, 8, dtype="float32"), "pass dtype=torch.float32"),
        (lambda flat: fastpipe.loader(flat, 8, seed=None), "is 0.*seed=torch.initial_seed\\(\\)$"),
        (lambda flat: fastpipe.loader(flat, 8, fields="image"), r"write fields=\('image',\)$"),
        (lambda flat: fastpipe.loader(flat, 8, device="gpu"), "got 'gpu'. Write device=\"cuda\"$"),
        (
            lambda flat: fastpipe.loader(flat, 8, device=-7),
            'got -7, .* and device="cpu" where there',
        ),
        (
            lambda flat: fastpipe.loader(
                flat, 8, shuffle=True, sampler=torch.utils.data.SequentialSampler(range(37))
            ),
            r"of the epoch \(SequentialSampler\): both give the order",
        ),
        (lambda flat: fastpipe.loader(flat, 8, collate_fn=list), "fields= says what .* prepare="),
        (
            lambda flat: fastpipe.loader(flat, 8, prepare=lambda batch: batch),
            r'prepare= needs fields=: .* Add fields=\("image", "label"\)',
        ),
        (
            lambda flat: fastpipe.loader(flat, 32, sampler=fastpipe.PerClass(classes=8, samples=4)),
            r"needs 8 classes to fill batch_size=32, but the dataset has 3\. "
            r"Pass PerClass\(classes=2, samples=16\)",
        ),
        (
            lambda flat: fastpipe.loader(flat, 8, sampler=fastpipe.Weighted({"ants": 2})),
            "no sample with the source path 'ants', nor a class of this name; did you mean 'ant'\\?$",
        ),
    ],
)
def test_a_wrong_value_is_answered_with_a_right_one(
    flat: Path, wrong: Callable[[Path], Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        wrong(flat)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("map", r"data\.with_column\(name, values\).*data\.with_transform"),
        ("labels", r"use data\.targets for the labels$"),
        ("filter", r"data\.select"),
        ("train_test_split", r"data\.fold\(0, of=5\)"),
        ("clases", "did you mean 'classes'"),
    ],
)
def test_methods_of_other_datasets_are_answered_with_those_here(
    flat: Path, name: str, words: str
) -> None:
    with pytest.raises(AttributeError, match=f"a fastpipe dataset has no '{name}'.*{words}"):
        getattr(fastpipe.open(flat), name)


def test_a_dataset_can_still_be_copied(flat: Path) -> None:
    data = fastpipe.open(flat)
    assert len(copy.deepcopy(data)) == len(data)
    assert not hasattr(data, "_no_such_name")


class Photos(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 3


def test_a_dataset_of_python_is_answered_with_the_writer() -> None:
    with pytest.raises(ConfigError, match=r"a Dataset written in Python.* fastpipe\.Writer"):
        fastpipe.loader(Photos())  # type: ignore[arg-type]


def test_a_dataset_of_python_has_its_article() -> None:
    class ImageFolder(Photos):
        root = "photos/train"

    with pytest.raises(ConfigError, match=r"got an ImageFolder, .*fastpipe pack photos/train DST"):
        fastpipe.loader(ImageFolder())  # type: ignore[arg-type]


def test_a_missing_file_of_keys(flat: Path, tmp_path: Path) -> None:
    words = failed(2, "remove", flat, "--keys", tmp_path / "bad.txt")
    assert "bad.txt does not exist; expected a text file with a source path on each line" in words
    words = failed(2, "remove", flat, "--keys", "s3://bucket/bad.txt")
    assert "--keys: expected a file of this machine, got the URL s3://bucket/bad.txt" in words
    (tmp_path / "bed.txt").touch()
    assert "did you mean" in failed(2, "remove", flat, "--keys", tmp_path / "bad.txt")


def test_a_folder_that_may_not_be_read_is_named(
    flat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the file in it that the program looked for."""
    (tmp_path / "photos/cat").mkdir(parents=True)
    closed = tmp_path / "photos"

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(closed / "metadata.jsonl"))

    def may(path: object, mode: int) -> bool:
        return Path(os.fspath(path)) != closed  # type: ignore[call-overload]

    monkeypatch.setattr("fastpipe.tools.cli.pack.run_pack", refuse)
    monkeypatch.setattr(os, "access", may)
    words = failed(1, "pack", closed, tmp_path / "packed")
    expected = f"cannot read the folder {closed}: permission denied. To allow it: chmod u+rx"
    assert expected in words
    # A loader of the folder says the same.
    monkeypatch.setattr("fastpipe.sources.scan.source.find_source", refuse)
    with pytest.raises(DatasetError, match=re.escape(expected)):
        fastpipe.open(closed)


def test_a_row_whose_file_is_missing_is_not_answered_with_folders_of_classes(
    tmp_path: Path,
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "train.csv").write_text("path,label\nzebra/1.jpg,zebra\n")
    words = failed(
        1, "pack", tmp_path / "train.csv", tmp_path / "new", "--image-root", tmp_path / "photos"
    )
    assert "zebra/1.jpg does not exist" in words
    assert f"The paths of the table are relative to {tmp_path / 'photos'}; --image-root" in words
