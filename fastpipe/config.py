"""What a user asks of a loader -> checked values; every mistake gets a message that says what to pass instead."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from numbers import Real

from fastpipe.errors import ConfigError

MAX_OUTPUT_PIXELS = 16384  # a side of the output


@dataclass(frozen=True)
class RandomResizedCrop:
    """A random part of the picture, resized: torchvision's transform of that name, by its sampling rule.

    Args:
        scale: least and greatest share of the picture's area, in (0, 1].
        ratio: least and greatest width divided by height.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _pair("scale", self.scale, most=1.0))
        object.__setattr__(self, "ratio", _pair("ratio", self.ratio, most=math.inf))


@dataclass(frozen=True)
class CenterCrop:
    """The shorter side resized to `resize`, then the middle cut out: torchvision's Resize and CenterCrop.

    Args:
        resize: pixels of the shorter side before the cut; None: size * 256 / 224, rounded.
    """

    resize: int | None = None

    def __post_init__(self) -> None:
        if self.resize is not None:
            whole("resize", self.resize, least=1, most=MAX_OUTPUT_PIXELS)


@dataclass(frozen=True)
class Resize:
    """The whole picture, resized to the output's size; its proportions are not kept."""


Crop = RandomResizedCrop | CenterCrop | Resize


def whole(name: str, value: object, *, least: int, most: int, hint: str = "") -> int:
    """Checks a whole number; numpy's integers are accepted, True and False are not. The hint ends the message."""
    hint = hint and f"; {hint}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")):
        raise ConfigError(f"{name}: expected a whole number, got {value!r}{hint}")
    if not least <= number <= most:
        raise ConfigError(f"{name}: expected {least} to {most}, got {number}{hint}")
    return number


def flag(name: str, value: object) -> bool:
    """Checks a yes or no."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}: expected True or False, got {value!r}")
    return value


def positive(name: str, value: object) -> float:
    """Checks a finite number above 0."""
    number = _number(value)
    if number is None or not 0 < number < math.inf:
        raise ConfigError(f"{name}: expected a number above 0, got {value!r}")
    return number


def choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Checks one of a few words."""
    if value not in choices:
        raise ConfigError(f"{name}: expected {' or '.join(map(repr, choices))}, got {value!r}")
    return str(value)


def output_size(value: object) -> tuple[int, int]:
    """Checks `size`: a number for a square, or (height, width), as torchvision takes them."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ConfigError(f"size: expected a number or (height, width), got {value!r}")
        height, width = value
    else:
        height = width = value
    hint = "pass a number for a square, or (height, width)"
    return (
        whole("size", height, least=1, most=MAX_OUTPUT_PIXELS, hint=hint),
        whole("size", width, least=1, most=MAX_OUTPUT_PIXELS, hint=hint),
    )


def checked_crop(crop: object, size: tuple[int, int], *, train: bool) -> Crop:
    """Checks `crop` against the output's (height, width) and fills in what None stands for."""
    if crop is None:
        crop = RandomResizedCrop() if train else CenterCrop()
    if isinstance(crop, CenterCrop):
        resize = round(max(size) * 256 / 224) if crop.resize is None else crop.resize
        if resize < max(size):
            raise ConfigError(
                f"crop: CenterCrop(resize={resize}) leaves a picture smaller than size={size}; "
                f"expected resize of at least {max(size)}"
            )
        return CenterCrop(resize)
    if isinstance(crop, (RandomResizedCrop, Resize)):
        return crop
    raise ConfigError(
        f"crop: expected fastpipe.RandomResizedCrop(...), fastpipe.CenterCrop(...) or fastpipe.Resize(), got {crop!r}"
    )


def flip_probability(hflip: object, *, train: bool) -> float:
    """Checks `hflip`: None (as `train` says), True (a half), False (never), or a probability in [0, 1]."""
    if hflip is None:
        return 0.5 if train else 0.0
    if isinstance(hflip, bool):
        return 0.5 if hflip else 0.0
    probability = _number(hflip)
    if probability is not None and 0.0 <= probability <= 1.0:
        return probability
    raise ConfigError(f"hflip: expected True, False or a probability from 0 to 1, got {hflip!r}")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None


def _pair(name: str, value: object, *, most: float) -> tuple[float, float]:
    if isinstance(value, (tuple, list)) and len(value) == 2:
        low, high = _number(value[0]), _number(value[1])
        if low is not None and high is not None and 0 < low <= high <= most and math.isfinite(high):
            return low, high
    bound = "" if most == math.inf else f" and at most {most:g}"
    raise ConfigError(f"{name}: expected two numbers (least, greatest), above 0{bound}, got {value!r}")
