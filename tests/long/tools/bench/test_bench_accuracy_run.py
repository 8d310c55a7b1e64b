"""The benchmark of accuracies: both loaders train the same network on the same photos."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from support.checkout import ROOT

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench import accuracy


def test_both_loaders_train_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes: dict[int, set[tuple[object, ...]]] = {}
    trained = accuracy.train_demo.trained

    def look(training: object, testing: object, classes: int) -> float:
        for batches in (training, testing):
            kinds = shapes.setdefault(len(shapes), set())
            kinds |= {
                (tuple(images.shape), images.dtype, labels.dtype) for images, labels in batches
            }  # type: ignore[attr-defined]
        return trained(training, testing, classes)

    monkeypatch.setattr(accuracy.train_demo, "EPOCHS", 1)
    monkeypatch.setattr(accuracy.train_demo, "trained", look)
    threads = torch.get_num_threads()
    try:
        accuracy.main([str(tmp_path / "photos"), "--seeds", "2", "--learn", "40", "--test", "20"])
    finally:
        torch.set_num_threads(threads)
    printed = capsys.readouterr().out
    assert (
        len(
            re.findall(
                r"^seed [01], (?:fastpipe|DataLoader \+ torchvision): [\d.]+ %$", printed, re.M
            )
        )
        == 4
    )
    assert "difference " in printed
    kinds = list(shapes.values())
    assert kinds[:2] == kinds[2:4] == kinds[4:6] == kinds[6:8], (
        "both, with each seed, give batches of the same kind"
    )
    size = accuracy.train_demo.SIZE
    assert kinds[0] == {((32, 3, size, size), torch.uint8, torch.int64)}
