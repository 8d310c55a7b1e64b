"""Tones of each channel: solarize, posterize, equalize, autocontrast, invert, noise, normalize.

Source of the formulas: kornia 0.9, `kornia.enhance`.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def solarize(module: Any) -> Formula:
    """RandomSolarize: adds a number, then inverts all values from the threshold up."""

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        additions = effects.per_image(tensors["additions"])
        images.clamp_(0, 1)
        images.add_(additions)
        images.clamp_(0, 1)
        return effects.solarize(images, tensors["thresholds"])

    names = ("thresholds", "additions")
    steps = one_step(Code.SOLARIZE, *names)
    return Formula(of_names(*names), change, memory_format=None, steps=steps)


def posterize(module: Any) -> Formula:
    """RandomPosterize: leaves so many of the eight bits of each value."""

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        bits = parameters["bits_factor"].to(torch.float32)
        lost_bits = 8 - bits
        scales = torch.exp2(lost_bits)
        return Prepared({"scales": scales})

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        # 1 leaves all bits and 256 none. kornia does not round images to bytes in the first case.
        scales = effects.per_image(tensors["scales"])
        images.clamp_(0, 1)
        # All in place, in the memory of the first result.
        levels = images.mul(255)
        levels.floor_()
        levels.div_(scales)
        # kornia divides by 255 and multiplies again before it rounds down. Some bytes lose a step
        # by that, and so they do here.
        levels.div_(255)
        levels.mul_(255)
        levels.floor_()
        levels.mul_(scales)
        posterized = levels.div_(255)
        keeps_all_bits = scales == 1
        return torch.where(keeps_all_bits, images, posterized)

    steps = one_step(Code.POSTERIZE, "scales")
    return Formula(prepare, change, memory_format=None, steps=steps)


def invert(module: Any) -> Formula | None:
    """RandomInvert, from a maximum that is a number."""
    max_val = module.flags["max_val"]
    if isinstance(max_val, Tensor):
        is_one_number = max_val.numel() == 1
        is_on_host = max_val.device.type == "cpu"
        if not is_one_number or not is_on_host:
            return None
        max_val = float(max_val)
    highest = float(max_val)

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        images.neg_()
        return images.add_(highest)

    def steps(arrays: Mapping[str, Array], host: None) -> list[PixelStep]:
        return [PixelStep(Code.INVERT, (highest,))]

    # Results beyond [0, 1] would be a reason to warn, and are only looked for after a whole stage.
    is_unit = 0 <= highest <= 1
    if not is_unit:
        return Formula(of_names(), change, memory_format=None)
    return Formula(of_names(), change, memory_format=None, steps=steps)


def autocontrast(module: Any) -> Formula | None:
    """RandomAutoContrast: stretches each channel to the range 0 to 1."""
    if not module.clip_output:
        return None

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        # (n, c, 1, 1) each. kornia's 1e-6 makes a channel of a single tone black.
        least = images.amin((2, 3), keepdim=True)
        span = images.amax((2, 3), keepdim=True)
        span.sub_(least)
        span.add_(1e-6)
        images.sub_(least)
        images.div_(span)
        return images.clamp_(0, 1)

    return Formula(of_names(), change)


def equalize(module: Any) -> Formula:
    """RandomEqualize: Pillow's rule; a channel of too few pixels or tones stays as it is."""

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        count, channels, height, width = images.shape
        area = height * width
        images.clamp_(0, 1)
        images.mul_(255)
        # kornia's tone is the value rounded down; effects.equalize rounds otherwise.
        values = images.reshape(count, channels, area)
        tones = values.to(torch.int64)
        histogram = effects.count_tones(tones)
        table, step = effects.equalizing_table(histogram, area)
        float_table = table.to(torch.float32)
        equalized = float_table.gather(2, tones)
        has_step = step > 0
        result = torch.where(has_step, equalized, values)
        result.div_(255)
        return result.view(count, channels, height, width)

    return Formula(of_names(), change)


def noise(module: Any) -> Formula:
    """RandomGaussianNoise: adds kornia's noise."""

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        drawn = parameters["gaussian_noise"]
        # With same_on_batch there is one for all.
        return Prepared({"noise": drawn.expand(shape)})

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        return images.add_(tensors["noise"])

    return Formula(prepare, change, memory_format=None)


def normalize(module: Any) -> Formula | None:
    """Normalize by a mean and a deviation for each channel, or for all."""
    flags = module.flags
    moments = {"mean": flags["mean"], "std": flags["std"]}
    lengths = set()
    for moment in moments.values():
        is_plain = isinstance(moment, Tensor) and moment.ndim <= 1
        if not is_plain or moment.device.type != "cpu":
            return None
        lengths.add(moment.numel())
    # A moment of one number is that of all channels.
    lengths.discard(1)
    if len(lengths) > 1:
        return None

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        tensors = {}
        num_images = shape[0]
        for name, moment in moments.items():
            float_moment = moment.to(torch.float32)
            of_channels = float_moment.reshape(1, -1)
            tensors[name] = of_channels.expand(num_images, -1)
        return Prepared(tensors)

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        means = tensors["mean"][:, :, None, None]
        deviations = tensors["std"][:, :, None, None]
        images.sub_(means)
        return images.div_(deviations)

    channels = tuple(lengths) or (1, 3, 4)
    return Formula(prepare, change, channels, memory_format=None)
