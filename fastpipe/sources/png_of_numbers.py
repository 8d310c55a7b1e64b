"""The start of a PNG -> whether its pixels are numbers, as those of masks are.

Format: https://www.w3.org/TR/png-3/#11IHDR
"""

from __future__ import annotations

from fastpipe.sources.files import SourcePath, open_binary

PNG_START = b"\x89PNG"
# A PNG has its colour type in its first chunk. In gray and with a palette, a pixel is a number.
COLOR_TYPE_OFFSET = 25
_GRAY_AND_PALETTE = (0, 3)


def is_png_of_numbers(data: bytes) -> bool:
    """Whether a file is a PNG in gray or with a palette."""
    if not data.startswith(PNG_START) or len(data) <= COLOR_TYPE_OFFSET:
        return False
    return data[COLOR_TYPE_OFFSET] in _GRAY_AND_PALETTE


def read_start(file: SourcePath) -> bytes:
    """As many bytes of a picture as tell whether it is a PNG of numbers; b"" if it cannot be read."""
    try:
        with open_binary(file) as opened:
            return opened.read(COLOR_TYPE_OFFSET + 1)
    except OSError:
        return b""
