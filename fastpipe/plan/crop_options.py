"""Arguments for the output of a loader -> checked values: size, crop, mirroring."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from fastpipe.arguments import advise_single_transform
from fastpipe.errors import ConfigError, real_number
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crops import (
    CenterCrop,
    Crop,
    FiveCrop,
    RandomResizedCrop,
    Size,
    parse_size,
    shorter_side,
)
from fastpipe.plan.native import Native
from fastpipe.plan.option_conflicts import conflict_error
from fastpipe.plan.patches import Patches
from fastpipe.plan.recipe import Sizes
from fastpipe.plan.whole_images import WholeImages

_KINDS: tuple[type[Crop], ...] = get_args(Crop)
_CLASS_NAMES = {kind.__name__.lower(): kind.__name__ for kind in _KINDS}
_CLASS_NAMES["random"] = "RandomResizedCrop"
_CLASS_NAMES["center"] = "CenterCrop"
# The options of torchvision's transforms that are written in the same way here.
_SHARED_OPTIONS = {
    "RandomResizedCrop": ("scale", "ratio"),
    "RandomCrop": ("padding", "padding_mode", "pad_if_needed"),
}
_DEFAULTS = (0, "constant", "bilinear")  # of these options; also False, which equals 0
_NOT_A_CROP = (
    ". crop= says only which part of an image becomes the row: pass mirroring as hflip=, and what "
    "comes after as augment=, which gets the batch of tensors. A transform of single images works "
    "with "
)


def parse_whole_images(
    size: object, size_choices: object, crop: object, *, train: bool
) -> WholeImages | None:
    """Checks `size` if it is "bucket", Buckets, Native or Patches; None if it is none of these.

    Args:
        size, size_choices, crop: of the loader. The last two do not go with such a size.
        train: whether Buckets that cover crop at random by default.
    """
    if isinstance(crop, WholeImages):
        raise ConfigError(
            f"crop: expected a crop, got {crop!r}; it decides the size of batches, too: pass it as "
            "size="
        )
    is_class = size is Buckets or size is Native or size is Patches
    if is_class or (isinstance(size, str) and size != "bucket"):
        expected = 'a number, (height, width), "bucket" or a function'
        raise ConfigError(
            f"size: expected {expected}, got {size!r}; for options of buckets "
            "fastpipe.Buckets(area=...), and for each image at its own size "
            "fastpipe.Native(max_pixels=...), or as patches fastpipe.Patches(16)"
        )
    if not isinstance(size, (str, WholeImages)):
        return None
    if size_choices is not None:
        raise conflict_error(
            "whole images + other sizes", f"size_choices={size_choices!r}"
        )
    if crop is not None:
        raise conflict_error("whole images + crop", type(crop).__name__)
    if isinstance(size, str):
        return Buckets()
    if isinstance(size, Buckets) and size.covers and size.random_crop is None:
        return replace(size, random_crop=train)
    return size


def batch_sizes(
    size: object, choices: object, crop: object, *, train: bool
) -> tuple[Size, Sizes | None]:
    """Checks `size` and `size_choices`.

    Returns:
        The largest size that is known, and the Sizes if sizes change, else None.
    """
    if choices is not None:
        if size is not None:
            raise ConfigError(
                f"size_choices: expected one of size= and size_choices=, got both, size={size!r}; "
                "leave one out"
            )
        if not isinstance(choices, (tuple, list)) or not choices:
            raise ConfigError(
                f"size_choices: expected sizes, for example [192, 224, 256], got {choices!r}"
            )
        checked = tuple(parse_size(choice, "size_choices") for choice in choices)
        sizes = checked_sizes(Sizes(choices=checked), crop, train=train)
        return max(checked, key=math.prod), sizes
    if not callable(size):
        return parse_size(size), None
    schedule = _checked_schedule(size, parse_size)
    sizes = checked_sizes(Sizes(schedule=schedule), crop, train=train)
    # Only the sizes of epoch 0 are known; the memory grows if a later one is larger.
    return sizes.in_epoch(0, 0)(0), sizes


def checked_sizes(sizes: Sizes, crop: object, *, train: bool) -> Sizes:
    """The same sizes, checked against a crop.

    Sizes of a schedule are checked when their epoch comes.
    """

    def check_size(size: Size) -> Size:
        parse_crop(crop, size, train=train)
        return size

    schedule = None
    if sizes.schedule is not None:
        schedule = _checked_schedule(sizes.schedule, check_size)
    return Sizes(schedule, tuple(map(check_size, sizes.choices)))


def _checked_schedule(
    function: Callable[[int], Any], check: Callable[[Any], Size]
) -> Callable[[int], Size]:
    """The same function of the epoch, with a check of its results.

    Its errors name the epoch and the result.
    """

    def schedule(epoch: int) -> Size:
        try:
            size = function(epoch)
        except ConfigError:
            # The function is a checked schedule itself, whose message is complete.
            raise
        except Exception as problem:
            raise ConfigError(
                f"size: the function failed for epoch {epoch}: {problem!r}"
            ) from problem
        try:
            return check(size)
        except ConfigError as problem:
            raise ConfigError(
                f"size: the function returned {size!r} for epoch {epoch}: {problem}"
            ) from None

    return schedule


def parse_crop(crop: object, size: Size, *, train: bool) -> Crop:
    """Checks `crop` against the output's (height, width); None: the default of `train`."""
    if crop is None:
        crop = RandomResizedCrop() if train else CenterCrop()
    if isinstance(crop, (CenterCrop, FiveCrop)):
        resize = shorter_side(crop, size)
        if resize < max(size):
            raise ConfigError(
                f"crop: {type(crop).__name__}(resize={resize}) makes the image smaller than "
                f"size={size}; expected resize of at least {max(size)}"
            )
    if isinstance(crop, _KINDS):
        return crop
    others = ", ".join(kind.__name__ for kind in _KINDS[1:])
    raise ConfigError(
        f"crop: expected fastpipe.RandomResizedCrop(...), {others}, got "
        f"{crop!r}{_describe_equivalent(crop)}"
    )


