"""The stall benchmark, bench/stall.py, run for a short time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from PIL import Image
from support.checkout import ROOT

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench import stall

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
        assert 0 < run["images_per_s"] < 450, (
            f"{name}: the training takes no more than 400 images/s"
        )
        assert 0 <= run["median_wait_ms"] <= run["p99_wait_ms"] <= run["longest_wait_ms"]
    table = (tmp_path / "out" / "stalls.md").read_text()
    assert table in capsys.readouterr().out
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(FEEDS)
    assert len({row.count("|") for row in rows}) == 1, "as many cells in each row"
    with Image.open(tmp_path / "out" / "stalls-large.png") as timeline:
        assert timeline.width > 1000
        assert timeline.height > 3 * 100
