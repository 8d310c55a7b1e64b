"""The layout of a KEY.tif: a picture whose tiles are JPEGs (docs/explanation/format.md, "KEY.tif").

It is a BigTIFF, so other programs open it, too. Sources of the layout: TIFF 6.0; BigTIFF
(https://www.awaresystems.be/imaging/tiff/bigtiff.html).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# "II" (little-endian), version 43, offsets of 8 bytes.
TILED_MAGIC = b"II\x2b\0\x08\0\0\0"
# A tile's sides are multiples of it.
TILE_MULTIPLE = 16

_HEADER_BYTES = 16
_TAG_BYTES = 20
_VALUE_BYTES = 8  # of a tag; larger values lie behind the tags
_SHORT = ("H", 3)  # the code of `struct`, and the type's number
_LONG = ("I", 4)
_LONG8 = ("Q", 16)

_JPEG_COMPRESSION = 7
_BLACK_IS_ZERO = 1
_RGB = 2
_YCBCR = 6
_SAMPLES_PER_PIXEL = 277
# The tags stand in this order, and the number of channels is the sixth.
_CHANNELS_OFFSET = _HEADER_BYTES + 8 + 5 * _TAG_BYTES + 12


class TiledPicture(NamedTuple):
    """A picture in tiles.

    Attributes:
        size: width and height of the picture, in pixels.
        tile_size: width and height of each tile, also of those at the right and lower edge.
        channels: 1 (gray) or 3.
        sampling: of the colours, as in JPEG: luma samples for one of chroma, across and down; None:
            the colours are RGB.
        tiles: the JPEG of each tile, row by row; b"": all of the tile is black.
    """

    size: tuple[int, int]
    tile_size: tuple[int, int]
    channels: int
    sampling: tuple[int, int] | None
    tiles: Sequence[bytes]


def tiled_file(picture: TiledPicture) -> bytes:
    """The bytes of a KEY.tif."""
    photometric = _BLACK_IS_ZERO
    if picture.channels == 3:
        photometric = _RGB if picture.sampling is None else _YCBCR
    num_tiles = len(picture.tiles)
    sizes = np.array([len(tile) for tile in picture.tiles], dtype=np.uint32)
    tags = [
        (256, _LONG, [picture.size[0]]),
        (257, _LONG, [picture.size[1]]),
        (258, _SHORT, [8] * picture.channels),
        (259, _SHORT, [_JPEG_COMPRESSION]),
        (262, _SHORT, [photometric]),
        (_SAMPLES_PER_PIXEL, _SHORT, [picture.channels]),
        (284, _SHORT, [1]),  # the channels of a pixel lie together
        (322, _LONG, [picture.tile_size[0]]),
        (323, _LONG, [picture.tile_size[1]]),
        (324, _LONG8, None),  # where the tiles lie
        (325, _LONG, None),  # their sizes
    ]
    if photometric == _YCBCR and picture.sampling is not None:
        tags.append((530, _SHORT, list(picture.sampling)))

    # The offsets of the tiles lie behind the tags, then their sizes, then the tiles.
    offsets_at = _HEADER_BYTES + 8 + len(tags) * _TAG_BYTES + 8
    sizes_at = offsets_at + 8 * num_tiles
    tiles_at = sizes_at + 4 * num_tiles
    ends = tiles_at + np.cumsum(sizes, dtype=np.uint64)
    offsets = (ends - sizes).astype("<u8")
    # A tile of which nothing is stored has no place.
    offsets[sizes == 0] = 0
    arrays = {324: (offsets, offsets_at), 325: (sizes.astype("<u4"), sizes_at)}

    head = TILED_MAGIC + struct.pack("<QQ", _HEADER_BYTES, len(tags))
    for number, (code, type_number), values in tags:
        if values is None:
            array, value_at = arrays[number]
            count = num_tiles
            value = array.tobytes()
            if len(value) > _VALUE_BYTES:
                value = struct.pack("<Q", value_at)
        else:
            count = len(values)
            value = struct.pack(f"<{count}{code}", *values)
        head += struct.pack("<HHQ", number, type_number, count)
        head += value.ljust(_VALUE_BYTES, b"\0")
    head += struct.pack("<Q", 0)  # no further picture
    pieces = [head, offsets.tobytes(), arrays[325][0].tobytes(), *picture.tiles]
    return b"".join(pieces)


def tiled_channels(data: bytes) -> int:
    """The number of channels of a KEY.tif, from its first bytes."""
    channels: int = struct.unpack_from("<H", data, _CHANNELS_OFFSET)[0]
    return channels
