"""A kornia module -> the same module with settings that wait for the device least, and fixes for faults of kornia.

Note [kornia's samplers]: kornia 0.9.0 draws parameters on the CPU and sends them to the device without waiting. Moving
a module to a device (`module.to("cuda")`, kornia#3825) moves its samplers along, but for most modules only in part
(kornia#4426): they draw on the device and then copy the result to the CPU, which waits for all work that is queued. So
samplers are put back to the CPU, where a seed also gives the same parameters whatever the device.

kornia itself is never imported here: whoever passes its modules has done that.
"""

from __future__ import annotations

import torch


def settle(module: torch.nn.Module) -> None:
    """Puts the samplers of all kornia modules in it back to the CPU."""
    for part in module.modules():
        place = getattr(part, "set_rng_device_and_dtype", None)
        if place is not None and getattr(part, "device", None) not in (None, torch.device("cpu")):
            place(torch.device("cpu"), part.dtype)
