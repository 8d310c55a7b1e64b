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
                images = steps[name](images, parameters[name])
        return images

    return jitter


def _by_factor(name: str, change: Callable[[Tensor, Tensor], Tensor]) -> Formula:
    """A module with one parameter, whose input is clamped."""

    def carry_out(
        images: Tensor, parameters: Parameters, neutral: Collection[str]
    ) -> Tensor:
        if name in neutral:
            return images.clamp_(0, 1)
        return change(images.clamp_(0, 1), parameters[name])

    return carry_out


def _grey(images: Tensor) -> Tensor:
    """(n, 1, height, width)."""
    return effects.grey(images, _GREY_WEIGHTS)


def _add(images: Tensor, factors: Tensor) -> Tensor:
    """Brightness of RandomBrightness and ColorJiggle: adds the factor minus 1."""
    return images.add_(_per_image(factors, images) - 1).clamp_(0, 1)


def _multiply(images: Tensor, factors: Tensor) -> Tensor:
    """Brightness of ColorJitter, contrast of RandomContrast and ColorJiggle."""
    return images.mul_(_per_image(factors, images)).clamp_(0, 1)


def _contrast_to_mean(images: Tensor, factors: Tensor) -> Tensor:
    """Contrast of ColorJitter: away from the image's mean grey."""
    factors = _per_image(factors, images)
    mean = _grey(images.mean((2, 3), keepdim=True))
    images.mul_(factors).add_(mean * (1 - factors))
    return images.clamp_(0, 1)


def _saturate_from_grey(images: Tensor, factors: Tensor) -> Tensor:
    """Saturation of ColorJitter: away from grey."""
    torch.lerp(_grey(images), images, _per_image(factors, images), out=images)
    return images.clamp_(0, 1)


def _saturate_in_hsv(images: Tensor, factors: Tensor) -> Tensor:
    """Saturation of RandomSaturation and ColorJiggle: HSV's, which keeps the greatest channel."""
    most = images.amax(1, keepdim=True)
    least = images.amin(1, keepdim=True)
    span = most - least
    saturation = span / (most + 1e-8)
    saturation.mul_(_per_image(factors, images)).clamp_(0, 1)
    new_span = saturation.mul_(most)
    scale = new_span / span.clamp_min_(
        1e-12
    )  # of grey, whose span is 0, nothing is left to scale
    images.sub_(least).mul_(scale)
    return images.add_(most.sub_(new_span)).clamp_(0, 1)


def _turn_hue(images: Tensor, factors: Tensor) -> Tensor:
    return effects.hue(images, factors.to(images.device, images.dtype))


def _grayscale(
    images: Tensor, parameters: Parameters, neutral: Collection[str]
) -> Tensor:
    return images.copy_(_grey(images))


def _gamma(images: Tensor, parameters: Parameters, neutral: Collection[str]) -> Tensor:
    images.clamp_(0, 1).pow_(_per_image(parameters["gamma_factor"], images))
    return images.mul_(_per_image(parameters["gain_factor"], images)).clamp_(0, 1)


def _per_image(factors: Tensor, images: Tensor) -> Tensor:
    """(n,) -> (n, 1, 1, 1), on the images' device."""
    return factors.to(images.device, images.dtype)[:, None, None, None]


_JITTER_STEPS = {
    "brightness_factor": _multiply,
    "contrast_factor": _contrast_to_mean,
    "saturation_factor": _saturate_from_grey,
    "hue_factor": _turn_hue,
}
_JIGGLE_STEPS = {
    "brightness_factor": _add,
    "contrast_factor": _multiply,
    "saturation_factor": _saturate_in_hsv,
    "hue_factor": _turn_hue,
}
_FORMULAS: dict[str, Formula] = {
    "RandomBrightness": _by_factor("brightness_factor", _add),
    "RandomContrast": _by_factor("contrast_factor", _multiply),
    "RandomSaturation": _by_factor("saturation_factor", _saturate_in_hsv),
    "RandomHue": _by_factor("hue_factor", _turn_hue),
    "RandomGamma": _gamma,
    "RandomGrayscale": _grayscale,
}
