"""A module -> whether it is kornia's, of which kind, and what it holds; and its place on a device.

kornia itself is never imported here: whoever passes its modules has done that. So kinds are known by the names of their
classes.

Note [kornia's samplers]: kornia 0.9.0 draws parameters on the CPU. Moving a module to a device (`module.to("cuda")`,
kornia#3825) moves its samplers along, but for most modules only in part (kornia#4426): they draw on the device and then
copy the result to the CPU, which waits for all work that is queued. RandomChannelDropout reads a buffer of its own. So
kornia's augmentations are put back to the CPU, where a seed also gives the same parameters whatever the device.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

_log = logging.getLogger("fastpipe")
_CPU = torch.device("cpu")
_PACKAGE = "kornia.augmentation."
_PLAIN = "AugmentationBase2D"
_MIXING = ("MixAugmentationBaseV2", "RandomTransplantation3D")
_POLICY = "PolicyAugmentBase"
_CONTAINERS = ("AugmentationSequential", "ImageSequential")
_INSIDE_ONE_IMAGE = "RandomJigsaw"  # kornia's class for mixing, but it moves parts within each image


def names(module: torch.nn.Module) -> set[str]:
    """The names of kornia's classes that it is an object of."""
    return {kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith(_PACKAGE)}


def is_own(module: torch.nn.Module) -> bool:
    """Whether its class is kornia's, and not a user's class made from one."""
    return type(module).__module__.startswith(_PACKAGE)


def mixes(module: torch.nn.Module) -> bool:
    """Whether it mixes images of a batch."""
    found = names(module)
    return not found.isdisjoint(_MIXING) and _INSIDE_ONE_IMAGE not in found


def is_planned(module: torch.nn.Module) -> bool:
    """Whether all its parameters come from its `forward_parameters`, so that they can be drawn ahead."""
    if not is_own(module):
        return False
    if is_policy(module):
        return True
    if type(module).__name__ in _CONTAINERS:
        return all(map(is_planned, module.children()))
    found = names(module)
    return _PLAIN in found or _INSIDE_ONE_IMAGE in found


def draws_row_by_row(module: torch.nn.Module) -> bool:
    """Whether it draws with a call for each image, such as torch.randperm."""
    return _INSIDE_ONE_IMAGE in names(module)


def is_policy(module: torch.nn.Module) -> bool:
    """Whether it is one of kornia.augmentation.auto: it chooses a policy once a call."""
    return is_own(module) and _POLICY in names(module)


@cache
def recommend_presets(policy: str) -> None:
    """Says once what our presets do better than a policy of kornia."""
    _log.warning(
        "augment: kornia's %s chooses its operations once a call, here for each sixteenth of the samples; "
        "fastpipe.Augment.randaugment() and trivial_augment() choose for each image, and take less time",
        policy,
    )


def children(module: torch.nn.Module) -> list[torch.nn.Module] | None:
    """The modules of a container that does no more than to call one after the other; None: it is no such container."""
    if type(module) is torch.nn.Sequential:
        return list(module)
    if not is_own(module) or type(module).__name__ not in _CONTAINERS:
        return None
    return None if getattr(module, "random_apply", False) else list(module.children())


def place(module: torch.nn.Module, device: torch.device) -> None:
    """Moves weights and buffers to the device; kornia's augmentations stay on the CPU: Note [kornia's samplers]."""
    parts: Iterator[Any] = module.modules()
    for part in parts:
        held = (*part.parameters(False), *part.buffers(False))
        home = _CPU if is_own(part) else device
        if any(tensor.device != home for tensor in held):
            part._apply(lambda tensor, home=home: tensor.to(home), recurse=False)
        drawn = part.__dict__.get("device", _CPU), part.__dict__.get("dtype", torch.float32)
        if drawn != (_CPU, torch.float32) and hasattr(part, "set_rng_device_and_dtype"):
            part.set_rng_device_and_dtype(_CPU, torch.float32)  # its dtype is the default one of when it was made
