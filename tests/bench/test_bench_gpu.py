"""The GPU benchmark: what it computes of a profile, and the part that runs without a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from checkout import ROOT

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench import gpu


@pytest.mark.parametrize(
    ("streams", "side_ms", "hidden"),
    [
        ({7: [(0, 10_000)], 13: [(1000, 2000), (3000, 4000)]}, 2.0, 1.0),
        ({7: [(0, 10_000)], 13: [(9000, 12_000)]}, 3.0, 1 / 3),
        ({7: [(0, 4000), (4000, 9000)], 13: [(3000, 5000), (4000, 6000)], 17: [(5000, 6000)]}, 3.0, 1.0),
        ({7: [(0, 10_000)], 13: [(20_000, 21_000)]}, 1.0, 0.0),
        ({7: [(0, 10_000)]}, 0.0, 0.0),
    ],
)
def test_overlap(streams: dict[int, list[tuple[float, float]]], side_ms: float, hidden: float) -> None:
    found = gpu.overlap_of(streams)
    assert found["side_ms"] == pytest.approx(side_ms)
    assert found["hidden"] == pytest.approx(hidden)


def test_without_a_gpu_the_rest_is_measured(flat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(flat), "--device", "cpu", "--batch-size", "8", "--threads", "1,2", "--seconds", "0.1"]
    gpu.main([*arguments, "--json", str(tmp_path / "out.json")])
    answers = json.loads((tmp_path / "out.json").read_text())
    assert answers == json.loads(capsys.readouterr().out)
    assert set(answers["images_per_s_by_threads"]) == {"1", "2"}
    assert all(rate > 0 for rate in answers["images_per_s_by_threads"].values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_gpu_that_is_not_there(flat: Path) -> None:
    with pytest.raises(SystemExit, match="no CUDA device; pass --device cpu"):
        gpu.main([str(flat)])


@pytest.mark.gpu
def test_all_questions(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.main([str(flat), "--batch-size", "8", "--threads", "1", "--seconds", "0.2", "--rounds", "1"])
    answers = json.loads(capsys.readouterr().out)
    assert 0 <= answers["overlap"]["hidden"] <= 1
    assert answers["memory"]["after_1000_batches"] <= answers["memory"]["after_100_batches"]
