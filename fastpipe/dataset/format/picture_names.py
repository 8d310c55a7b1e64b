"""The name of a file -> whether it is called like a picture."""

from __future__ import annotations

import os

_PICTURE_ENDINGS = (
    "jpg jpeg jpe jfif png apng webp bmp dib tif tiff gif avif jp2 j2k ppm pgm pbm pnm tga ico "
    "heic heif fpc "
    "svs scn bif ndpi ptif btf"  # TIFFs of microscopes and scanners
)
PICTURES = frozenset(_PICTURE_ENDINGS.split())


def is_picture(name: str) -> bool:
    """Whether a file is called like a picture, by the ending of its name."""
    _, dot_and_ending = os.path.splitext(name)
    return dot_and_ending[1:].lower() in PICTURES
