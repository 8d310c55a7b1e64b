"""Are the kernels right on this device? They carry out steps that leave an image as it is.

The kernels are compiled for the device, by a compiler that is not ours. So before a training uses
them, each step and each kind of blur is tried once, and the result compared.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fastpipe.device.augment.blurs import Blur
from fastpipe.device.augment.operation import LaunchedRun, StageSteps
from fastpipe.device.augment.pixel_steps import Code, PixelStep
from fastpipe.device.augment.triton_passes.runs import find_blur_runs, find_runs

_COUNT = 2
# Its pixels fill more than one block of a kernel, and the last block in part.
_SIZE = (45, 29)
_TOLERANCE = 1e-4
_BORDERS = ("constant", "reflect", "replicate", "circular")
# Steps whose numbers leave an image as it is.
_IDENTITIES: tuple[tuple[Code, tuple[float, ...]], ...] = (
    (Code.CLAMP, ()),
    (Code.ADD, (1.0,)),
    (Code.MULTIPLY, (1.0,)),
    (Code.CONTRAST, (1.0,)),
    (Code.SATURATE, (1.0,)),
    (Code.SATURATE_IN_HSV, (1.0,)),
    (Code.TURN_HUE, (0.0,)),
    (Code.GAMMA, (1.0, 1.0)),
    (Code.SOLARIZE, (1.0, 0.0)),
    (Code.POSTERIZE, (1.0,)),
    (Code.INVERT, (1.0,)),
    (Code.INVERT, (1.0,)),
    (Code.ERASE, (0.0, 0.0, 0.0, 0.0, 0.0)),
)


def make_runs() -> list[LaunchedRun]:
    """A run of all steps, and one of each kind of blur, that leave `_COUNT` images as they are."""
    steps = [PixelStep(code, values) for code, values in _IDENTITIES]
    stage: StageSteps = [(None, steps)]
    runs: list[LaunchedRun] = [*find_runs([stage], _COUNT)]
    weights = np.tile(np.array([0.0, 1.0, 0.0], dtype=np.float32), (_COUNT, 1))
    for border in _BORDERS:
        blur = Blur(weights, weights, border)
        runs += find_blur_runs([[(None, blur)]], _COUNT)
    return runs


def make_images(device: torch.device) -> Tensor:
    """(n, 3, height, width) uint8 of many colours, on the device."""
    shape = (_COUNT, *_SIZE, 3)
    numbers = np.arange(np.prod(shape), dtype=np.int64)
    pixels = (numbers * 37 % 251).astype(np.uint8).reshape(shape)
    images_nhwc = torch.from_numpy(pixels).to(device)
    return images_nhwc.permute(0, 3, 1, 2)


def check_result(images: Tensor, out: Tensor, run: LaunchedRun) -> None:
    """Raises RuntimeError if a run has changed the images. Waits for the device."""
    difference = (out - images.float() / 255).abs().max().item()
    if not difference <= _TOLERANCE:
        raise RuntimeError(
            f"a {type(run).__name__} that changes nothing has changed pixels by {difference:.3g}"
        )
