"""A module of kornia -> how it treats images of a size, and its parameters, found by trying it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from fastpipe.device.augment import kornia_modules
from fastpipe.device.augment.by_sample import by_sample_on_cpu
from fastpipe.device.augment.kornia_modules import FieldMover
from fastpipe.errors import ConfigError
from fastpipe.plan.crops import Size

# A parameter with more numbers for each sample is drawn on the device, and not copied there.
_MAX_PARAMETER_NUMBERS = 2**13
_CPU = torch.device("cpu")
_META = torch.device("meta")


@dataclass(frozen=True)
class Nature:
    """How a module treats images of a size, with so many channels."""

    channels: int
    draws_once: bool  # something once a call, and not for each image
    has_large_parameters: bool  # such as maps as large as images
    size: Size  # (height, width) of its results
    # The indices, among the leaves of its parameters, of those with a row an image. A call may then
    # be done in parts. None: it needs all its images at once.
    row_parameters: frozenset[int] | None


@torch.no_grad()
def find_nature(module: Any, size: Size, channels: int) -> Nature:
    """Draws parameters for two images, and for three to see which of them have a row an image.

    Raises:
        ConfigError: the module takes no images with so many channels, as far as a trial can tell.
    """
    parameters, once_count = _draw_parameters(module, 2, size, channels)
    values, _ = tree_flatten(parameters)
    leaves = []
    for value in values:
        if isinstance(value, Tensor):
            leaves.append(value)
    draws_once = once_count > 0
    if not hasattr(module, "p_batch"):
        # It chooses among other modules, on the host. So large parameters are drawn there, too.
        return Nature(channels, draws_once, False, size, None)

    is_large = any(leaf.numel() > 2 * _MAX_PARAMETER_NUMBERS for leaf in leaves)
    result: Tensor | None = None
    if channels != 3 or module.p == module.p_batch == 1:
        result = _try(module, parameters, (2, channels, *size))
    if module.p_batch != 1:  # it changes a whole batch, or leaves it
        return Nature(channels, draws_once, is_large, size, None)
    size_after = size
    if result is not None and module.p == 1:
        height, width = result.shape[2:]
        size_after = (height, width)

    # A parameter of one number belongs to one image: RandomMotionBlur takes this image's kernel for
    # all images. RandomChannelDropout numbers the rows of the whole call in `batch_idx`; for a part
    # they would be too large.
    is_of_one_image = any(leaf.shape == (1,) for leaf in leaves)
    can_be_cut = "batch_idx" not in parameters and not is_of_one_image
    row_parameters: frozenset[int] | None = None
    if size_after == size and can_be_cut:
        # Large parameters are drawn for any rows, on the device.
        row_parameters = frozenset()
        if not is_large:
            other_parameters, _ = _draw_parameters(module, 3, size, channels)
            other_leaves, _ = tree_flatten(other_parameters)
            row_parameters = _leaves_that_differ(leaves, other_leaves)
    return Nature(channels, draws_once, is_large, size_after, row_parameters)


def _leaves_that_differ(
    leaves_of_two: list[Tensor], leaves_of_three: list[Tensor]
) -> frozenset[int]:
    """The indices of parameters that have another length for three images than for two."""
    leaf_indices = set()
    for leaf_index, (two, three) in enumerate(
        zip(leaves_of_two, leaves_of_three, strict=True)
    ):
        if len(two) != len(three):
            leaf_indices.add(leaf_index)
    return frozenset(leaf_indices)


def _try(module: Any, parameters: Any, shape: tuple[int, ...]) -> Tensor:
    """The module's result for black images, as if its probability were 1."""
    try:
        with _CPU:
            result: Tensor = module(
                torch.zeros(shape),
                params={**parameters, "batch_prob": torch.ones(shape[0])},
            )
    except Exception as error:
        if shape[1] == 3:
            raise
        lines = str(error).splitlines() or [type(error).__name__]
        raise ConfigError(
            f"augment: {type(module).__name__} refused images (N, {shape[1]}, height, width): "
            f"{lines[0].rstrip('.')}. "
            'Leave it out, or pass channels="rgb" to fastpipe.loader'
        ) from error
    return result


def find_parameters_on_device(
    module: torch.nn.Module,
    mover: FieldMover | None,
    images: Tensor,
    leaves: list[Any],
    tree: TreeSpec,
) -> list[int]:
    """The indices, among `leaves`, of the parameters that may be on the device.

    These are the ones that only tensors are computed from. Of others the module asks for a value on
    the host (`if angle > 0`), which would wait for the device. Trials find this out with tensors
    without data (torch's meta device), where asking for a value raises.

    Args:
        module: of kornia.
        mover: of its fields, if it moves any; it is tried with masks.
        images: a batch that the module gets, or masks that move with one.
        leaves, tree: the parameters of the module, flattened.
    """
    # The mover has the module, so both are copied together.
    module, mover = copy.deepcopy((module, mover))
    kornia_modules.move_to_device(module, _META)
    images = torch.empty_like(images, device=_META)
    leaf_indices = find_tensor_leaves(leaves)

    def works(on_device: list[int]) -> bool:
        trial = list(leaves)
        for leaf_index in on_device:
            trial[leaf_index] = trial[leaf_index].to(_META)
        try:
            module(images, params=tree_unflatten(trial, tree))
            if mover is not None and "mask" in mover.kinds:
                mover(images[:, :1], tree_unflatten(trial, tree))
        # Any error: Kornia raises many kinds for tensors of two devices, and torch for values that
        # do not exist.
        except Exception:
            return False
        return True

    # The usual case, in one trial.
    if works(leaf_indices):
        return leaf_indices
    on_device: list[int] = []
    for leaf_index in leaf_indices:
        if works([*on_device, leaf_index]):
            on_device.append(leaf_index)
    return on_device


def find_tensor_leaves(leaves: list[Any]) -> list[int]:
    """The indices of the tensors among the leaves of parameters."""
    return [
        leaf_index for leaf_index, leaf in enumerate(leaves) if isinstance(leaf, Tensor)
    ]


def _draw_parameters(
    module: Any, count: int, size: Size, channels: int
) -> tuple[Any, int]:
    """Parameters for some images, and how many draws were not by sample."""
    with by_sample_on_cpu(np.arange(count), 0) as mode:
        shape = torch.Size((count, channels, *size))
        parameters = module.forward_parameters(shape)
    return parameters, mode.others
