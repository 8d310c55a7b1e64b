"""Options of the benchmarks that cannot work: an error before anything is measured."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.checkout import ROOT

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench import accuracy, monitor_cost, roster, views


@pytest.mark.parametrize(
    ("bench", "options", "said"),
    [
        (monitor_cost, ["data", "--pairs", "1"], "--pairs: expected at least 2, for the middle half of the ratios"),
        (accuracy, ["folder", "--seeds", "1"], "--seeds: expected at least 2, for the standard error, got 1"),
    ],
)
def test_too_few_runs_for_a_spread(
    bench: ModuleType,
    options: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *options])
    with pytest.raises(SystemExit):
        bench.main()
    assert said in capsys.readouterr().err


def test_views_without_their_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "INSTALLED", tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"DataLoader with torchvision: not installed; run `make bench-peers`"):
        views.main()
