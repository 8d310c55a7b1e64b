"""Random generators -> the same, wherever they were, after something has drawn from them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


@contextlib.contextmanager
def kept_generators(loader: Any) -> Iterator[None]:
    """Puts the CPU's generators of torch, NumPy and Python, and those of a loader and its sampler, back at the end."""
    own = [getattr(loader, "generator", None), getattr(loader.sampler, "generator", None)]
    states = [(each, each.get_state()) for each in own if isinstance(each, torch.Generator)]
    python, numpy, tensor = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.random.set_rng_state(tensor)
        for generator, state in states:
            generator.set_state(state)
