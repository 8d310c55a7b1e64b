"""Arguments for the output of a loader -> checked values: size, crop, mirroring."""

from __future__ import annotations

from fastpipe.checks import real_number, whole
from fastpipe.errors import ConfigError
from fastpipe.plan.crops import MAX_OUTPUT_PIXELS, CenterCrop, Crop, RandomResizedCrop, Resize


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
                f"crop: CenterCrop(resize={resize}) makes the image smaller than size={size}; expected resize of at "
                f"least {max(size)}"
            )
        return CenterCrop(resize=resize)
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
    probability = real_number(hflip)
    if probability is not None and 0.0 <= probability <= 1.0:
        return probability
    raise ConfigError(f"hflip: expected True, False or a probability from 0 to 1, got {hflip!r}")
