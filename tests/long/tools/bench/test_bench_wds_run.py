"""Every pipeline that the benchmark of fastpipe.wds measures, on a few photos."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.checkout import ROOT
from support.pictures.drawn import smooth_noise
from support.programs import warm

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench import contest, wds
from bench.wds import OURS, THEIRS


def test_every_pipeline_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photos" / "only").mkdir(parents=True)
    for number in range(4):
        smooth_noise(120, 90, seed=number).save(tmp_path / "photos" / "only" / f"{number}.jpg")
    options = "--samples 64 --rounds 1 --warmup 0 --seconds 0.05 --workers 1 --batch-size 16"
    arguments = [str(tmp_path / "photos"), *options.split(), "--work", str(tmp_path / "work")]
    monkeypatch.setattr(sys, "argv", ["wds", *arguments])

    # Forks instead of Pythons that import torch for a second or two each.
    def popen(
        command: list[str], *, cwd: Path, env: dict[str, str], stdout: Any, stderr: Any, **_: Any
    ) -> warm.Started:
        return warm.start(*command[1:], environment=env, folder=cwd, stdout=stdout, stderr=stderr)

    programs = {name: getattr(subprocess, name) for name in ("DEVNULL", "TimeoutExpired")}
    monkeypatch.setattr(contest, "subprocess", SimpleNamespace(Popen=popen, **programs))
    wds.main()
    found = capsys.readouterr()
    assert len(re.findall(r"[1-9][\d,]* images/s", found.err)) == len(OURS) + len(THEIRS)
    assert found.out.count(" x (") == len(OURS) * len(THEIRS)
