"""What `save_columns` wrote for a version: the next version has it, or says that it has not."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from support.datasets.growing import photos
from support.programs.cli_run import succeeded

import fastpipe
from fastpipe import warnings_once
from fastpipe.errors import ConfigError, DatasetError, PackError

SAMPLES = 12


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A dataset of the classes c0, c1 and c2. Its source is `src` beside it."""
    fastpipe.pack(photos(tmp_path / "src", SAMPLES), tmp_path / "dst")
    return tmp_path / "dst"


def correct_labels(packed: Path) -> dict[str, str]:
    """Saves the class c2 for all samples of c0. The class of each sample by its key."""
    data = fastpipe.open(packed)
    names = {}
    for key in data["key"]:
        folder = key.split("/")[0]
        names[key] = "c2" if folder == "c0" else folder
    data.with_labels(names, classes=data.classes).save_columns(packed)
    return names


def save_scores(packed: Path) -> dict[str, float]:
    data = fastpipe.open(packed)
    scores = np.arange(len(data)) / len(data)
    data.with_column("score", scores).save_columns(packed)
    return dict(zip(data["key"], scores.tolist(), strict=True))


def class_names(packed: Path) -> dict[str, str]:
    data = fastpipe.open(packed)
    return {key: data.classes[label] for key, label in zip(data["key"], data["label"], strict=True)}


def test_removal_keeps_saved_labels_and_columns(packed: Path) -> None:
    names = correct_labels(packed)
    scores = save_scores(packed)
    gone = list(names)[3]
    fastpipe.remove(packed, keys=[gone])
    del names[gone], scores[gone]
    assert class_names(packed) == names
    data = fastpipe.open(packed)
    assert dict(zip(data["key"], data["score"].tolist(), strict=True)) == scores
    with fastpipe.loader(data, 4, size=16, verify=True) as loader:
        assert len(list(loader))
    assert len(fastpipe.open(packed, version=1)["score"]) == SAMPLES


def test_corrected_labels_stay_when_samples_are_added(packed: Path) -> None:
    names = correct_labels(packed)
    source = photos(packed.parent / "src", 4, first=100, classes=4)
    grown = fastpipe.add(source, packed)
    assert grown.added == 4
    expected = dict(names)
    for key in fastpipe.open(packed)["key"]:
        expected.setdefault(key, key.split("/")[0])
    assert class_names(packed) == expected
    assert fastpipe.open(packed).classes == ["c0", "c1", "c2", "c3"]
    (text,) = [str(one) for one in grown.assumed if "save_columns" in one.text]
    assert text.startswith("label: the samples of version 1 keep the labels that save_columns")


def test_columns_that_added_samples_lack_are_named(
    packed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scores = save_scores(packed)
    photos(packed.parent / "src", 2, first=100)
    text = " ".join(succeeded("add", packed.parent / "src", packed).replace("│", " ").split())
    assert "score: save_columns wrote it for version 1, and version 2 lacks it" in text
    assert "version=1)" in text
    warnings_once.forget_all()
    with caplog.at_level(logging.WARNING, "fastpipe"):
        new = fastpipe.open(packed)
        fastpipe.open(packed)
    assert caplog.text.count("save_columns wrote score for version 1") == 1
    # The next version still says it.
    fastpipe.remove(packed, keys=[new["key"][0]])
    caplog.clear()
    new = fastpipe.open(packed)
    assert "save_columns wrote score for version 1; version 3" in caplog.text

    # The lines that the message and the documentation have.
    old = fastpipe.open(packed, version=1)
    values = dict(zip(old["key"], old["score"], strict=True))
    new = new.with_column("score", [values.get(key, -1) for key in new["key"]])
    new.save_columns(packed)
    warnings_once.forget_all()
    caplog.clear()
    again = fastpipe.open(packed)
    assert not caplog.text
    for key, score in zip(again["key"], again["score"], strict=True):
        assert score == scores.get(key, -1)


def test_labels_with_other_classes_are_left_behind(packed: Path) -> None:
    data = fastpipe.open(packed)
    data.with_labels(np.arange(SAMPLES) % 2, classes=["even", "odd"]).save_columns(packed)
    grown = fastpipe.add(photos(packed.parent / "src", 2, first=100), packed)
    (text,) = [str(one) for one in grown.assumed if "save_columns" in one.text]
    assert text.startswith("label: save_columns wrote it for version 1, and version 2 lacks it")
    assert "with_labels([values.get(key, -1) for key in new['key']]" in text
    assert fastpipe.open(packed).classes == ["c0", "c1", "c2"]


def test_nothing_is_said_without_saved_columns(packed: Path) -> None:
    grown = fastpipe.add(photos(packed.parent / "src", 2, first=100), packed)
    assert not [one for one in grown.assumed if "save_columns" in one.text]
    assert not (packed / "columns").exists()


def test_samples_are_chosen_by_saved_columns(packed: Path) -> None:
    names = correct_labels(packed)
    data = fastpipe.open(packed)
    scores = np.arange(SAMPLES)
    vectors = np.zeros((SAMPLES, 2))
    data.with_column("score", scores).with_column("vector", vectors).save_columns(packed)
    with pytest.raises(ConfigError, match=r"^where scor: .* no such column; .*class, score; did"):
        fastpipe.remove(packed, where="scor < 3")
    with pytest.raises(
        ConfigError, match=r"where vector: .* has values that are no single numbers"
    ):
        fastpipe.remove(packed, where="vector < 3")
    assert fastpipe.remove(packed, where="score < 3").removed == 3
    num_c2 = list(names.values())[3:].count("c2")
    assert fastpipe.remove(packed, classes="c2").removed == num_c2
    with pytest.raises(PackError, match="removes all"):
        fastpipe.remove(packed, where="class == c1")


def test_a_damaged_column_stops_the_removal(packed: Path) -> None:
    save_scores(packed)
    (file,) = (packed / "columns").glob("score-*.npy")
    np.save(file, np.arange(3))
    with pytest.raises(DatasetError, match="'score' has 3 rows; expected 12"):
        fastpipe.remove(packed, classes="c0")
    file.write_bytes(b"nothing")
    with pytest.raises(DatasetError, match="'score' cannot be read"):
        fastpipe.remove(packed, classes="c0")
