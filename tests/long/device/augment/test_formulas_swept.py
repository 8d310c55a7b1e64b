"""Our formulas of kornia's modules beside kornia, at sizes from one pixel to 512 x 384, with thousands of samples."""

from __future__ import annotations

import pytest
import torch
from support.batches.formula_cases import CASES, assert_kornias, colours, is_carried_out
from support.running.soak import times

from fastpipe.device.augment import pixels

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = [
    (1, 1),
    (1, 9),
    (9, 1),
    (2, 2),
    (3, 5),
    (28, 28),
    (31, 64),
    (96, 100),
    (224, 224),
    (256, 189),
    (512, 384),
]


@pytest.mark.parametrize("device", ["cpu", "accelerator"])
@pytest.mark.parametrize("name", CASES)
def test_images_of_any_size_are_kornias(
    name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pixels, "on_cpu", lambda _: device == "cpu")
    torch.manual_seed(11)
    case = CASES[name]
    compared = 0
    for size in SIZES:
        for channels in case.channels:
            module = case.make(p=1.0)
            if not is_carried_out(module, size, channels):
                continue
            for count in (7, 5, 1):
                for seed in range(times(1, 5)):
                    images = colours(count, channels, *size, seed)
                    assert_kornias(name, module, images, note=(size, channels, count))
                    compared += 1
    assert compared >= 15


@pytest.mark.parametrize("name", CASES)
def test_thousands_of_samples_are_kornias(name: str) -> None:
    torch.manual_seed(12)
    case = CASES[name]
    for channels in case.channels:
        module = case.make(p=1.0)
        for seed in range(20):
            images = colours(100, channels, 24, 17, seed)
            assert_kornias(name, module, images, note=(channels, seed))
