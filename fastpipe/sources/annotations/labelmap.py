"""labelmap.txt beside VOC's masks, as CVAT writes it -> the names of the classes in the masks.

A line is NAME:RED,GREEN,BLUE:PARTS:ACTIONS. A mask has a colour for each class in its palette. In a
mask without a palette, the number of a class is that of its line.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

from fastpipe.errors import PackError
from fastpipe.sources.annotations.numbered_names import list_numbered_names
from fastpipe.sources.files import SourcePath, open_unchanged

LABELMAP = "labelmap.txt"
_MAX_BYTES = 1 << 20
# The pixel of a mask is a byte.
_MAX_NUMBER = 255
# The first chunk of a PNG stands behind its signature of 8 bytes.
_FIRST_CHUNK_OFFSET = 8

Colour: TypeAlias = tuple[int, ...]  # red, green, blue


def read_mask_classes(
    folder: SourcePath, palette: Sequence[Colour] | None
) -> tuple[str, ...]:
    """The names of the classes, by their numbers in masks; "" for a number without a name.

    Args:
        folder: which may have the file.
        palette: the colours of the numbers in a mask; None: it has no palette.

    Returns:
        No names if there is no such file, or if it does not fit the palette.
    """
    try:
        with open_unchanged(folder / LABELMAP) as file:
            text = file.read(_MAX_BYTES).decode("utf-8-sig", "replace")
    except (OSError, PackError):
        return ()
    names: dict[int, str] = {}
    lines = [line.strip() for line in text.splitlines() if not line.startswith("#")]
    for line_number, line in enumerate(filter(None, lines)):
        name, _, rest = line.partition(":")
        number = line_number
        if palette is not None:
            colour = _parse_colour(rest.partition(":")[0])
            # Then the file is of other masks, and its names would be wrong.
            if colour not in palette:
                return ()
            number = palette.index(colour)
        if not name or number in names or number > _MAX_NUMBER:
            return ()
        names[number] = name
    return list_numbered_names(names)


def read_palette(data: bytes) -> list[Colour] | None:
    """The colours of a PNG's palette; None if it has none.

    Format: https://www.w3.org/TR/png-3/#11PLTE
    """
    offset = _FIRST_CHUNK_OFFSET
    while offset + 8 <= len(data):
        size_bytes, name = struct.unpack_from(">I4s", data, offset)
        if name == b"PLTE":
            # Three bytes a colour; a size that three does not divide is damage.
            payload = data[offset + 8 : offset + 8 + size_bytes]
            return list(struct.iter_unpack("BBB", payload[: size_bytes // 3 * 3]))
        if name == b"IDAT":
            return None
        # A chunk has its size, its name and its checksum, of 4 bytes each.
        offset += size_bytes + 12
    return None


def _parse_colour(text: str) -> Colour | None:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        return None
