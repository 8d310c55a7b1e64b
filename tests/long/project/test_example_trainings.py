"""The examples that train with fields, on small pictures: their loss falls, and they find what they learnt."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from support.checkout import ROOT
from support.datasets.field_scenes import write_scenes
from torch import Tensor

sys.path.append(str(ROOT / "examples"))

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A dataset to learn and another to test."""
    folder = tmp_path_factory.mktemp("scenes")
    return str(write_scenes(folder / "train", 96)), str(write_scenes(folder / "val", 24, seed=1))


def lines_of(out: str, unit: str = "") -> tuple[list[float], list[float]]:
    """The losses of the epochs, and the figures behind them."""
    pattern = rf"epoch \d+ of \d+: loss ([\d.]+)(?:, (?:mean IoU )?([\d.]+){unit})?"
    found = [re.fullmatch(pattern, line) for line in out.splitlines()]
    assert all(found), out
    return [float(match[1]) for match in found if match], [
        float(match[2]) for match in found if match and match[2]
    ]


def test_a_clip(data: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    import train_clip

    options = ["--size=48", "--batch-size=24", "--epochs=10", "--lr=0.002", "--device=cpu"]
    train_clip.main([data[0], "--val", data[1], *options])
    losses, matched = lines_of(capsys.readouterr().out, " % matched")
    assert len(losses) == len(matched) == 10
    assert losses[-1] < 0.75 * losses[0]
    assert matched[-1] > 40  # one caption of about 10 is right


def test_a_segmenter(data: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    import train_segmenter

    options = ["--classes=4", "--size=48", "--batch-size=8", "--epochs=4", "--device=cpu"]
    train_segmenter.main([data[0], "--val", data[1], *options])
    losses, ious = lines_of(capsys.readouterr().out)
    assert len(losses) == len(ious) == 4
    assert losses[-1] < 0.75 * losses[0]
    assert ious[-1] > max(0.3, ious[0])  # background everywhere has 0.2


def test_a_detector(
    tmp_path: Path,
    torchvision: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import train_detector

    # Testing needs torchvision's compiled nms, which may be missing here; training does not.
    monkeypatch.setattr(sys.modules["torchvision.ops.boxes"], "nms", nms)
    data = write_scenes(tmp_path / "train", 8)
    train_detector.main(
        [str(data), "--val", str(data), "--batch-size=4", "--epochs=3", "--device=cpu"]
    )
    losses, right = lines_of(capsys.readouterr().out, " % right")
    assert len(losses) == len(right) == 3
    assert losses[-1] < 0.8 * losses[0]


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    from torchvision.ops import box_iou

    kept: list[int] = []
    overlaps = box_iou(boxes, boxes)
    for place in scores.argsort(descending=True).tolist():
        if not kept or overlaps[place, kept].max() <= iou_threshold:
            kept.append(place)
    return torch.tensor(kept, dtype=torch.int64)
