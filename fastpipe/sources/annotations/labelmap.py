"""labelmap.txt beside VOC's masks, as CVAT writes it -> the names of the classes in the masks.

A line is NAME:RED,GREEN,BLUE:PARTS:ACTIONS. A mask has a colour for each class in its palette. In a
mask without a palette, the number of a class is that of its line.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

from fastpipe.errors import PackError
from fastpipe.sources.files import SourcePath, open_unchanged

LABELMAP = "labelmap.txt"
_MAX_BYTES = 1 << 20
_MAX_NUMBER = 255  # of a class in a mask

_FIRST_CHUNK = 8  # behind the signature of a PNG

Colour: TypeAlias = tuple[int, ...]


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
    lines = [line for line in text.splitlines() if line.strip() and line[0] != "#"]
    for line_number, line in enumerate(lines):
        name, _, rest = line.strip().partition(":")
        number = line_number
        if palette is not None:
            colour = _parse_colour(rest.partition(":")[0])
            if colour not in palette:
                return ()
            number = palette.index(colour)
        if not name or number in names or number > _MAX_NUMBER:
            return ()
        names[number] = name
    return tuple(names.get(number, "") for number in range(max(names, default=-1) + 1))


def palette_of_png(data: bytes) -> list[Colour] | None:
    """The colours of a PNG's palette; None if it has none.

    Format: https://www.w3.org/TR/png-3/#11PLTE
    """
    position = _FIRST_CHUNK
    while position + 8 <= len(data):
        size_bytes, name = struct.unpack_from(">I4s", data, position)
        if name == b"PLTE":
            payload = data[position + 8 : position + 8 + size_bytes]
            return list(struct.iter_unpack("BBB", payload[: size_bytes // 3 * 3]))
        if name == b"IDAT":
            return None
        position += size_bytes + 12  # its size, name and checksum
    return None


def _parse_colour(text: str) -> Colour | None:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        return None
