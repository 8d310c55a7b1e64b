"""docs/how-to/predictions.md under torchrun: each of two ranks writes its share, and no sample is there twice."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from support.checkout import ROOT
from support.ranks.torchrun import torchrun

import fastpipe

MODEL = """
model = torch.nn.Sequential(
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 3)
)
"""


def test_two_ranks_write_each_sample_once(
    flat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "how-to" / "predictions.md").read_text()
    alone, of_ranks, *_ = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    functions, _, call = alone.rpartition("\n\n")
    assert call.startswith("write_predictions(")
    assert "init_process_group" in of_ranks
    (tmp_path / "predict.py").write_text(functions + MODEL + of_ranks)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "val").symlink_to(flat)
    monkeypatch.chdir(tmp_path)
    torchrun(tmp_path / "predict.py")
    files = sorted(tmp_path.glob("predictions-*.csv"))
    assert [file.name for file in files] == ["predictions-0.csv", "predictions-1.csv"]
    keys = []
    for file in files:
        with open(file, newline="") as opened:
            rows = list(csv.reader(opened))
        assert rows
        keys += [row[0] for row in rows]
    assert sorted(keys) == sorted(fastpipe.open(flat)["key"])
