"""Colour modules of kornia that are carried out here: the same formula with fewer passes.

Source of the formulas: kornia 0.9, `kornia.enhance` and `kornia.augmentation`. Images are (n, 3,
height, width) float32 and are overwritten; a parameter is (n,). Results differ from kornia's by
less than 1e-5, because sums come in another order. Other dtypes, other numbers of channels and all
other modules go through kornia.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor

from fastpipe.device.augment import effects, kornia_modules

Parameters = Mapping[str, Tensor]
# Images, parameters, and the names of parameters that change nothing -> images.
Formula = Callable[[Tensor, Parameters, Collection[str]], Tensor]

_GREY_WEIGHTS = (0.299, 0.587, 0.114)
# The factors of ColorJitter and ColorJiggle, in the order in which `order` counts them, and the
# values that change nothing.
_NEUTRAL = {
    "brightness_factor": 1.0,
    "contrast_factor": 1.0,
    "saturation_factor": 1.0,
    "hue_factor": 0.0,
}


def find_formula(module: torch.nn.Module) -> Formula | None:
    """How a module of kornia is carried out here; None: by kornia."""
    if not kornia_modules.is_own(module):
        return None
    # A hook expects that the module is called. Learned parameters need its own formula for their
    # gradients, and a method that was replaced is another formula.
    has_hooks = bool(module._forward_hooks or module._forward_pre_hooks)
    is_changed = "apply_transform" in vars(module)
    if has_hooks or is_changed or list(module.parameters()):
        return None
    name = type(module).__name__
    if name == "RandomGrayscale" and getattr(module, "rgb_weights", None) is not None:
        return None
    if name in ("ColorJitter", "ColorJiggle"):
        steps = _JITTER_STEPS if name == "ColorJitter" else _JIGGLE_STEPS
        return _ordered(steps, getattr(module, "_fixed_order", None))
    if not getattr(module, "clip_output", True):
        return None
    return _FORMULAS.get(name)


def find_neutral(parameters: Parameters) -> frozenset[str]:
    """The names of parameters on the host whose values all change nothing."""
    names = []
    for name, value in _NEUTRAL.items():
        factors = parameters.get(name)
        if factors is not None and bool((factors == value).all()):
            names.append(name)
    return frozenset(names)


def _ordered(
    steps: Mapping[str, Callable[[Tensor, Tensor], Tensor]],
    fixed_order: Collection[int] | None,
) -> Formula:
    """The four steps of a jitter, in an order that is fixed or a parameter on the host."""
    names = list(_NEUTRAL)

    def jitter(
        images: Tensor, parameters: Parameters, neutral: Collection[str]
    ) -> Tensor:
        images.clamp_(0, 1)
        order = fixed_order
        if order is None:
            order = parameters["order"].tolist()
        for position in order:
            name = names[position]
            if name not in neutral:
                factors = _move(parameters[name], images)
                images = steps[name](images, factors)
        return images

    return jitter


def _by_factor(name: str, change: Callable[[Tensor, Tensor], Tensor]) -> Formula:
    """A module with one parameter, whose input is clamped."""

    def carry_out(
        images: Tensor, parameters: Parameters, neutral: Collection[str]
    ) -> Tensor:
        images.clamp_(0, 1)
        if name in neutral:
            return images
        factors = _move(parameters[name], images)
        return change(images, factors)

    return carry_out


def _move(parameter: Tensor, images: Tensor) -> Tensor:
    """(n,) on the images' device, in their dtype."""
    return parameter.to(images.device, images.dtype)


def _add(images: Tensor, factors: Tensor) -> Tensor:
    """Brightness of RandomBrightness and ColorJiggle: adds the factor minus 1."""
    return images.add_(effects.per_image(factors - 1)).clamp_(0, 1)


def _contrast_to_mean(images: Tensor, factors: Tensor) -> Tensor:
    """Contrast of ColorJitter: away from the image's mean grey."""
    return effects.contrast(images, factors, _GREY_WEIGHTS)


def _saturate_from_grey(images: Tensor, factors: Tensor) -> Tensor:
    """Saturation of ColorJitter: away from grey."""
    return effects.saturation(images, factors, _GREY_WEIGHTS)


def _saturate_in_hsv(images: Tensor, factors: Tensor) -> Tensor:
    """Saturation of RandomSaturation and ColorJiggle: HSV's, which keeps the greatest channel."""
    most = images.amax(1, keepdim=True)
    least = images.amin(1, keepdim=True)
    span = most - least
    saturation = span / (most + 1e-8)
    saturation.mul_(effects.per_image(factors)).clamp_(0, 1)
    new_span = saturation.mul_(most)
    # Grey has a span of 0, and nothing is left to scale.
    scale = new_span / span.clamp_min_(1e-12)
    images.sub_(least).mul_(scale)
    return images.add_(most.sub_(new_span)).clamp_(0, 1)


def _grayscale(
    images: Tensor, parameters: Parameters, neutral: Collection[str]
) -> Tensor:
    return effects.grayscale(images, _GREY_WEIGHTS)


def _gamma(images: Tensor, parameters: Parameters, neutral: Collection[str]) -> Tensor:
    gamma = _move(parameters["gamma_factor"], images)
    gain = _move(parameters["gain_factor"], images)
    images.clamp_(0, 1).pow_(effects.per_image(gamma))
    return images.mul_(effects.per_image(gain)).clamp_(0, 1)


_JITTER_STEPS = {
    "brightness_factor": effects.brightness,
    "contrast_factor": _contrast_to_mean,
    "saturation_factor": _saturate_from_grey,
    "hue_factor": effects.hue,
}
_JIGGLE_STEPS = {
    "brightness_factor": _add,
    "contrast_factor": effects.brightness,  # multiplies, too
    "saturation_factor": _saturate_in_hsv,
    "hue_factor": effects.hue,
}
_FORMULAS: dict[str, Formula] = {
    "RandomBrightness": _by_factor("brightness_factor", _add),
    "RandomContrast": _by_factor("contrast_factor", effects.brightness),
    "RandomSaturation": _by_factor("saturation_factor", _saturate_in_hsv),
    "RandomHue": _by_factor("hue_factor", effects.hue),
    "RandomGamma": _gamma,
    "RandomGrayscale": _grayscale,
}
