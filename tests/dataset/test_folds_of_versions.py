"""fold with stratify= after `fastpipe add`: the log says how many samples have changed parts."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.datasets.growing import photos

import fastpipe
from fastpipe import warnings_once

WORDS = "of this part were in the rest before"


@pytest.fixture
def grown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Path:
    """A dataset in its second version."""
    warnings_once.forget_all()
    source = photos(tmp_path / "source", 30)
    fastpipe.pack(source, tmp_path / "data")
    photos(source, 12, first=100)
    fastpipe.add(source, tmp_path / "data")
    caplog.clear()
    caplog.set_level(logging.WARNING, "fastpipe")
    return tmp_path / "data"


def test_samples_that_change_parts_are_counted_once(
    grown: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, _ = fastpipe.open(grown, version=1).fold(0, of=3, stratify="label")
    assert caplog.text == ""
    for _ in range(2):
        _, part = fastpipe.open(grown).fold(0, of=3, stratify="label")
    num_changed = len({*before["key"]} & {*part["key"]})
    assert num_changed > 0
    assert f"{num_changed} of the {len(part)} samples {WORDS}" in caplog.text
    assert caplog.text.count(WORDS) == 1


def test_other_folds_are_not_compared(grown: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = fastpipe.open(grown)
    data.fold(0, of=3)
    data.select(range(30)).fold(0, of=3, stratify="label")
    data.with_labels(data.targets).fold(0, of=3, stratify="label")
    assert caplog.text == ""


def test_a_version_before_that_is_gone_is_no_error(
    grown: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (grown / "v1" / "dataset.json").unlink()
    fastpipe.open(grown).fold(0, of=3, stratify="label")
    assert caplog.text == ""
