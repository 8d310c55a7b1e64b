"""What a map may be: an array that lies on the image of its sample."""

from __future__ import annotations

from collections.abc import Sequence

from fastpipe.dataset.format.array_file import ArrayHeader
from fastpipe.dataset.format.fields import (
    MAP_DTYPES,
    MAX_MAP_CHANNELS,
    MAX_MAP_SIDE,
)
from fastpipe.errors import ImageError

_FLOATS = ("float16", "float32")


def check_map(header: ArrayHeader) -> None:
    """Raises ImageError if an array cannot be a map."""
    if header.dtype not in MAP_DTYPES:
        raise ImageError(
            f"expected a map of {', '.join(MAP_DTYPES)}, got {header.dtype}; convert it, for "
            'example by array.astype("float32")'
        )
    axes = header.shape
    expected = "(height, width) or (height, width, channels)"
    if len(axes) not in (2, 3):
        raise ImageError(f"expected a map of shape {expected}, got {axes}")
    height, width = axes[:2]
    has_sides = min(height, width) >= 1 and max(height, width) <= MAX_MAP_SIDE
    if not has_sides:
        raise ImageError(
            f"expected a map of shape {expected}, of 1 to {MAX_MAP_SIDE:,} pixels a side, got {axes}"
        )
    if not 1 <= channels_of(axes) <= MAX_MAP_CHANNELS:
        raise ImageError(
            f"expected a map of 1 to {MAX_MAP_CHANNELS:,} channels, got {axes}"
        )


def channels_of(shape: Sequence[int | None]) -> int:
    """The channels of a map; 1 of (height, width)."""
    if len(shape) == 2:
        return 1
    channels = shape[2]
    assert channels is not None
    return channels


def is_float(dtype: str) -> bool:
    """Whether maps of this dtype may have fractions, NaN and signs."""
    return dtype in _FLOATS


def may_be_directions(dtype: str, shape: Sequence[int | None]) -> bool:
    """Whether the numbers of a pixel may be a vector, as of optical flow or normals.

    Two or three channels of float: such a vector has to be mirrored with the image.
    """
    if not is_float(dtype) or len(shape) != 3:
        return False
    channels = shape[2]
    return channels in (2, 3)
