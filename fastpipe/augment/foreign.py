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

# Transforms of torchvision that draw nothing.
_WITHOUT_DRAWS = frozenset(
    ["CenterCrop", "ConvertImageDtype", "Grayscale", "Identity", "Lambda", "Normalize", "Pad", "Resize", "ToDtype"]
)


def _draws_once_a_call(module: torch.nn.Module) -> bool:
    """Whether it is a transform of torchvision that may draw. See Note [torchvision's transforms]."""
    kinds = [kind for kind in type(module).__mro__ if kind.__module__.startswith("torchvision.transforms.")]
    return bool(kinds) and kinds[0].__name__ not in _WITHOUT_DRAWS


class Foreign(Operation):
    """Calls a module with the whole batch, (n, 3, height, width) float32 in [0, 1], in channels_last.

    Note [torchvision's transforms]
    A transform of torchvision draws its parameters once a call: a batch would be mirrored as a whole, or not at all. So
    such a module is called once for each image, seeded from (seed, epoch, sample): it takes longer, and a sample gets
    the same parameters in any batch.

    What it draws from torch's global generators (or Python's, or numpy's) is seeded from (seed, epoch, batch) and its
    position; they are as before afterwards.

    Args:
        module: takes and returns a batch.
    """

    by_rows = False

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        self.image_by_image = any(map(_draws_once_a_call, module.modules()))

    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Host: the generators' seed, or a seed for each sample."""
        if self.image_by_image:
            return Step(draws.sample_seeds(Stream.MODULE, position), {})
        return Step(draws.generator_seed(Stream.MODULE, position), {})

    def run(self, images: Tensor, first: int, host: int | tuple[int, ...], tensors: Mapping[str, Tensor]) -> Tensor:
        """Calls it; raises ConfigError where it returns no batch."""
        kornia_modules.settle(self.module)
        if not isinstance(host, tuple):
            with seeded(images.device, host):
                return self._checked(self.module(images), len(images))
        results = []
        with seeded(images.device, 0) as seed_all:
            for image, seed in zip(torch.split(images, 1), host[first:], strict=False):
                seed_all(seed)
                results.append(self._checked(self.module(image), 1))
        if len({result.shape for result in results}) > 1:
            raise ConfigError(
                f"augment: {type(self.module).__name__} returned images of different shapes, so they make no batch: "
                f"{', '.join(sorted({str(tuple(result.shape[1:])) for result in results})[:4])}. Resize them alike"
            )
        return torch.cat(results)

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
