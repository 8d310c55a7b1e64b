"""Classes of kornia -> their formulas: the one list of the modules that fastpipe carries out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fastpipe.device.augment import kornia_modules
from fastpipe.device.augment.formulas import (
    colour,
    erase,
    filters,
    geometry,
    policies,
    tones,
)
from fastpipe.device.augment.formulas.formula import Formula


def _policy(module: Any) -> Formula | None:
    return policies.policy(module, find_formula)


@dataclass(frozen=True)
class Known:
    """A class of kornia that has a formula.

    Attributes:
        make: a module -> its formula; None: it has options that the formula does not know.
        unknown: these options, for the documentation.
    """

    make: Callable[[Any], Formula | None]
    unknown: str = ""


_NOT_CLIPPED = "`clip_output=False`"
_FILLED = '`padding_mode="fill"`'
KNOWN: dict[str, Known] = {
    "ColorJitter": Known(colour.jitter),
    "ColorJiggle": Known(colour.jiggle),
    "RandomBrightness": Known(colour.brightness, _NOT_CLIPPED),
    "RandomContrast": Known(colour.contrast, _NOT_CLIPPED),
    "RandomSaturation": Known(colour.saturation),
    "RandomHue": Known(colour.hue),
    "RandomGamma": Known(colour.gamma),
    "RandomGrayscale": Known(colour.grayscale, "`rgb_weights`"),
    "RandomSolarize": Known(tones.solarize),
    "RandomPosterize": Known(tones.posterize),
    "RandomEqualize": Known(tones.equalize),
    "RandomAutoContrast": Known(tones.autocontrast, _NOT_CLIPPED),
    "RandomInvert": Known(tones.invert, "a `max_val` of several numbers"),
    "RandomGaussianNoise": Known(tones.noise),
    "Normalize": Known(tones.normalize, "moments of more than one dimension"),
    "RandomErasing": Known(erase.erasing),
    "RandomSharpness": Known(filters.sharpness),
    "RandomGaussianBlur": Known(filters.gaussian_blur, "a call of its `compile()`"),
    "RandomBoxBlur": Known(filters.box_blur),
    "RandomMotionBlur": Known(filters.motion_blur),
    "RandomHorizontalFlip": Known(geometry.horizontal_flip),
    "RandomVerticalFlip": Known(geometry.vertical_flip),
    "RandomAffine": Known(geometry.affine, _FILLED),
    "RandomRotation": Known(geometry.affine),
    "RandomRotation90": Known(geometry.affine),
    "RandomShear": Known(geometry.affine, _FILLED),
    "RandomTranslate": Known(geometry.affine, _FILLED),
    "RandomPerspective": Known(geometry.perspective),
    "RandomResizedCrop": Known(
        geometry.resized_crop, '`cropping_mode="resample"`, `resample="bicubic"`'
    ),
    "Resize": Known(geometry.resize, "`antialias=True`"),
    "LongestMaxSize": Known(geometry.resize),
    "SmallestMaxSize": Known(geometry.resize),
    "AutoAugment": Known(_policy),
    "RandAugment": Known(_policy),
    "TrivialAugment": Known(_policy),
}


def find_formula(module: torch.nn.Module) -> Formula | None:
    """How fastpipe carries out a module of kornia; None: kornia does."""
    if not kornia_modules.is_own(module):
        return None
    # A hook expects that the module is called, and a method that was replaced is another formula.
    has_hooks = bool(module._forward_hooks or module._forward_pre_hooks)
    is_changed = "apply_transform" in vars(module)
    if has_hooks or is_changed:
        return None
    # Learned parameters are no draws. Those of a policy are the magnitudes that it draws around.
    if list(module.parameters()) and not kornia_modules.is_policy(module):
        return None
    known = KNOWN.get(type(module).__name__)
    if known is None:
        return None
    return known.make(module)
