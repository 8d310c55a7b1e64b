"""The bytes of a picture -> whether it has alpha; one warning where alpha is dropped."""

from __future__ import annotations

from fastpipe.dataset.format.sample_layout import PNG_MAGIC
from fastpipe.warnings_once import warn_once

_COLOR_TYPE_OFFSET = 25  # in a PNG, in its header IHDR
_TYPES_WITH_ALPHA = (4, 6)  # gray and alpha, RGB and alpha


def is_png_with_alpha(data: bytes) -> bool:
    """Whether a PNG has alpha, or a colour that is transparent (tRNS); False for other formats.

    Source: the PNG specification, sections 11.2.2 and 11.3.2.1; tRNS comes before the pixels.
    """
    if not data.startswith(PNG_MAGIC) or len(data) <= _COLOR_TYPE_OFFSET:
        return False
    if data[_COLOR_TYPE_OFFSET] in _TYPES_WITH_ALPHA:
        return True
    pixels_offset = max(0, data.find(b"IDAT"))
    return data.find(b"tRNS", 0, pixels_offset) >= 0


def warn_of_dropped_alpha() -> None:
    """Logs that alpha is dropped, once in a process."""
    warn_once(
        "fastpipe.wds alpha",
        "fastpipe.wds: some images have alpha, which is dropped, so the colours under transparent "
        'pixels become visible. background="white" puts the images on white',
    )
