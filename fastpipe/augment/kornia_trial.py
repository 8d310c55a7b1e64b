"""A module of kornia, tried once -> what it draws, what size it returns, and which parameters it only computes with."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from fastpipe.augment import kornia_modules
from fastpipe.augment.by_sample import BySample
from fastpipe.augment.kornia_fields import FieldMover
from fastpipe.errors import ConfigError

_LARGEST = 2**13  # numbers a sample; a module with a larger parameter draws it on the device
_CPU, _META = torch.device("cpu"), torch.device("meta")


@dataclass(frozen=True)
class Nature:
    """What a module does with images of a size, with so many channels."""

    channels: int
    draws_once: bool  # something once a call
    whole_maps: bool  # parameters are as large as images
    size: tuple[int, int]  # (height, width) of its results
    by_row: frozenset[int] | None  # places of parameters with a row an image; None: it is called with all of them


@torch.no_grad()
def nature_of(module: Any, size: tuple[int, int], channels: int) -> Nature:
    """Draws parameters for two images of `size`; and for three, to see which of them have a row an image. ConfigError:
    it takes no images with so many channels, as far as a trial can tell.
    """
    parameters, others = _drawn(module, 2, size, channels)
    leaves = [leaf for leaf in tree_flatten(parameters)[0] if isinstance(leaf, Tensor)]
    large = any(leaf.numel() > 2 * _LARGEST for leaf in leaves)
    if not hasattr(module, "p_batch"):  # it chooses among other modules, on the host: so maps are drawn there
        return Nature(channels, others > 0, False, size, None)
    made: Tensor | None = None
    if channels != 3 or module.p == module.p_batch == 1:
        made = _tried(module, parameters, (2, channels, *size))
    if module.p_batch != 1:  # it changes a whole batch, or leaves it
        return Nature(channels, others > 0, large, size, None)
    after: tuple[int, int] = size
    by_row: frozenset[int] | None = None
    if made is not None and module.p == 1:
        height, width = made.shape[2:]
        after = (height, width)
    # One number is that of an image: RandomMotionBlur takes this image's kernel for all.
    if after == size and not any(leaf.shape == (1,) for leaf in leaves):
        more = leaves if large else tree_flatten(_drawn(module, 3, size, channels)[0])[0]
        pairs = enumerate(zip(leaves, more, strict=True))
        by_row = frozenset(place for place, (two, three) in pairs if len(two) != len(three))
    return Nature(channels, others > 0, large, after, by_row)


def _tried(module: Any, parameters: Any, shape: tuple[int, ...]) -> Tensor:
    """What it makes of black images, as if its probability were 1."""
    try:
        with _CPU:
            made: Tensor = module(torch.zeros(shape), params={**parameters, "batch_prob": torch.ones(shape[0])})
    except Exception as error:
        if shape[1] == 3:
            raise
        said, *_ = str(error).splitlines() or [type(error).__name__]
        raise ConfigError(
            f"augment: {type(module).__name__} refused images (N, {shape[1]}, height, width): {said.rstrip('.')}. "
            'Leave it out, or pass channels="rgb" to fastpipe.loader'
        ) from error
    return made


def computed_with(
    module: torch.nn.Module, mover: FieldMover | None, images: Tensor, leaves: list[Any], tree: TreeSpec
) -> list[int]:
    """The places of the parameters that it, and its mover of masks, only compute with, tried on tensors without data:
    to ask for the value of another on a device would wait for it there.
    """
    module, mover = copy.deepcopy((module, mover))  # one copy of the module that both have
    kornia_modules.place(module, _META)
    images = torch.empty_like(images, device=_META)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def works(wanted: list[int]) -> bool:
        trial = [leaf.to(_META) if place in wanted else leaf for place, leaf in enumerate(leaves)]
        try:
            module(images, params=tree_unflatten(trial, tree))
            if mover is not None and "mask" in mover.kinds:
                mover(images[:, :1], tree_unflatten(trial, tree))
        except Exception:  # kornia has many for tensors of two devices, and torch for values that are not there
            return False
        return True

    if works(places):
        return places
    wanted: list[int] = []
    for place in places:
        wanted += [place] if works([*wanted, place]) else []
    return wanted


def _drawn(module: Any, count: int, size: tuple[int, int], channels: int) -> tuple[Any, int]:
    """Parameters for some images, and how many draws were not by sample."""
    seeds, generator = torch.arange(count, device=_CPU), torch.Generator("cpu").manual_seed(0)
    with BySample(seeds, generator=generator, onto=_CPU) as mode:
        parameters = module.forward_parameters(torch.Size((count, channels, *size)))
    return parameters, mode.others
