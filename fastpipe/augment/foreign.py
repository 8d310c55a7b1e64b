"""Modules of others -> stages of an augmentation: seeded from the samples and the batch, their results checked."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastpipe.augment import kornia_modules
from fastpipe.augment.by_sample import BySample
from fastpipe.augment.contents import parts_of
from fastpipe.augment.inputs import checked_result
from fastpipe.augment.operation import Draws, Operation, Step, Tensors
from fastpipe.errors import ConfigError
from fastpipe.plan.draws import Stream

# Transforms of torchvision that draw nothing.
_WITHOUT_DRAWS = frozenset(
    ["CenterCrop", "ConvertImageDtype", "Grayscale", "Identity", "Lambda", "Normalize", "Pad", "Resize", "ToDtype"]
)


def _draws_once_a_call(module: object) -> bool:
    """Whether it is a transform of torchvision that may draw. See Note [torchvision's transforms]."""
    kinds = [kind for kind in type(module).__mro__ if kind.__module__.startswith("torchvision.transforms.")]
    return bool(kinds) and kinds[0].__name__ not in _WITHOUT_DRAWS


def _is_unplanned(part: object) -> bool:
    """Whether it is a module of kornia whose parameters cannot be drawn ahead."""
    return isinstance(part, torch.nn.Module) and kornia_modules.is_own(part) and not kornia_modules.is_planned(part)


class Foreign(Operation):
    """Calls a module with the whole batch, (n, c, height, width) float32 in [0, 1], in channels_last.

    Note [torchvision's transforms]
    A transform of torchvision draws its parameters once a call: a batch would be mirrored as a whole, or not at all. So
    such a module is called once for each image, seeded from (seed, epoch, sample): it takes longer, and a sample gets
    the same parameters in any batch. So are kornia's containers that cannot be planned, such as PatchSequential.

    Draws of one row a sample depend on the sample; see Note [draws by sample]. All that it draws otherwise from torch's
    global generators (or Python's, or numpy's) is seeded from (seed, epoch, batch) and its position; they are as before
    afterwards.
    """

    by_rows = False

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        own = kornia_modules.is_own(module)
        parts = [module, *module.children()] if own else [part for part in parts_of(module) if callable(part)]
        self.image_by_image = any(_draws_once_a_call(part) or _is_unplanned(part) for part in parts)

    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Host: the generators' seed, and the samples' seeds. Arrays: the latter."""
        seeds = draws.sample_bits(Stream.MODULE, position)
        if self.image_by_image:
            return Step(seeds.tolist(), {})
        numbers = seeds.view(np.int64)
        return Step((draws.generator_seed(Stream.MODULE, position), numbers), {"seeds": numbers})

    def run(self, images: Tensor, first: int, host: Any, tensors: Tensors) -> Tensor:
        """Calls it; raises ConfigError where it returns no batch."""
        kornia_modules.place(self.module, images.device)
        if self.image_by_image:
            return self._one_by_one(images, host)
        seed, seeds = host
        with seeded(images.device, seed), BySample(torch.from_numpy(seeds), tensors["seeds"]):
            return checked_result(self.module, self.module(images), len(images))

    def _one_by_one(self, images: Tensor, seeds: list[int]) -> Tensor:
        results = []
        with seeded(images.device, 0) as seed_all:
            for image, seed in zip(torch.split(images, 1), seeds, strict=True):
                seed_all(seed)
                results.append(checked_result(self.module, self.module(image), 1))
        if len({result.shape for result in results}) > 1:
            raise ConfigError(
                f"augment: {type(self.module).__name__} returned images of different shapes, so they make no batch: "
                f"{', '.join(sorted({str(tuple(result.shape[1:])) for result in results})[:4])}. Resize them alike"
            )
        return torch.cat(results)


_turn = threading.RLock()  # the generators are the process's, so that loaders in several threads take turns


def _begin_anew() -> None:
    """In a forked child, which lacks the thread that had its turn."""
    global _turn
    _turn = threading.RLock()


os.register_at_fork(after_in_child=_begin_anew)


@contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[Callable[[int], None]]:
    """Seeds what other people's code draws from: torch's generators of the CPU and the device, Python's and numpy's;
    all are put back afterwards. No device is waited for: a CUDA generator's state is on the host. Gives what seeds
    them again.
    """
    there = None if device.type in ("cpu", "meta") else torch.get_device_module(device)

    def seed_all(seed: int) -> None:
        torch.default_generator.manual_seed(seed)
        if there is not None:
            there.set_rng_state(torch.Generator(device).manual_seed(seed).get_state(), device)
        random.seed(seed)
        np.random.seed(seed % 2**32)

    with _turn:
        state, python_state, numpy_state = torch.get_rng_state(), random.getstate(), np.random.get_state()
        state_there = there and there.get_rng_state(device)
        try:
            seed_all(seed)
            yield seed_all
        finally:
            torch.set_rng_state(state)
            if there is not None:
                there.set_rng_state(state_there, device)
            random.setstate(python_state)
            np.random.set_state(numpy_state)
