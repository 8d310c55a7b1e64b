"""The bytes of a file -> an opened image: PNGs by the engine, all other formats by Pillow."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from fastpipe.dataset.format.tiled_file import has_png_tiles
from fastpipe.errors import ImageError
from fastpipe.native import _engine
from fastpipe.sources.jpeg_segments import exif_orientation
from fastpipe.sources.picture.pillow import (
    OpenedImage,
    check_mode,
    decode_samples,
    find_packed_form,
    open_by_plugin,
    raise_as_image_errors,
    refuse_more_pixels,
)
from fastpipe.sources.picture.png import has_strips
from fastpipe.sources.picture.probe import engine_code, native, read_form

_NO_LIMIT = 2**62
# A PNG begins with its signature and the chunk IHDR.
_PNG_START_BYTES = 33


def open_image(data: bytes, name: str, *, max_pixels: int) -> OpenedImage:
    """Reads the header of a file of a format.

    Raises:
        ImageError: it is over the limit, damaged, or not supported.
    """
    if name == "PNG":
        return _open_png(data, max_pixels)
    if name == "ICO":
        return _open_ico(data, max_pixels)
    if has_png_tiles(data):
        return _open_png_tiles(data, max_pixels)
    return open_by_plugin(data, name, max_pixels)


def _open_png(data: bytes, max_pixels: int) -> OpenedImage:
    """Opens a PNG (W3C PNG 3rd edition). Of an animated one the picture is that of its IDAT."""
    # Before the engine reads the file: it may refuse one that is too short for its size, while the
    # limit is the better reason.
    if len(data) >= _PNG_START_BYTES:
        refuse_more_pixels(struct.unpack_from(">II", data, 16), max_pixels)
    size = native(_engine.picture_size, data, _NO_LIMIT)

    exif = b""
    is_animated = False
    start = 8
    # All chunks are walked, since eXIf may stand behind the picture.
    while True:
        kind = data[start + 4 : start + 8]
        if kind in (b"IEND", b""):
            break
        length = int.from_bytes(data[start : start + 4], "big")
        end = start + 12 + length
        if kind == b"fdAT":
            is_animated = True
        elif kind == b"eXIf":
            exif = data[start + 8 : end - 4]
            checksum = zlib.crc32(kind + exif).to_bytes(4, "big")
            if data[end - 4 : end] != checksum:
                raise ImageError(
                    f"damaged PNG: chunk eXIf at byte {start} has a wrong checksum"
                )
        start = end

    samples = partial(_decode_png, data, max_pixels)
    return OpenedImage(
        size, samples, exif_orientation(exif), is_animated, form=read_form(data)
    )


def _decode_png(data: bytes, max_pixels: int) -> NDArray[Any]:
    try:
        return native(_engine.png_samples, data, max_pixels)
    except ImageError as problem:
        # Some programs write data behind the last row, which Pillow ignores. fastpipe writes none,
        # so in its own PNGs such data are damage.
        if engine_code(problem) == _engine.Code.png_surplus and not has_strips(data):
            return open_by_plugin(data, "PNG", max_pixels).samples()
        raise


def _open_png_tiles(data: bytes, max_pixels: int) -> OpenedImage:
    """Opens a KEY.tif that Pillow cannot open."""
    size = native(_engine.picture_size, data, _NO_LIMIT)
    refuse_more_pixels(size, max_pixels)
    form = read_form(data)
    samples = partial(
        native,
        _engine.decode,
        data,
        max_pixels=max_pixels,
        channels=form.channels,
        bits=form.bits,
    )
    return OpenedImage(size, samples, form=form)


def _open_ico(data: bytes, max_pixels: int) -> OpenedImage:
    """Opens the largest picture in an ICO."""
    from PIL.IcoImagePlugin import IcoFile

    with raise_as_image_errors("ICO"):
        icon = IcoFile(io.BytesIO(data))
        picture = data[icon.entry[0].offset :]
        if picture.startswith(b"\x89PNG"):
            opened = _open_png(picture, max_pixels)
            # Pillow takes only the pixels of a PNG in an icon, so its EXIF and frames do not count.
            return replace(opened, orientation=1, multi_frame=False)
        # A BMP without its file header. Its height counts the picture and its mask.
        width, double_height = struct.unpack_from("<ii", picture, 4)
        refuse_more_pixels((width, double_height // 2), max_pixels)
        image = icon.frame(0)
        check_mode(image.mode, "ICO")
        return OpenedImage(
            image.size,
            partial(decode_samples, image, "ICO"),
            form=find_packed_form(image),
        )
