"""Colours: brightness, contrast, saturation, hue, gamma, grey, and kornia's two jitters of them.

Source of the formulas: kornia 0.9, `kornia.enhance` and `kornia.augmentation`. Results differ from
kornia's by less than 1e-5, because sums come in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fastpipe.device.augment import effects
from fastpipe.device.augment.formulas.formula import (
    Formula,
    Parameters,
    Prepared,
    Tensors,
    of_names,
)
from fastpipe.device.augment.pixel_steps import (
    Array,
    Code,
    PixelStep,
    one_step,
)

Change = Callable[[Tensor, Tensor], Tensor]  # images, a factor for each -> images

_GREY_WEIGHTS = (0.299, 0.587, 0.114)
_RGB = (3,)
# The factors of ColorJitter and ColorJiggle, in the order in which `order` counts them, and the
# values that change nothing.
_NEUTRAL = {
    "brightness_factor": 1.0,
    "contrast_factor": 1.0,
    "saturation_factor": 1.0,
    "hue_factor": 0.0,
}


@dataclass(frozen=True)
class _JitterStep:
    """A step of a jitter: images and a factor for each -> images; the same for one pixel."""

    change: Change
    code: Code


def jitter(module: Any) -> Formula:
    """ColorJitter: torchvision's four steps."""
    return _ordered(_JITTER_STEPS, module)


def jiggle(module: Any) -> Formula:
    """ColorJiggle: kornia's older four steps."""
    return _ordered(_JIGGLE_STEPS, module)


def _ordered(jitter_steps: Mapping[str, _JitterStep], module: Any) -> Formula:
    """The four steps of a jitter, in an order that is fixed or drawn once a call."""
    fixed_order = getattr(module, "_fixed_order", None)

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        order = fixed_order
        if order is None:
            order = parameters["order"].tolist()
        names = list(_NEUTRAL)
        tensors = {}
        for position in order:
            name = names[position]
            factors = parameters[name]
            is_neutral = factors == _NEUTRAL[name]
            # Such a step takes time and changes nothing: a jitter of the brightness alone has
            # three.
            if not is_neutral.all():
                tensors[name] = factors
        return Prepared(tensors, host=tuple(tensors))

    def change(images: Tensor, tensors: Tensors, host: tuple[str, ...]) -> Tensor:
        images.clamp_(0, 1)
        for name in host:
            step = jitter_steps[name]
            images = step.change(images, tensors[name])
        return images

    def steps(arrays: Mapping[str, Array], host: tuple[str, ...]) -> list[PixelStep]:
        pixel_steps = [PixelStep(Code.CLAMP)]
        for name in host:
            step = jitter_steps[name]
            factors = arrays[name]
            pixel_steps.append(PixelStep(step.code, (factors,)))
        return pixel_steps

    return Formula(prepare, change, _RGB, steps=steps)


def _by_factor(
    name: str, change_by: Change, code: Code, channels: tuple[int, ...] = (1, 3, 4)
) -> Callable[[Any], Formula | None]:
    """A module with one parameter, whose input and output are clamped."""

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        images.clamp_(0, 1)
        return change_by(images, tensors[name])

    def make(module: Any) -> Formula | None:
        is_clipped = getattr(module, "clip_output", True)
        if not is_clipped:
            return None
        memory_format = None
        if channels == _RGB:
            memory_format = torch.contiguous_format
        return Formula(
            of_names(name),
            change,
            channels,
            memory_format=memory_format,
            steps=one_step(code, name),
        )

    return make


def _add(images: Tensor, factors: Tensor) -> Tensor:
    """Brightness of RandomBrightness and ColorJiggle: adds the factor minus 1."""
    additions = factors - 1
    images.add_(effects.per_image(additions))
    return images.clamp_(0, 1)


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
    positive_most = most + 1e-8
    saturation = span / positive_most
    saturation.mul_(effects.per_image(factors))
    saturation.clamp_(0, 1)
    new_span = saturation.mul_(most)
    # Grey has a span of 0, and nothing is left to scale.
    span.clamp_min_(1e-12)
    scale = new_span / span
    images.sub_(least)
    images.mul_(scale)
    # The greatest channel stays, so the least one moves.
    new_least = most.sub_(new_span)
    images.add_(new_least)
    return images.clamp_(0, 1)


def grayscale(module: Any) -> Formula | None:
    """RandomGrayscale with kornia's weights."""
    if getattr(module, "rgb_weights", None) is not None:
        return None

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        return effects.grayscale(images, _GREY_WEIGHTS)

    return Formula(of_names(), change, _RGB, steps=one_step(Code.GREY))


def gamma(module: Any) -> Formula:
    """RandomGamma."""

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        exponent = effects.per_image(tensors["gamma_factor"])
        gain = effects.per_image(tensors["gain_factor"])
        images.clamp_(0, 1)
        images.pow_(exponent)
        images.mul_(gain)
        return images.clamp_(0, 1)

    names = ("gamma_factor", "gain_factor")
    steps = one_step(Code.GAMMA, *names)
    return Formula(of_names(*names), change, memory_format=None, steps=steps)


_JITTER_STEPS = {
    "brightness_factor": _JitterStep(effects.brightness, Code.MULTIPLY),
    "contrast_factor": _JitterStep(_contrast_to_mean, Code.CONTRAST),
    "saturation_factor": _JitterStep(_saturate_from_grey, Code.SATURATE),
    "hue_factor": _JitterStep(effects.hue, Code.TURN_HUE),
}
_JIGGLE_STEPS = {
    "brightness_factor": _JitterStep(_add, Code.ADD),
    "contrast_factor": _JitterStep(effects.brightness, Code.MULTIPLY),
    "saturation_factor": _JitterStep(_saturate_in_hsv, Code.SATURATE_IN_HSV),
    "hue_factor": _JitterStep(effects.hue, Code.TURN_HUE),
}
brightness = _by_factor("brightness_factor", _add, Code.ADD)
contrast = _by_factor("contrast_factor", effects.brightness, Code.MULTIPLY)
saturation = _by_factor(
    "saturation_factor", _saturate_in_hsv, Code.SATURATE_IN_HSV, _RGB
)
hue = _by_factor("hue_factor", effects.hue, Code.TURN_HUE, _RGB)
