"""The GPU benchmark: what it computes of a profile, and the part that runs without a GPU."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.checkout import ROOT

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench.gpu import __main__ as gpu
from bench.gpu import training
from bench.gpu.profile import overlap_of


@pytest.mark.parametrize(
    ("streams", "side_ms", "hidden"),
    [
        ({7: [(0, 10_000)], 13: [(1000, 2000), (3000, 4000)]}, 2.0, 1.0),
        ({7: [(0, 10_000)], 13: [(9000, 12_000)]}, 3.0, 1 / 3),
        (
            {7: [(0, 4000), (4000, 9000)], 13: [(3000, 5000), (4000, 6000)], 17: [(5000, 6000)]},
            3.0,
            1.0,
        ),
        ({7: [(0, 10_000)], 13: [(20_000, 21_000)]}, 1.0, 0.0),
        ({7: [(0, 10_000)]}, 0.0, 0.0),
    ],
)
def test_overlap(
    streams: dict[int, list[tuple[float, float]]], side_ms: float, hidden: float
) -> None:
    found = overlap_of(streams, steps=2)
    assert found["side_ms"] == pytest.approx(side_ms / 2)
    assert found["hidden"] == pytest.approx(hidden)
    assert (
        found["launches"]
        == sum(len(intervals) for stream, intervals in streams.items() if stream != 7) / 2
    )


def test_batches_that_are_ready_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that rests, while another is measured, has its first batches ready."""
    now = [0.0]
    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for number in itertools.count():
            now[0] += 0.0 if number < 8 else 0.005
            yield torch.empty(0), torch.empty(0)

    ms = training.ms_a_step(lambda images, labels: images, batches(), 10, torch.device("cpu"))
    assert ms == pytest.approx(5)


pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = [
    "--batch-size",
    "8",
    "--size",
    "32",
    "--threads",
    "1,2",
    "--seconds",
    "0.1",
    "--rounds",
    "2",
]
SMALL += ["--model", "resnet18", "--steps", "2", "--operations-batch", "4"]


def answers_to(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    gpu.main([*arguments, *SMALL])
    return dict(json.loads(capsys.readouterr().out))


def test_a_question_that_fails_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = answers_to(capsys, str(tmp_path), "--device", "cpu", "--only", "rates,peers")
    assert re.match(r"failed: DatasetError: .*", answers["rates"])
    assert "not asked" in answers["peers"]


def test_unknown_words(flat: Path) -> None:
    for option, value in (("--only", "rates,speed"), ("--only", "memory"), ("--modes", "fast")):
        with pytest.raises(
            SystemExit, match=rf"{option}: expected some of .*; got {value.split(',')[-1]}"
        ):
            gpu.main([str(flat), "--device", "cpu", option, value, *SMALL])
