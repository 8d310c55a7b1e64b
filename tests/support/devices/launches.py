"""An augmentation -> the kernels that a device would launch for a batch, counted on tensors without data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from support.batches.augment_batches import tensors_of
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fastpipe import Augment

# For these a device has nothing to do.
VIEWS = {
    "permute",
    "slice",
    "empty",
    "empty_like",
    "detach",
    "_unsafe_view",
    "view",
    "select",
    "unsqueeze",
    "expand",
    "unbind",
}


def launches_of(augment: Augment, images: Tensor) -> list[str]:
    """The kernels of a batch, by name, in order."""
    count, channels, *size = images.shape
    keys = {
        "seed": 0,
        "epoch": 0,
        "batch": 0,
        "channels": channels,
        "bits": 8 * images.element_size(),
    }
    plan = augment.plan(np.arange(count), (size[0], size[1]), **keys)
    images, labels, tensors = (
        images.to("meta"),
        torch.arange(count, device="meta"),
        tensors_of(plan, "meta"),
    )
    kernels: list[str] = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kernels.append(function._schema.name.partition("::")[2])
            return function(*args, **(kwargs or {}))

    with Names():
        augment.carry_out(images, labels, plan, tensors)
    return [kernel for kernel in kernels if kernel not in VIEWS]
