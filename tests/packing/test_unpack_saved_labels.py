"""Corrected labels that `save_columns` wrote -> `fastpipe unpack` sorts the images by these, or says it does not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.datasets.growing import photos
from support.programs.cli_run import succeeded

import fastpipe


@pytest.mark.parametrize("form", ["folder", "webdataset"])
def test_labels_of_the_files(tmp_path: Path, form: str) -> None:
    fastpipe.pack(photos(tmp_path / "src", 12), tmp_path / "packed")
    data = fastpipe.open(tmp_path / "packed")
    labels = np.where(np.arange(12) < 7, 3, np.asarray(data["label"]))
    classes = [*data.classes, "new"]
    corrected = data.with_labels(labels, classes=classes).with_column("score", range(12))
    corrected.save_columns(tmp_path / "packed")

    output = succeeded("unpack", tmp_path / "packed", tmp_path / "again", "--format", form)
    text = " ".join(output.split())

    assert "left out: the columns that save_columns wrote, score" in text
    if form == "folder":
        assert "labels: those that save_columns wrote" in text
        names = [file.parent.name for file in (tmp_path / "again").glob("*/*.jpg")]
        assert Counter(names) == Counter(classes[label] for label in labels)
        again = fastpipe.open(tmp_path / "again")
        assert set(again.classes) == set(classes)
    else:
        assert "labels: those of the shards; save_columns wrote others" in text
        fastpipe.pack(tmp_path / "again", tmp_path / "packed-again")
        again = fastpipe.open(tmp_path / "packed-again")
        assert Counter(again["label"].tolist()) == Counter(data["label"].tolist())
