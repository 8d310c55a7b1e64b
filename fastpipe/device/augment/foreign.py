"""Modules of other libraries -> operations that seed them, and check their results."""

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

from fastpipe.device.augment import kornia_modules
from fastpipe.device.augment.by_sample import BySample
from fastpipe.device.augment.contents import parts_of
from fastpipe.device.augment.inputs import check_result
from fastpipe.device.augment.operation import Draws, Operation, Step, Tensors
from fastpipe.errors import ConfigError
from fastpipe.plan.crops import Size
from fastpipe.plan.draws import Stream

# Transforms of torchvision that draw nothing.
_WITHOUT_DRAWS = frozenset(
    [
        "CenterCrop",
        "ConvertImageDtype",
        "Grayscale",
        "Identity",
        "Lambda",
        "Normalize",
        "Pad",
        "Resize",
        "ToDtype",
    ]
)


class Foreign(Operation):
    """Calls a module with the whole batch: (n, c, height, width) float32 in [0, 1], channels_last.

    Note [torchvision's transforms]
    A transform of torchvision draws its parameters once a call: a batch would be mirrored as a
    whole, or not at all. So such a module is called once for each image, seeded from (seed, epoch,
    sample): it takes longer, and a sample gets the same parameters in any batch. So are kornia's
    containers that cannot be planned, such as PatchSequential.

    Draws of one row a sample depend on the sample; see Note [draws by sample]. All other draws from
    the global generators of torch, Python and numpy are seeded from (seed, epoch, batch) and the
    operation's position. Afterwards the generators are as before.
    """

    by_rows = False

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        # A container of kornia holds its modules as children. A module of a user may hold
        # transforms anywhere: in a list, in a function, in an object that is no module.
        if kornia_modules.is_own(module):
            parts: list[object] = [module, *module.children()]
        else:
            parts = [part for part in parts_of(module) if callable(part)]
        self.image_by_image = any(
            _draws_once_a_call(part) or _is_unplanned(part) for part in parts
        )

    def plan(self, draws: Draws, size: Size, position: int) -> Step:
        """Host: image by image the seeds of the samples; else the seed of the generators, and them.

        Arrays: "seeds" (n,), those of the samples, unless it goes image by image.
        """
        seeds = draws.sample_bits(Stream.MODULE, position)
        if self.image_by_image:
            return Step(seeds.tolist(), {})
        generator_seed = draws.generator_seed(Stream.MODULE, position)
        signed_seeds = seeds.view(np.int64)  # torch has no uint64
        return Step((generator_seed, signed_seeds), {"seeds": signed_seeds})

    def run(
        self, images: Tensor, first_row: int, host: Any, tensors: Tensors
    ) -> Tensor:
        """Calls the module; raises ConfigError if it returns no batch."""
        kornia_modules.move_to_device(self.module, images.device)
        if self.image_by_image:
            return self._run_one_by_one(images, host)
        generator_seed, seeds = host
        with (
            seeded(images.device, generator_seed),
            BySample(torch.from_numpy(seeds), tensors["seeds"]),
        ):
            return check_result(self.module, self.module(images), len(images))

    def _run_one_by_one(self, images: Tensor, seeds: list[int]) -> Tensor:
        results = []
        with seeded(images.device, 0) as seed_all:
            for image, seed in zip(torch.split(images, 1), seeds, strict=True):
                seed_all(seed)
                result = self.module(image)
                results.append(check_result(self.module, result, 1))
        shapes = set()
        for result in results:
            shape = tuple(result.shape[1:])
            shapes.add(str(shape))
        if len(shapes) > 1:
            some_shapes = ", ".join(sorted(shapes)[:4])
            raise ConfigError(
                f"augment: {type(self.module).__name__} returned images of different shapes, so "
                f"they make no batch: {some_shapes}. Resize them alike"
            )
        return torch.cat(results)


def _draws_once_a_call(module: object) -> bool:
    """Whether it is a transform of torchvision that may draw: Note [torchvision's transforms]."""
    for kind in type(module).__mro__:
        if kind.__module__.startswith("torchvision.transforms."):
            return kind.__name__ not in _WITHOUT_DRAWS
    return False


def _is_unplanned(part: object) -> bool:
    """Whether it is a module of kornia whose parameters cannot be drawn ahead."""
    return (
        isinstance(part, torch.nn.Module)
        and kornia_modules.is_own(part)
        and not kornia_modules.is_planned(part)
    )


# The global generators belong to the process, so loaders in several threads take turns.
_turn = threading.RLock()


def _renew_turn() -> None:
    """In a forked child: the thread that holds the lock may not exist there."""
    global _turn
    _turn = threading.RLock()


os.register_at_fork(after_in_child=_renew_turn)


@contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[Callable[[int], None]]:
    """Seeds the global generators of torch (CPU and device), Python and numpy.

    Restores them afterwards.

    Gives a function that seeds them again. It never waits for a device: a CUDA generator's state is
    on the host.
    """
    # torch.cuda, torch.xpu, ...; None: the device has no generator of its own.
    device_module = None
    if device.type not in ("cpu", "meta"):
        device_module = torch.get_device_module(device)

    def seed_all(seed: int) -> None:
        torch.default_generator.manual_seed(seed)
        if device_module is not None:
            # Of this device alone: the module's manual_seed would seed the current device.
            generator = torch.Generator(device).manual_seed(seed)
            device_module.set_rng_state(generator.get_state(), device)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # numpy takes 32 bits

    with _turn:
        torch_state = torch.get_rng_state()
        python_state = random.getstate()
        numpy_state = np.random.get_state()
        device_state = None
        if device_module is not None:
            device_state = device_module.get_rng_state(device)
        try:
            seed_all(seed)
            yield seed_all
        finally:
            torch.set_rng_state(torch_state)
            if device_module is not None:
                device_module.set_rng_state(device_state, device)
            random.setstate(python_state)
            np.random.set_state(numpy_state)
