"""Tests of the stall benchmark, bench/stall.py: a short run gives figures, tables and a timeline, which are right."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.checkout import ROOT

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench import stall, stall_chart

SMALL = [
    "--samples",
    "40",
    "--batch-size",
    "8",
    "--size",
    "32",
    "--workers",
    "1",
    "--seconds",
    "0.3",
    "--rate",
    "400",
    "--rounds",
    "1",
]
FEEDS = ["single", "workers", "refused", "fastpipe"]


def test_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--forms", "large", "--feeds", ",".join(FEEDS)]
    stall.main([*chosen, "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), *SMALL])
    results = json.loads((tmp_path / "out" / "stalls.json").read_text())
    runs = {run["name"]: run for run in results["forms"]["large"]["runs"]}
    assert list(runs) == FEEDS
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
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(FEEDS)
    assert len({row.count("|") for row in rows}) == 1, "as many cells in each row"
    with Image.open(tmp_path / "out" / "stalls-large.png") as timeline:
        assert timeline.width > 1000
        assert timeline.height > 3 * 100


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


def test_the_loader_is_left_out_of_python_transforms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--forms", "transform", "--feeds", "dataset,fastpipe"]
    stall.main([*chosen, "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), *SMALL])
    said = capsys.readouterr().out
    assert "| fastpipe.Dataset in B's DataLoader |" in said
    assert "| fastpipe, a thread a CPU |" not in said


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
