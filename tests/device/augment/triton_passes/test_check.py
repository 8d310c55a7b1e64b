"""Kernels that a device's compiler got wrong are not used."""

from __future__ import annotations

import sys
from typing import Any

import kornia.augmentation as k
import pytest
import torch
from support.devices.small_triton import KERNEL, small_triton

from fastpipe.device.augment import Augment
from fastpipe.device.augment.pixel_steps import Code
from fastpipe.device.augment.triton_passes import check, launch


def test_all_steps_and_blurs_are_tried() -> None:
    runs = check.make_runs()
    codes = {
        int(code) for run in runs if "codes" in run.arrays for code in run.arrays["codes"].flat
    }
    flips = {Code.FLIP_ACROSS, Code.FLIP_DOWN}  # they are no steps, but how pixels are read
    # A grey step leaves no colour as it is.
    assert codes == {int(code) for code in Code} - {int(code) for code in (*flips, Code.GREY)}
    assert {run.border for run in runs if hasattr(run, "border")} == {
        *("constant", "reflect", "replicate", "circular")
    }


def test_right_kernels_are_used() -> None:
    with small_triton():
        assert launch.can_launch(torch.zeros((1, 3, 2, 2), dtype=torch.uint8))


@pytest.mark.parametrize("function", ["contrasted", "turned", "raised"])
def test_wrong_kernels_are_not_used(
    function: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    images = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8)
    augment = Augment(k.RandomHue((-0.1, 0.1), p=1.0))
    expected = augment(images, seed=1)
    with small_triton():
        from fastpipe.device.augment.triton_passes import kernel

        right = getattr(kernel, function)

        def wrong(*arguments: Any) -> Any:
            result = right(*arguments)
            if isinstance(result, tuple):
                return (result[0] + 0.01, *result[1:])
            return result + 0.01

        monkeypatch.setattr(sys.modules[KERNEL], function, wrong)
        assert torch.equal(augment(images, seed=1), expected)
    (record,) = caplog.records
    assert "that changes nothing has changed pixels by" in record.message
