"""A device -> whether to lay out work for a CPU or for an accelerator."""

from __future__ import annotations

import torch


def on_cpu(device: torch.device) -> bool:
    """True: memory and the cache count: images are taken one by one, boxes by slices, at places that the host knows.

    False: launches count: a batch is taken at once, boxes by masks, whose places the device has.
    """
    return device.type == "cpu"
