"""Modules of other libraries -> stages of an augmentation: seeded from the batch, their results checked."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fastpipe.augment import kornia_modules
from fastpipe.augment.generators import seeded
from fastpipe.augment.operation import Operation
from fastpipe.augment.plan import Draws, Step
from fastpipe.errors import ConfigError
from fastpipe.plan.draws import Stream


class Foreign(Operation):
    """Calls a module with the whole batch, (n, 3, height, width) float32 in [0, 1], in channels_last.

    What it draws from torch's global generators (or Python's, or numpy's) is seeded from (seed, epoch, batch) and its
    position; they are as before afterwards.

    Args:
        module: takes and returns a batch.
    """

    by_rows = False

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Host: the generators' seed."""
        return Step(draws.generator_seed(Stream.MODULE, position), {})

    def run(self, images: Tensor, first: int, host: int, tensors: Mapping[str, Tensor]) -> Tensor:
        """Calls it; raises ConfigError where it returns no batch."""
        kornia_modules.settle(self.module)
        with seeded(images.device, host):
            result = self.module(images)
        return self._checked(result, len(images))

    def _checked(self, result: object, count: int) -> Tensor:
        if not isinstance(result, Tensor):
            came = type(result).__name__
        elif not result.dtype.is_floating_point:
            came = f"{result.dtype} of shape {tuple(result.shape)}"
        elif result.ndim == 0 or len(result) != count:
            came = f"shape {tuple(result.shape)}"
        else:
            return result
        raise ConfigError(
            f"augment: {type(self.module).__name__} returned {came}; expected a floating-point tensor with the same "
            f"number of images as its input, {count} here. Wrap it in a module that returns only the images"
        )
