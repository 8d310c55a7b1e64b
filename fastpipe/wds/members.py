"""A member of a WebDataset's sample -> is it a picture, and bytes that the engine decodes, or its pixels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.format.sample_layout import FPC_MAGIC, PNG_MAGIC
from fastpipe.native import _engine
from fastpipe.sources.options import PICTURES
from fastpipe.sources.picture.probe import image_format

_JPEG = b"\xff\xd8\xff"
_DECODED = (_JPEG, FPC_MAGIC, PNG_MAGIC)  # by the engine
_FILMS = frozenset(["mjpeg", "mjpg"])  # which begin as a JPEG does


class Opened(NamedTuple):
    """A picture whose header has been read: what the engine decodes, or (height, width, 3) uint8."""

    width: int
    height: int
    data: bytes | None = None
    rgb: NDArray[np.uint8] | None = None


def is_picture(extension: str, data: object) -> bool:
    """Whether a member is to be cropped.

    Those are members of a picture's extension (`jpg`, `png`), and JPEGs of any other (`left.jpg`, `bin`). A PNG of
    another extension (`seg.png`) may be a mask, whose ids must not be mixed: it is left alone.
    """
    extension = extension.lower()
    if extension in PICTURES:
        return True
    jpeg = isinstance(data, bytes) and data.startswith(_JPEG)
    return jpeg and extension.rpartition(".")[2] not in _FILMS


def open_plain(data: bytes, *, max_pixels: int) -> Opened | None:
    """Reads the header of a JPEG, KEY.fpc or PNG; None if it is none that the engine decodes."""
    if not data.startswith(_DECODED):
        return None
    try:
        return Opened(*_engine.picture_size(data, max_pixels), data)
    except ValueError:
        return None


def open_other(data: bytes, *, max_pixels: int) -> Opened | str:
    """What the engine refuses: JPEGs and PNGs as `pack` stores them (without loss, if progressive); others by Pillow.
    Why not: it is no picture, damaged, or over the limit.
    """
    try:
        if data.startswith(_DECODED):
            from fastpipe.sources.picture.convert import EncodeOptions, convert  # OpenCV and PyTurboJPEG: few need them

            packed = convert(data, EncodeOptions(max_pixels=max_pixels, tile=0))
            return Opened(packed.width, packed.height, data=packed.data)
        from fastpipe.sources.picture.pillow import open_image

        rgb = open_image(data, image_format(data), max_pixels=max_pixels).rgb()
        return Opened(rgb.shape[1], rgb.shape[0], rgb=rgb)
    except ImageError as problem:
        return str(problem)
