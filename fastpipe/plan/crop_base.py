"""What all kinds of crops share: options by keyword, how pixels are made, padding."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self

from fastpipe.checks import choice, flag, whole
from fastpipe.errors import ConfigError
from fastpipe.plan.rendering import INTERPOLATIONS, PADDING_MODES, Rendering

MAX_OUTPUT_PIXELS = 16384  # a side of the output


@dataclass(frozen=True, kw_only=True)
class BaseCrop:
    """A kind of crop. Its options are keywords: in torchvision the first argument is the size of the output."""

    interpolation: str = "bilinear"
    antialias: bool = True
    mask_fill: int = 0

    def __post_init__(self) -> None:
        name = self.interpolation.name.lower() if isinstance(self.interpolation, Enum) else self.interpolation
        object.__setattr__(self, "interpolation", choice("interpolation", name, INTERPOLATIONS))
        if not flag("antialias", self.antialias) and name == "nearest":
            raise ConfigError("antialias: nearest takes single pixels in any case; leave antialias out")
        whole("mask_fill", self.mask_fill, least=0, most=255)

    def __new__(cls, *size: object, **options: object) -> Self:
        known = [f"{name}=" for kind in cls.__mro__[:-1] for name in inspect.get_annotations(kind)]  # its own first
        expected = f"{', '.join(known[:-1])} and {known[-1]} by name"
        if not size and "size" in options:
            size = (options["size"],)
        if size:
            raise ConfigError(
                f"{cls.__name__}: expected {expected}, got {', '.join(map(repr, size))}. {cls._hint(size[0])}"
            )
        unknown = [name for name in options if f"{name}=" not in known]
        if unknown:
            raise ConfigError(f"{cls.__name__}: expected {expected}, got {'=, '.join(unknown)}=")
        return super().__new__(cls)

    @property
    def rendering(self) -> Rendering:
        """How pixels are made."""
        return Rendering(self.interpolation, self.antialias, mask_fill=self.mask_fill)

    @property
    def may_be_reduced(self) -> bool:
        """Whether the picture may be decoded at a fraction of its size, where it is not to be exact."""
        return False

    @property
    def is_random(self) -> bool:
        """Whether each epoch has other crops."""
        return False

    @property
    def rows(self) -> int:
        """How many rows a picture becomes."""
        return 1

    @classmethod
    def _hint(cls, size: object) -> str:
        """Where a size belongs, and what else it may have been meant for."""
        return (
            f"The size of the output belongs to the loader: fastpipe.loader(..., size={size!r}, "
            f"crop=fastpipe.{cls.__name__}())"
        )


@dataclass(frozen=True, kw_only=True)
class PaddedCrop(BaseCrop):
    """A crop that may reach beyond its image."""

    fill: int | tuple[int, int, int] = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "fill", _colour(self.fill))
        choice("padding_mode", self.padding_mode, PADDING_MODES)
        if self.padding_mode != "constant" and self.fill != (0, 0, 0):
            raise ConfigError(f"fill: padding_mode={self.padding_mode!r} repeats pixels; leave fill out")

    @property
    def pads(self) -> bool:
        """Whether it ever reaches beyond."""
        return True

    @property
    def rendering(self) -> Rendering:
        plain = super().rendering
        return replace(plain, padding_mode=self.padding_mode, fill=_colour(self.fill)) if self.pads else plain


def _colour(value: object) -> tuple[int, int, int]:
    parts = value if isinstance(value, (tuple, list)) else (value,) * 3
    if len(parts) != 3:
        raise ConfigError(f"fill: expected a number or (red, green, blue), got {value!r}")
    red, green, blue = (whole("fill", part, least=0, most=255) for part in parts)
    return red, green, blue
