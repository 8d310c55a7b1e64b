"""Tests of the stall benchmark, bench/stall.py: a short run gives figures, tables and a timeline, which are right."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.checkout import ROOT

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench import stall, stall_chart


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--forms", "small", "--forms: expected some of large, transform, photos; got small"),
        ("--forms", "photos", "needs a folder of photos"),
        ("--feeds", "fast", "--feeds: expected some of single, workers"),
    ],
)
def test_wrong_choices(tmp_path: Path, option: str, value: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        stall.main([option, value, "--work", str(tmp_path), "--out", str(tmp_path)])


def test_the_middle_run_stands_for_all() -> None:
    runs = [{"images_per_s": speed, "median_wait_ms": 1000 / speed} for speed in (300.0, 100.0, 200.0)]
    assert stall.middle(runs) == {"images_per_s": 200.0, "median_wait_ms": 5.0, "slowest": 100.0, "fastest": 300.0}
    assert stall.middle([{"refused": "ValueError"}] * 2) == {"refused": "ValueError"}


def test_figures() -> None:
    # The first step waits for the start; three more wait for 0.1, 0.1 and 0.4 s, and each pause is 0.2 s.
    steps = [(0.0, 2.0, True), (2.2, 0.1, False), (2.5, 0.1, False), (2.8, 0.4, True)]
    found = stall.figures(steps, batch_size=10, step_s=0.2)
    assert found["first_batch_s"] == 2
    assert found["images_per_s"] == pytest.approx(30 / 1.2)
    assert found["median_wait_ms"] == pytest.approx(100)
    assert found["p99_wait_ms"] == pytest.approx(394)
    assert found["longest_wait_ms"] == pytest.approx(400)
    assert found["waiting_share"] == pytest.approx(0.5)


def test_a_timeline_shows_each_wait_where_it_was(tmp_path: Path) -> None:
    steps = [(0.0, 0.01, True), (1.0, 0.1, False), (2.5, 0.2, False)]
    quiet = [(0.0, 0.01, True), (3.0, 0.0, False)]
    runs = [
        {"name": "workers", "label": "B", "caption": "", "steps": steps},
        {"name": "fastpipe", "label": "F", "caption": "", "steps": quiet},
    ]
    stall_chart.draw(tmp_path / "t.png", "title", runs)
    with Image.open(tmp_path / "t.png") as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    theirs = np.abs(pixels - [0x5C, 0x6B, 0x8A]).sum(axis=2) < 12
    heights = theirs.sum(axis=0)
    columns = np.flatnonzero(heights > 6)
    first, second = np.split(columns, np.flatnonzero(np.diff(columns) > 10) + 1)
    left, across = 64, (pixels.shape[1] - 64 - 20) / 3
    for tooth, (asked, waited) in ((first, (1.0, 0.1)), (second, (2.5, 0.2))):
        assert tooth[0] == pytest.approx(left + asked * across, abs=6), "it rises from where the step asked"
        assert tooth[-1] == pytest.approx(left + (asked + waited) * across, abs=2), "and falls where the batch came"
        assert heights[tooth].argmax() >= len(tooth) - 2
    assert heights[first].max() == pytest.approx(heights[second].max() / 2, abs=2)
