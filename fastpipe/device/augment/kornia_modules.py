"""Modules of kornia: their kinds, their device, and how they move masks and points with images.

kornia is only imported to move fields: a user who passes its modules has imported it. So kinds are
recognised by the names of their classes. kornia moves fields without the images, with the
parameters that were drawn for these. It takes no lists of points, so they come as one tensor (n, P,
2).

Note [kornia's samplers]
kornia 0.9.0 draws parameters on the CPU. Moving a module to a device (`module.to("cuda")`,
kornia#3825) moves its samplers along, but for most modules only in part (kornia#4426): they draw on
the device and then copy the result to the CPU, which waits for all work that is queued.
RandomChannelDropout reads a buffer of its own. So kornia's augmentations are put back to the CPU,
where a seed also gives the same parameters whatever the device.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from operator import methodcaller
from typing import Any

import torch
from torch import Tensor

from fastpipe.arrays import Int64s
from fastpipe.device.augment.by_sample import by_sample_on_cpu
from fastpipe.errors import ConfigError
from fastpipe.plan.crops import Size

_log = logging.getLogger("fastpipe")
_CPU = torch.device("cpu")
_PACKAGE = "kornia.augmentation."
_CONTAINERS = ("AugmentationSequential", "ImageSequential")
# One of kornia's classes for mixing, but it moves parts within each image.
INSIDE_ONE_IMAGE = "RandomJigsaw"
# The kinds of fields that kornia moves -> kornia's names for them.
DATA_KEYS = {"mask": "mask", "boxes": "bbox_xyxy", "keypoints": "keypoints"}
# kornia's classes -> the kinds that their modules move with the images; "shown": see Operation.
_MOVABLE_KINDS = {
    "GeometricAugmentationBase2D": frozenset([*DATA_KEYS, "shown"]),
    "RandomElasticTransform": frozenset(["mask", "shown"]),
    "RandomErasing": frozenset(["mask"]),
}
# The options of modules for the value of pixels from outside the image.
_FILL_OPTIONS = ("fill", "pad_value")


def names(module: torch.nn.Module) -> set[str]:
    """The names of its class and base classes that are kornia's."""
    return {
        kind.__name__
        for kind in type(module).__mro__
        if kind.__module__.startswith(_PACKAGE)
    }


def is_own(module: torch.nn.Module) -> bool:
    """Whether its class is kornia's own, and not a user's class made from one."""
    return type(module).__module__.startswith(_PACKAGE)


def mixes(module: torch.nn.Module) -> bool:
    """Whether it mixes images of a batch."""
    classes = names(module)
    if INSIDE_ONE_IMAGE in classes:
        return False
    return "MixAugmentationBaseV2" in classes or "RandomTransplantation3D" in classes


def is_planned(module: torch.nn.Module) -> bool:
    """Whether its `forward_parameters` gives all parameters, so that they are drawn ahead."""
    if not is_own(module):
        return False
    if is_policy(module):
        return True
    if type(module).__name__ in _CONTAINERS:
        return all(map(is_planned, module.children()))
    classes = names(module)
    return "AugmentationBase2D" in classes or INSIDE_ONE_IMAGE in classes


def is_policy(module: torch.nn.Module) -> bool:
    """Whether it is one of kornia.augmentation.auto: it chooses a policy once a call."""
    return is_own(module) and "PolicyAugmentBase" in names(module)


@cache
def warn_slow_policy(policy: str) -> None:
    """Logs once that our presets do better than this policy of kornia."""
    _log.warning(
        "augment: kornia's %s chooses its operations once a call, here for each sixteenth of the "
        "samples; fastpipe.Augment.randaugment() and trivial_augment() choose for each image, and "
        "take less time",
        policy,
    )


def children(module: torch.nn.Module) -> list[torch.nn.Module] | None:
    """The modules of a container that only calls one after the other; None if it is no such
    container.
    """
    if type(module) is torch.nn.Sequential:
        return list(module)
    if not is_own(module) or type(module).__name__ not in _CONTAINERS:
        return None
    # A container that applies some of its modules, by chance, is more than a list of them.
    if getattr(module, "random_apply", False):
        return None
    return list(module.children())


def move_to_device(module: torch.nn.Module, device: torch.device) -> None:
    """Moves weights and buffers to the device.

    Kornia's augmentations stay on the CPU: Note [kornia's samplers].
    """
    for part in module.modules():
        part_device = _CPU if is_own(part) else device
        # Those of this part alone: a part inside it may belong on another device.
        tensors = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        if any(tensor.device != part_device for tensor in tensors):
            apply: Any = part._apply  # torch gives it no types
            apply(methodcaller("to", part_device), recurse=False)
        _put_sampler_back(part)


def _put_sampler_back(part: Any) -> None:
    """Lets a module of kornia draw float32 on the CPU.

    Otherwise it draws in the dtype that was torch's default when the module was made.
    """
    if not hasattr(part, "set_rng_device_and_dtype"):
        return
    device = part.__dict__.get("device", _CPU)
    dtype = part.__dict__.get("dtype", torch.float32)
    if device != _CPU or dtype != torch.float32:
        part.set_rng_device_and_dtype(_CPU, torch.float32)


