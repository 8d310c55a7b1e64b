"""A picture as a shard holds it -> its form: channels and bits."""

from __future__ import annotations

from fastpipe.format.pixel_form import PixelForm
from fastpipe.format.sample_layout import picture_ending
from fastpipe.packing.picture.jpeg_segments import read_header

_COLOR_TYPES = {0: 1, 2: 3, 3: 3, 4: 4, 6: 4}  # W3C PNG, 11.2.1 -> channels
_COMPONENTS = 20  # the byte of a KEY.fpc: docs/format.md


def form_of(picture: bytes) -> PixelForm:
    """The form of a JPEG, KEY.fpc or PNG whose size could be read. ImageError: a JPEG ends before its picture data."""
    ending = picture_ending(picture)
    if ending == "fpc":
        return PixelForm(picture[_COMPONENTS])
    if ending == "jpg":
        return PixelForm(read_header(picture).components)
    at = 33  # behind IHDR
    while (kind := picture[at + 4 : at + 8]) not in (b"tRNS", b"IDAT", b""):
        at += 12 + int.from_bytes(picture[at : at + 4], "big")
    return PixelForm(4 if kind == b"tRNS" else _COLOR_TYPES[picture[25]], max(picture[24], 8))
