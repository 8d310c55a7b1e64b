"""The first program of README.md trains, as it stands there, on a folder of images."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from support.checkout import ROOT

PROGRAMS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)


@pytest.mark.usefixtures("one_thread")
def test_the_first_program_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(66):
        path = tmp_path / "photos" / ("ant", "bee")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(path), np.full((24, 32, 3), number * 3, np.uint8))
    torch.manual_seed(0)
    names: dict[str, object] = {}
    exec(compile(PROGRAMS[0], "README.md", "exec"), names)
    loss, images, model = names["loss"], names["images"], names["model"]
    assert isinstance(loss, torch.Tensor)
    assert isinstance(images, torch.Tensor)
    assert isinstance(model, torch.nn.Sequential)
    assert loss.isfinite()
    assert (images.dtype, tuple(images.shape)) == (torch.float32, (64, 3, 224, 224))
    assert model[-1].out_features == 2
    assert all(weight.grad is not None for weight in model.parameters())
