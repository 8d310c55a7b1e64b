"""Tests of the stall benchmark, bench/stall.py: what it computes of the steps of a run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.checkout import ROOT

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench import stall


def test_wrong_choices(tmp_path: Path) -> None:
    for option, value, message in (
        ("--forms", "small", "--forms: expected some of large, transform, photos; got small"),
        ("--forms", "photos", "needs a folder of photos"),
        ("--feeds", "fast", "--feeds: expected some of single, workers"),
    ):
        with pytest.raises(SystemExit, match=message):
            stall.main([option, value, "--work", str(tmp_path), "--out", str(tmp_path)])


def test_the_middle_run_stands_for_all() -> None:
    runs = [
        {"images_per_s": speed, "median_wait_ms": 1000 / speed} for speed in (300.0, 100.0, 200.0)
    ]
    assert stall.middle(runs) == {
        "images_per_s": 200.0,
        "median_wait_ms": 5.0,
        "slowest": 100.0,
        "fastest": 300.0,
    }
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
