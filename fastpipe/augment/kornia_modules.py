"""A module -> whether it is kornia's, of which kind, and what it holds; its place on a device; a container of kornia
with `data_keys` -> which fields its modules move; parameters -> moved points and masks.

kornia itself is only imported where it moves fields: whoever passes its modules has done that. So kinds are known by
the names of their classes. kornia moves fields without the images, with the parameters that were drawn for these. It
takes no lists of points, so they come as one tensor (n, P, 2).

Note [kornia's samplers]: kornia 0.9.0 draws parameters on the CPU. Moving a module to a device (`module.to("cuda")`,
kornia#3825) moves its samplers along, but for most modules only in part (kornia#4426): they draw on the device and then
copy the result to the CPU, which waits for all work that is queued. RandomChannelDropout reads a buffer of its own. So
kornia's augmentations are put back to the CPU, where a seed also gives the same parameters whatever the device.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fastpipe.errors import ConfigError

_log = logging.getLogger("fastpipe")
_CPU = torch.device("cpu")
_PACKAGE = "kornia.augmentation."
_CONTAINERS = ("AugmentationSequential", "ImageSequential")
INSIDE_ONE_IMAGE = "RandomJigsaw"  # kornia's class for mixing, but it moves parts within each image
# The kinds of fields that kornia moves, and what it calls them.
DATA_KEYS = {"mask": "mask", "boxes": "bbox_xyxy", "keypoints": "keypoints"}
# kornia's classes -> the kinds of what their modules change as they change images; "shown": see Operation.
_MOVABLE = {
    "GeometricAugmentationBase2D": frozenset([*DATA_KEYS, "shown"]),
    "RandomElasticTransform": frozenset(["mask", "shown"]),
    "RandomErasing": frozenset(["mask"]),
}
_FILLS = ("fill", "pad_value")  # options of modules: the value of pixels from outside the image


def names(module: torch.nn.Module) -> set[str]:
    """The names of kornia's classes that it is an object of."""
    return {kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith(_PACKAGE)}


def is_own(module: torch.nn.Module) -> bool:
    """Whether its class is kornia's, and not a user's class made from one."""
    return type(module).__module__.startswith(_PACKAGE)


def mixes(module: torch.nn.Module) -> bool:
    """Whether it mixes images of a batch."""
    found = names(module)
    return not found.isdisjoint(("MixAugmentationBaseV2", "RandomTransplantation3D")) and INSIDE_ONE_IMAGE not in found


def is_planned(module: torch.nn.Module) -> bool:
    """Whether all its parameters come from its `forward_parameters`, so that they can be drawn ahead."""
    if not is_own(module):
        return False
    if is_policy(module):
        return True
    if type(module).__name__ in _CONTAINERS:
        return all(map(is_planned, module.children()))
    found = names(module)
    return "AugmentationBase2D" in found or INSIDE_ONE_IMAGE in found


def is_policy(module: torch.nn.Module) -> bool:
    """Whether it is one of kornia.augmentation.auto: it chooses a policy once a call."""
    return is_own(module) and "PolicyAugmentBase" in names(module)


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


@dataclass(frozen=True)
class FieldKeys:
    """What a container says: the kinds of fields that move with images, by `data_keys`; its extra_args for masks."""

    kinds: frozenset[str] = frozenset()
    mask_options: Mapping[str, Any] = field(default_factory=dict)


SHOWN = FieldKeys(frozenset(["mask"]), {"resample": "nearest", "align_corners": None})
"""Of what says where an image is in its row: it moves as a mask does."""


def field_keys(module: Any) -> FieldKeys:
    """What a container says; `data_keys=None`, of kornia's dict form, stands for all kinds. ConfigError: a key is not
    of a loader's batch, or fields could not follow.
    """
    if type(module).__name__ != "AugmentationSequential" or not is_own(module):
        return FieldKeys()
    kind_of = {name.upper(): kind for kind, name in DATA_KEYS.items()}
    keys = list(kind_of) if module.data_keys is None else [key.name for key in module.data_keys]
    for unknown in (key for key in keys if key not in (*kind_of, "IMAGE", "INPUT", "CLASS", "LABEL")):
        known = ", ".join(["input", *DATA_KEYS.values()])
        raise ConfigError(f"augment: data_keys: a loader's batch has {known}; got {unknown.lower()!r}")
    kinds = frozenset(kind_of[key] for key in keys if key in kind_of)
    if kinds and module.random_apply:
        raise ConfigError(
            "augment: AugmentationSequential(random_apply=..., data_keys=...): it chooses modules once a call, so "
            "fields cannot follow each image; leave random_apply out, and pass p= to the modules"
        )
    options = {key.name: given for key, given in module.extra_args.items()}
    if given := options.get("MASK", {}).keys() & _FILLS:
        raise ConfigError(
            f"augment: extra_args: expected no {min(given)} of masks; pass mask_fill= to the loader's crop"
        )
    return FieldKeys(kinds, options.get("MASK", {}))


def movable(module: torch.nn.Module) -> frozenset[str]:
    """The kinds that kornia changes as it changes images with a module of its own."""
    found = names(module) if is_own(module) else ()
    return frozenset[str]().union(*(_MOVABLE[name] for name in found if name in _MOVABLE))


class FieldMover:
    """Moves fields, of `kinds`, as a module of kornia, in a container with these keys, moves images."""

    def __init__(self, module: Any, keys: FieldKeys) -> None:
        from kornia.augmentation import AugmentationSequential
        from kornia.constants import DataKey

        self.kinds = keys.kinds & movable(module)
        options = {**keys.mask_options, **dict.fromkeys(_FILLS, 0)}  # Chain.move_masks makes mask_fill of 0
        if options.get("align_corners", 0) is None:  # the module's own; RandomElasticTransform does not look there
            options["align_corners"] = module.flags.get("align_corners", False)
        self._container = AugmentationSequential(
            module, transformation_matrix_mode="skip", extra_args={DataKey.MASK: options}
        )
        ((self._name, _),) = self._container.named_children()

    def __call__(self, values: Tensor, parameters: Any) -> Tensor:
        """Moves masks (n, 1, height, width) or points (n, P, 2) x, y, counted from the centres of pixels, of all images
        that the parameters are of, or of some.
        """
        from kornia.augmentation.container.params import ParamItem

        shape = parameters["forward_input_shape"].clone()  # of all
        shape[0] = len(values)
        drawn = [ParamItem(self._name, {**parameters, "forward_input_shape": shape})]
        made: Tensor = self._container(values, params=drawn, data_keys=["mask" if values.ndim == 4 else "keypoints"])
        return made
