"""A function of a policy, traced by torch's compiler without its last stage -> the images that it made before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support.batches.augment_batches import photos
from torch import Tensor

from fastpipe.device.augment import pixels
from fastpipe.device.augment.presets import _FUNCTIONS, _parameters


def _assert_same(name: str, function: Callable[..., Tensor]) -> None:
    """As the function of that name, for any number of images of any size."""
    numbers = torch.full((7, 6), 0.4) if name != "warp" else torch.eye(2, 3).view(1, 6).repeat(7, 1)
    for count, size in ((7, (16, 20)), (5, (9, 12))):
        images = photos(count, *size).to(torch.float32, memory_format=torch.contiguous_format) / 255
        parameters = _parameters(name, numbers[:count])
        expected = _FUNCTIONS[name][0](images.clone(), *parameters)
        torch.testing.assert_close(function(images, *parameters), expected, atol=2e-6, rtol=0)


def assert_traced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced for any number of images: for a CPU, and for other devices if the function asks which it is."""
    function, _ = _FUNCTIONS[name]
    asked: list[torch.device] = []
    monkeypatch.setattr(pixels, "on_cpu", lambda device: asked.append(device) is None)
    _assert_same(name, function)
    for on_cpu in (True, False) if asked else (True,):
        monkeypatch.setattr(pixels, "on_cpu", lambda device, here=on_cpu: here)
        torch._dynamo.reset()
        _assert_same(name, torch.compile(function, dynamic=True, backend="eager", fullgraph=True))
