"""The bytes of a picture -> whether it is transparent; a word in the log where alpha is dropped."""

from __future__ import annotations

import logging

from fastpipe.format.sample_layout import PNG_MAGIC

_LOG = logging.getLogger("fastpipe")
_COLOUR_TYPE_AT = 25  # in a PNG's header, IHDR
_WITH_ALPHA = (4, 6)  # colour types: gray with alpha, RGB with alpha
_told: set[str] = set()


def has_alpha(data: bytes) -> bool:
    """Whether a PNG has alpha, or a colour that is transparent (tRNS); False for other formats.

    Source: the PNG specification, sections 11.2.2 and 11.3.2.1; tRNS comes before the pixels.
    """
    if not data.startswith(PNG_MAGIC) or len(data) <= _COLOUR_TYPE_AT:
        return False
    return (
        data[_COLOUR_TYPE_AT] in _WITH_ALPHA
        or data.find(b"tRNS", 0, max(0, data.find(b"IDAT"))) >= 0
    )


def tell_dropped() -> None:
    """Says once in a process that alpha is dropped."""
    if not _told:
        _told.add("alpha")
        _LOG.warning(
            "fastpipe.wds: some images have alpha, which is dropped: hidden colours show. "
            'background="white" puts them on white'
        )
