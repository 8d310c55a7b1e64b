"""timm's arguments of `create_loader` -> the crop and the operations that they mean."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import kornia.augmentation
import torch

from fastpipe.device.augment.normalised import Mixing
from fastpipe.device.augment.presets import (
    LAST_BIN,
    RANDAUGMENT,
    Blur,
    Grayscale,
    Policy,
)
from fastpipe.errors import ConfigError
from fastpipe.plan.crops import CenterCrop, Crop, Letterbox, Resize

# timm has magnitudes 0 to 10, fastpipe's RandAugment has bins 0 to LAST_BIN.
_BINS_PER_MAGNITUDE = LAST_BIN / 10


def parse_shape(size: int | Sequence[int], channels: int) -> tuple[int, int, int]:
    """timm's size: a number, (height, width), or (channels, height, width), which is returned."""
    shape: tuple[int, ...]
    if isinstance(size, int):
        shape = (channels, size, size)
    else:
        shape = tuple(size)
    if len(shape) == 2:
        shape = (channels, *shape)
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ConfigError(
            f"input_size: expected a number, (height, width) or (1 or 3, height, width), got {size}"
        )
    channels, height, width = shape
    return channels, height, width


def evaluation_crop(
    crop_pct: float,
    mode: str | None,
    size: tuple[int, int],
    interpolation: str,
    mean: Sequence[float],
) -> Crop:
    """The crop of evaluation, of this (height, width)."""
    height, width = size
    if mode in (None, "center") and height == width:
        return CenterCrop(
            resize=math.floor(height / crop_pct), interpolation=interpolation
        )
    if mode == "squash" and crop_pct == 1:
        return Resize(interpolation=interpolation)
    if mode == "border" and crop_pct == 1:
        # timm pads with the mean colour, which is 0 after normalising.
        rgb_mean = mean
        if len(mean) != 3:
            rgb_mean = (mean[0], mean[0], mean[0])
        red, green, blue = (round(255 * value) for value in rgb_mean)
        return Letterbox(
            fill=(red, green, blue), rounded=True, interpolation=interpolation
        )
    raise ConfigError(
        f'crop_mode={mode!r}: expected "center" and a square input_size, or "squash" or "border" '
        f"with crop_pct=1; got input_size {size} and crop_pct={crop_pct}"
    )


def image_operations(
    jitter: float | Sequence[float] | None,
    jitter_prob: float | None,
    grayscale_prob: float,
    blur_prob: float,
    policy: str | None,
) -> list[torch.nn.Module]:
    """The operations on photos after crop and mirroring, in timm's order."""
    operations: list[torch.nn.Module] = []
    if policy:
        operations.append(rand_augment(policy))
    if jitter:
        # One number is the strength of brightness, contrast and saturation; timm leaves the hue.
        if isinstance(jitter, (int, float)):
            strengths: tuple[float, ...] = (jitter, jitter, jitter)
        else:
            strengths = tuple(jitter)
        if jitter_prob is None:
            jitter_prob = 1.0
        operations.append(kornia.augmentation.ColorJitter(*strengths, p=jitter_prob))
    if grayscale_prob:
        operations.append(Grayscale(grayscale_prob))
    if blur_prob:
        operations.append(Blur(blur_prob))
    return operations


def rand_augment(policy: str) -> Policy:
    """The operation of a text such as "rand-m9-mstd0.5-inc1", as timm writes it.

    Raises:
        ConfigError: it is another policy, or one of its numbers is wrong.
    """
    wrong = ConfigError(
        f'auto_augment={policy!r}: expected "rand-mM-nN-pP-mstdS-mmaxX-incI" with X of at most 10 '
        'and P of at most 1, such as "rand-m9-mstd0.5-inc1"'
    )
    name, *parts = policy.split("-")
    if name != "rand":
        raise wrong
    # The magnitude, the number of operations, the probability of each, the standard deviation of
    # the magnitude, and its greatest value; timm's defaults. `inc` is read and not used: it selects
    # operations that grow stronger with the magnitude, and those of fastpipe always do.
    numbers = {"m": 10.0, "n": 2.0, "p": 0.5, "mstd": 0.0, "mmax": 10.0}
    for part in parts:
        match = re.fullmatch(r"(m|n|p|mstd|mmax|inc)(\d+(?:\.\d+)?)", part)
        if match is None:
            raise wrong
        numbers[match[1]] = float(match[2])
    if numbers["mmax"] > 10 or numbers["p"] > 1:
        raise wrong
    spread = numbers["mstd"] * _BINS_PER_MAGNITUDE
    if numbers["mstd"] > 100:
        # timm then draws the magnitude evenly from 0 to m.
        spread = math.inf
    return Policy(
        RANDAUGMENT,
        int(numbers["n"]),
        numbers["m"] * _BINS_PER_MAGNITUDE,
        spread=spread,
        most=numbers["mmax"] * _BINS_PER_MAGNITUDE,
        probability=numbers["p"],
    )


def mixing_of(mixup: Any) -> Mixing:
    """The mixing of timm's FastCollateMixup or Mixup, of which only the parameters are used."""
    if getattr(mixup, "mode", None) not in ("batch", "elem"):
        raise ConfigError(
            'collate_fn: expected timm\'s FastCollateMixup with mode="batch" or "elem", got '
            f"{mixup!r}"
        )
    if getattr(mixup, "multi_label", False) or not getattr(mixup, "correct_lam", True):
        raise ConfigError("collate_fn: expected multi_label=False and correct_lam=True")
    if not mixup.mixup_alpha and not mixup.cutmix_alpha:
        raise ConfigError(
            "collate_fn: expected a mixup_alpha or cutmix_alpha above 0, or cutmix_minmax"
        )
    mixing = Mixing(
        mixup.mixup_alpha,
        mixup.cutmix_alpha,
        probability=mixup.mix_prob,
        cutting=mixup.switch_prob,
        sides=mixup.cutmix_minmax,
        at_once=mixup.mode == "batch",
        from_the_end=True,
    )
    mixing.enabled = getattr(mixup, "mixup_enabled", True)
    return mixing
