"""A container of kornia with `data_keys` -> which fields its modules move; parameters -> moved points and masks.

kornia itself moves them, without the images, with the parameters that were drawn for these. It takes no lists of
points, so they come as one tensor (n, P, 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fastpipe.augment import kornia_modules
from fastpipe.errors import ConfigError

# The kinds of fields that kornia moves, and what it calls them.
DATA_KEYS = {"mask": "mask", "boxes": "bbox_xyxy", "keypoints": "keypoints"}
_IMAGES_AND_LABELS = ("IMAGE", "INPUT", "CLASS", "LABEL")
_GEOMETRIC = "GeometricAugmentationBase2D"
_MASKS_ONLY = frozenset(["RandomElasticTransform", "RandomErasing"])
_FILLS = ("fill", "pad_value")  # options of modules: the value of pixels from outside the image


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
    if type(module).__name__ != "AugmentationSequential" or not kornia_modules.is_own(module):
        return FieldKeys()
    kinds = set(DATA_KEYS)
    if module.data_keys is not None:
        keys = {
            key.name: kind for kind, name in DATA_KEYS.items() for key in module.data_keys if key.name == name.upper()
        }
        for key in module.data_keys:
            if key.name not in keys and key.name not in _IMAGES_AND_LABELS:
                known = ", ".join(["input", *DATA_KEYS.values()])
                raise ConfigError(f"augment: data_keys: a loader's batch has {known}; got {key.name.lower()!r}")
        kinds = set(keys.values())
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
    return FieldKeys(frozenset(kinds), options.get("MASK", {}))


def movable(module: torch.nn.Module) -> frozenset[str]:
    """The kinds of fields that kornia changes as it changes images with a module of its own."""
    found = kornia_modules.names(module) if kornia_modules.is_own(module) else set()
    if _GEOMETRIC in found:
        return frozenset(DATA_KEYS)
    return frozenset(["mask"]) if found & _MASKS_ONLY else frozenset()


def moves_places(module: torch.nn.Module) -> bool:
    """Whether it is a module of kornia's own that moves pixels, and masks as it moves them."""
    places = (_GEOMETRIC, "RandomElasticTransform")
    return kornia_modules.is_own(module) and not kornia_modules.names(module).isdisjoint(places)


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
