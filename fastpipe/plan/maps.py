"""How a batch has the maps of a field, such as depth or optical flow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from fastpipe.arguments import refusing_unknown_fields
from fastpipe.errors import ConfigError, choice, real_number

MAX_FLIPPED = 64  # channels that may be among flip_signs=


@refusing_unknown_fields("fastpipe.Maps")
@dataclass(frozen=True)
class Maps:
    """A field of maps, arrays that lie on the image, in `fields=` of fastpipe.loader.

    A map is cropped, resized and mirrored with its image: a batch has (N, height, width), or (N,
    channels, height, width), of the images' height and width and of the dtype that is stored. The
    name alone means these defaults.

    Args:
        name: the field's name.
        interpolation: "bilinear" or "nearest". "auto": bilinear for floats, nearest for whole
            numbers. Bilinear is that of torchvision's `resize` of a tensor, with the loader's
            antialias; nearest is that of masks.
        invalid: the value that marks missing data, such as 0 where a camera saw no depth; NaN
            always does. Bilinear leaves such numbers out: a number of a batch is the mean of the
            valid ones, or `invalid` (else NaN) where these have less than half of the weight. It
            also stands outside of the image, where a crop is padded; else 0 does.
        flip_signs: the channels whose numbers change their signs in a mirrored image: (0,) for
            optical flow and for normals, whose first channel is x. () if there are none. A map of
            two or three channels of floats needs it if images are mirrored.

    Example:
        >>> depth = fastpipe.Maps("depth", invalid=0)
        >>> loader = fastpipe.loader("data/rooms", batch_size=4, size=32, fields=("image", depth))
        >>> batch = next(iter(loader))
        >>> batch["depth"].shape, batch["depth"].dtype
        (torch.Size([4, 32, 32]), torch.float32)
    """

    name: str
    _: KW_ONLY
    interpolation: str = "auto"
    invalid: float | None = None
    flip_signs: Sequence[int] | None = None

    def __post_init__(self) -> None:
        choice(
            "Maps(interpolation=)", self.interpolation, ("auto", "bilinear", "nearest")
        )
        if self.invalid is not None:
            invalid = real_number(self.invalid)
            if invalid is None:
                raise ConfigError(
                    f"Maps(invalid=): expected a number, such as 0, got {self.invalid!r}"
                )
            # NaN is invalid in any case.
            object.__setattr__(
                self, "invalid", None if math.isnan(invalid) else invalid
            )
        if self.flip_signs is None:
            return
        is_list = isinstance(self.flip_signs, (list, tuple))
        if not is_list or not all(_is_channel(item) for item in self.flip_signs):
            raise ConfigError(
                f"Maps(flip_signs=): expected numbers of channels from 0 to {MAX_FLIPPED - 1}, "
                f"such as (0,), got {self.flip_signs!r}"
            )
        object.__setattr__(self, "flip_signs", tuple(self.flip_signs))


def _is_channel(value: object) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return 0 <= value < MAX_FLIPPED


class MapForm(NamedTuple):
    """How the numbers of a field's maps are stored, and how their rows are made.

    Attributes:
        dtype: one of MAP_DTYPES.
        channels: of (height, width) 1.
        interpolation: "bilinear" or "nearest".
        invalid: see Maps.
        flip_signs: see Maps.
    """

    dtype: str
    channels: int
    interpolation: str
    invalid: float | None
    flip_signs: tuple[int, ...]

    @property
    def outside(self) -> float:
        """The number that stands outside of an image."""
        return 0.0 if self.invalid is None else self.invalid

    def keywords(self) -> dict[str, Any]:
        """The engine's keywords for rows of maps, besides those of a Rendering."""
        numbers = {
            "dtype": self.dtype,
            "invalid": self.invalid,
            "negated": self.flip_signs,
        }
        return {"map": numbers, "interpolation": self.interpolation}