def parse_flip_probability(hflip: object, *, train: bool) -> float:
    """Checks `hflip`: None (as `train`), True (a half), False (never), or a probability."""
    if hflip is None:
        hflip = train
    if isinstance(hflip, bool):
        return 0.5 if hflip else 0.0
    probability = real_number(hflip)
    if probability is None or not 0.0 <= probability <= 1.0:
        raise ConfigError(
            f"hflip: expected True, False or a probability from 0 to 1, got {hflip!r}"
        )
    return probability


def _describe_equivalent(crop: object) -> str:
    """The end of the error about a crop: how another library's transform is written here."""
    if isinstance(crop, type) and issubclass(crop, _KINDS):
        return f". Create an object: fastpipe.{crop.__name__}()"
    is_side = isinstance(crop, int) and not isinstance(crop, bool)
    if is_side or (isinstance(crop, (tuple, list)) and len(crop) == 2):
        return (
            f". That is a size: write size={crop!r}, and leave crop= out, or pass "
            "crop=fastpipe.CenterCrop()"
        )
    # A name of a crop as a text, or the name of another library's class, such as torchvision's
    # RandomResizedCrop, or of its function, center_crop.
    if isinstance(crop, str):
        kind = crop
    else:
        kind = getattr(crop, "__name__", type(crop).__name__)
    name = _CLASS_NAMES.get(kind.lower().replace("_", ""))
    if name is None:
        if not callable(crop):
            return ""
        return _NOT_A_CROP + advise_single_transform(crop)
    size = getattr(crop, "size", None)
    if name == "Resize" and isinstance(size, int):
        return (
            f". Of the shorter side: write crop=fastpipe.CenterCrop(resize={size}), and pass the "
            "output's size= too"
        )

    # The options of that crop which are written in the same way here.
    values = {}
    for option in _SHARED_OPTIONS.get(name, ()):
        values[option] = getattr(crop, option, None)
    # torchvision's InterpolationMode is an Enum.
    interpolation = getattr(crop, "interpolation", None)
    values["interpolation"] = getattr(interpolation, "value", None)
    options = []
    for option, value in values.items():
        if isinstance(value, list):
            value = tuple(value)
        if isinstance(value, (tuple, str, int)) and value not in _DEFAULTS:
            options.append(f"{option}={value!r}")
    size_option = ""
    if size is not None:
        size_option = f"size={size!r}, "
    return f". Write {size_option}crop=fastpipe.{name}({', '.join(options)})"
