"""A seed and a device -> the global generators seeded with it for a while, and then restored."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[Callable[[int], None]]:
    """Seeds what other people's code draws from: torch's generators of the CPU and the device, Python's and numpy's.

    All are put back as they were, also after an exception. Nothing waits for the device: a CUDA generator's state is
    kept on the host.

    Args:
        device: "cpu" or "cuda".
        seed: in [0, 2**64).

    Yields:
        A function that seeds them again, with another seed.
    """
    generators = [torch.default_generator]
    if device.type == "cuda":
        number = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[number])
    states = [generator.get_state() for generator in generators]
    python_state, numpy_state = random.getstate(), np.random.get_state()

    def seed_all(seed: int) -> None:
        for generator in generators:
            generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)

    try:
        seed_all(seed)
        yield seed_all
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        random.setstate(python_state)
        np.random.set_state(numpy_state)