@dataclass(frozen=True)
class FieldKeys:
    """The fields that a container moves."""

    kinds: frozenset[str] = frozenset()  # named by its `data_keys`
    # Its `extra_args` for masks.
    mask_options: Mapping[str, Any] = field(default_factory=dict)


# The planes of "shown" move as a mask does.
SHOWN = FieldKeys(frozenset(["mask"]), {"resample": "nearest", "align_corners": None})


def field_keys(module: Any) -> FieldKeys:
    """The fields that a container moves.

    `data_keys=None`, of kornia's dict form, stands for all kinds.

    Raises:
        ConfigError: a key is not in a loader's batch, or fields could not follow the images.
    """
    if type(module).__name__ != "AugmentationSequential" or not is_own(module):
        return FieldKeys()
    # kornia names the members of its DataKey in capitals, such as BBOX_XYXY.
    kind_of_key = {name.upper(): kind for kind, name in DATA_KEYS.items()}
    keys = list(kind_of_key)
    if module.data_keys is not None:
        keys = [key.name for key in module.data_keys]
    kinds = set()
    for key in keys:
        if key in kind_of_key:
            kinds.add(kind_of_key[key])
        elif key not in ("IMAGE", "INPUT", "CLASS", "LABEL"):
            known = ", ".join(["input", *DATA_KEYS.values()])
            raise ConfigError(
                f"augment: data_keys: a loader's batch has {known}; got {key.lower()!r}"
            )
    if kinds and module.random_apply:
        raise ConfigError(
            "augment: AugmentationSequential(random_apply=..., data_keys=...): it chooses modules "
            "once a call, so fields cannot follow each image; leave random_apply out, and pass p= "
            "to the modules"
        )
    mask_options: Mapping[str, Any] = {}
    for key, options in module.extra_args.items():
        if isinstance(key, str):
            # kornia takes a text, too, and then uses the options in another way.
            raise ConfigError(
                f"augment: extra_args: expected keys of kornia.constants.DataKey, got {key!r}; "
                f"write DataKey.{key.upper()}"
            )
        if key.name == "MASK":
            mask_options = options
    fill_options = mask_options.keys() & _FILL_OPTIONS
    if fill_options:
        raise ConfigError(
            f"augment: extra_args: expected no {min(fill_options)} of masks; pass mask_fill= to "
            "the loader's crop"
        )
    return FieldKeys(frozenset(kinds), mask_options)


def movable(module: torch.nn.Module) -> frozenset[str]:
    """The kinds that kornia moves with the images, for a module of its own."""
    kinds: frozenset[str] = frozenset()
    if is_own(module):
        for name in names(module):
            kinds |= _MOVABLE_KINDS.get(name, frozenset())
    return kinds


def draw_parameters(
    module: Any, seeds: Int64s, seed: int, channels: int, size: Size
) -> Any:
    """A module's parameters for images with these seeds, (n,), drawn on the CPU.

    `seed` is that of the draws that are not by sample.
    """
    with by_sample_on_cpu(seeds, seed):
        shape = torch.Size((len(seeds), channels, *size))
        return module.forward_parameters(shape)


class FieldMover:
    """Moves fields of `kinds` as a module of kornia in a container with these keys does."""

    def __init__(self, module: Any, keys: FieldKeys) -> None:
        from kornia.augmentation import AugmentationSequential
        from kornia.constants import DataKey

        self.kinds = keys.kinds & movable(module)
        options = dict(keys.mask_options)
        for option in _FILL_OPTIONS:
            options[option] = 0  # Chain.move_masks subtracts mask_fill before
        if options.get("align_corners", 0) is None:
            # None stands for the module's own value, but RandomElasticTransform does not look
            # there.
            options["align_corners"] = module.flags.get("align_corners", False)
        # kornia moves fields in its container only, so the module gets one of its own.
        self._container = AugmentationSequential(
            module,
            transformation_matrix_mode="skip",
            extra_args={DataKey.MASK: options},
        )
        ((self._name, _),) = self._container.named_children()

    def __call__(self, values: Tensor, parameters: Any) -> Tensor:
        """Moves the fields of all images that the parameters are of, or of some.

        Args:
            values: masks (n, 1, height, width), or points (n, P, 2) x, y, counted from the centres
                of pixels.
            parameters: of the module.
        """
        from kornia.augmentation.container.params import ParamItem

        # kornia looks up the number of images there; a part of a batch has fewer.
        shape = parameters["forward_input_shape"].clone()
        shape[0] = len(values)
        drawn = [ParamItem(self._name, {**parameters, "forward_input_shape": shape})]
        data_key = "mask" if values.ndim == 4 else "keypoints"
        moved: Tensor = self._container(values, params=drawn, data_keys=[data_key])
        return moved
