"""fastpipe.bench measures each contender in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastpipe.bench import measure
from fastpipe.bench.measure import GROUPS, Result, Task, compare
from fastpipe.errors import FastpipeError

BATCH, SIZE = 9, 24


def task(data: Path) -> Task:
    return Task(str(data), BATCH, workers=1, size=SIZE)


@pytest.fixture(scope="module")
def measured(flat: Path) -> list[Result]:
    return compare(task(flat), ["fastpipe", *GROUPS["torch"]], repeats=1, seconds=0.3, warmup_s=0.05)


def test_measured_figures_are_plausible(measured: list[Result]) -> None:
    assert [result.contender for result in measured] == ["fastpipe", "torch-pil", "torch-cv2"]
    for result in measured:
        figures = result.median
        assert 10 < figures.images_per_s < 1e6
        assert result.slowest == result.fastest == figures.images_per_s
        assert 0 < figures.first_batch_s < 300
        assert figures.cpus is None or 0.01 < figures.cpus < 4
        assert figures.memory_mb is None or 50 < figures.memory_mb < 4000
    assert measured[0].ratio == 1


def test_only_fastpipe_has_stages(measured: list[Result]) -> None:
    ours, *others = [result.median for result in measured]
    for stage in ("read_us", "decode_us", "resize_us", "plan_us"):
        assert 0 < getattr(ours, stage) < 1e5
        assert all(getattr(figures, stage) is None for figures in others)
    busy_us = (ours.read_us or 0) + (ours.decode_us or 0) + (ours.resize_us or 0)
    assert busy_us * ours.images_per_s < 1.5e6, "one thread has a second a second"


def test_a_contender_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(FastpipeError) as caught:
        compare(task(tmp_path / "nowhere"), ["torch-cv2"], repeats=1, seconds=0.1)
    assert str(caught.value).startswith("bench: torch-cv2 failed:\n")
    assert "nowhere does not exist" in str(caught.value)


def test_a_contender_that_is_stuck_is_ended(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_GRACE_S", 0.1)
    with pytest.raises(FastpipeError, match="fastpipe gave no results within 0 s and may be stuck"):
        compare(task(flat), ["fastpipe"], repeats=1, seconds=0.01, warmup_s=0.0)
