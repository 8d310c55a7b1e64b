"""Options of the benchmarks that cannot work: an error before anything is measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.checkout import ROOT

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench import accuracy, monitor_cost, roster, views


def test_too_few_runs_for_a_spread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for bench, option, said in (
        (
            monitor_cost,
            "--pairs",
            "--pairs: expected at least 2, for the middle half of the ratios",
        ),
        (accuracy, "--seeds", "--seeds: expected at least 2, for the standard error, got 1"),
    ):
        monkeypatch.setattr(sys, "argv", ["bench", "data", option, "1"])
        with pytest.raises(SystemExit):
            bench.main()
        assert said in capsys.readouterr().err


def test_views_without_their_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "INSTALLED", tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", str(tmp_path)])
    with pytest.raises(
        SystemExit, match=r"DataLoader with torchvision: not installed; run `make bench-peers`"
    ):
        views.main()
