"""Classes of kornia -> their formulas: the one list of the modules that fastpipe carries out."""

from __future__ import annotations

from collections.abc import Callable
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


# A module -> its formula; None: it has options that the formula does not know.
FORMULAS: dict[str, Callable[[Any], Formula | None]] = {
    "ColorJitter": colour.jitter,
    "ColorJiggle": colour.jiggle,
    "RandomBrightness": colour.brightness,
    "RandomContrast": colour.contrast,
    "RandomSaturation": colour.saturation,
    "RandomHue": colour.hue,
    "RandomGamma": colour.gamma,
    "RandomGrayscale": colour.grayscale,
    "RandomSolarize": tones.solarize,
    "RandomPosterize": tones.posterize,
    "RandomEqualize": tones.equalize,
    "RandomAutoContrast": tones.autocontrast,
    "RandomInvert": tones.invert,
    "RandomGaussianNoise": tones.noise,
    "Normalize": tones.normalize,
    "RandomErasing": erase.erasing,
    "RandomSharpness": filters.sharpness,
    "RandomGaussianBlur": filters.gaussian_blur,
    "RandomBoxBlur": filters.box_blur,
    "RandomMotionBlur": filters.motion_blur,
    "RandomHorizontalFlip": geometry.horizontal_flip,
    "RandomVerticalFlip": geometry.vertical_flip,
    "RandomAffine": geometry.affine,
    "RandomRotation": geometry.affine,
    "RandomRotation90": geometry.affine,
    "RandomShear": geometry.affine,
    "RandomTranslate": geometry.affine,
    "RandomPerspective": geometry.perspective,
    "RandomResizedCrop": geometry.resized_crop,
    "Resize": geometry.resize,
    "LongestMaxSize": geometry.resize,
    "SmallestMaxSize": geometry.resize,
    "AutoAugment": _policy,
    "RandAugment": _policy,
    "TrivialAugment": _policy,
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
    make = FORMULAS.get(type(module).__name__)
    if make is None:
        return None
    return make(module)
