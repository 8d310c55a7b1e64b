"""Tests of the stall benchmark, bench/stall.py: a short run gives figures, tables and a timeline, which are right."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench import stall, stall_chart  # noqa: E402

SMALL = ["--samples", "40", "--batch-size", "8", "--size", "32", "--workers", "1", "--seconds", "0.3", "--rate", "400"]


def test_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stall.main(["--forms", "large", "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), *SMALL])
    results = json.loads((tmp_path / "out" / "stalls.json").read_text())
    runs = {run["name"]: run for run in results["forms"]["large"]["runs"]}
    assert list(runs) == ["single", "workers", "refused", "restarted", "overloaded", "dataset", "fastpipe"]
    assert "num_workers > 0" in runs["refused"]["refused"]
    for name, run in runs.items():
        if name == "refused":
            continue
        assert len(run["steps"]) >= 4
        assert run["steps"][0][2], "the first step begins an epoch"
        assert 0 < run["images_per_s"] < 450, f"{name}: the training takes no more than 400 images/s"
        assert 0 <= run["median_wait_ms"] <= run["p99_wait_ms"] <= run["longest_wait_ms"]
    table = (tmp_path / "out" / "stalls.md").read_text()
    assert table in capsys.readouterr().out
    assert table.count("\n| ") == 1 + 7
    with Image.open(tmp_path / "out" / "stalls-large.png") as timeline:
        assert timeline.width > 1000
        assert timeline.height > 6 * 100


@pytest.mark.parametrize("form", ["small", "photos"])
def test_a_form_that_cannot_be_made(tmp_path: Path, form: str) -> None:
    with pytest.raises(SystemExit, match="forms" if form == "small" else "needs a folder of photos"):
        stall.main(["--forms", form, "--work", str(tmp_path), "--out", str(tmp_path)])


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
    tallest = heights.max()
    columns = np.flatnonzero(heights > 0.4 * tallest)
    groups = np.split(columns, np.flatnonzero(np.diff(columns) > 1) + 1)
    assert len(groups) == 2, "two long waits, and no more"
    assert heights[groups[0][0]] == pytest.approx(tallest / 2, abs=2)
    left, right = 64, pixels.shape[1] - 20
    assert [group[0] for group in groups] == pytest.approx([left + (right - left) * at / 3 for at in (1.0, 2.5)], abs=2)
