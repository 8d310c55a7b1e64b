"""The layout of a KEY.tif: a picture in tiles, JPEGs or PNGs (docs/explanation/format.md, "KEY.tif").

It is a BigTIFF, so other programs open it, too: all of them those with JPEGs; tifffile with
imagecodecs, which defined the number of the compression, those with PNGs. Sources of the layout: TIFF 6.0; BigTIFF
(https://www.awaresystems.be/imaging/tiff/bigtiff.html).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.dataset.format.pixel_form import PixelForm

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

JPEG_COMPRESSION = 7
PNG_COMPRESSION = 34933
_BLACK_IS_ZERO = 1
_RGB = 2
_YCBCR = 6
_UNASSOCIATED_ALPHA = 2
# The tags stand in one order: BitsPerSample is the third, Compression the
# fourth, and SamplesPerPixel the sixth.
_BITS_OFFSET = _HEADER_BYTES + 8 + 2 * _TAG_BYTES + 12
_COMPRESSION_OFFSET = _HEADER_BYTES + 8 + 3 * _TAG_BYTES + 12
_CHANNELS_OFFSET = _HEADER_BYTES + 8 + 5 * _TAG_BYTES + 12
# The sides of tiles that are cut from pixels.
_TILE_SIDE = 256


class TiledPicture(NamedTuple):
    """A picture in tiles.

    Attributes:
        size: width and height of the picture, in pixels.
        tile_size: width and height of each tile, also of those at the right and lower edge.
        channels: 1 (gray) or 3; of PNGs also 2 or 4, with alpha.
        tiles: the JPEG of each tile, row by row; b"": all of the tile is black. Or the PNG of each.
        is_png: the tiles are PNGs.
        bits: of a channel: 8, or of PNGs 16.
        sampling: of the colours of JPEGs: luma samples for one of chroma, across and down; None: the
            colours are RGB.
    """

    size: tuple[int, int]
    tile_size: tuple[int, int]
    channels: int
    tiles: Sequence[bytes]
    is_png: bool = False
    bits: int = 8
    sampling: tuple[int, int] | None = None


def tiled_file(picture: TiledPicture) -> bytes:
    """The bytes of a KEY.tif."""
    photometric = _BLACK_IS_ZERO
    if picture.channels >= 3:
        photometric = _RGB if picture.sampling is None else _YCBCR
    compression = PNG_COMPRESSION if picture.is_png else JPEG_COMPRESSION
    num_tiles = len(picture.tiles)
    sizes = np.array([len(tile) for tile in picture.tiles], dtype=np.uint32)
    tags = [
        (256, _LONG, [picture.size[0]]),
        (257, _LONG, [picture.size[1]]),
        (258, _SHORT, [picture.bits] * picture.channels),
        (259, _SHORT, [compression]),
        (262, _SHORT, [photometric]),
        (277, _SHORT, [picture.channels]),
        (284, _SHORT, [1]),  # the channels of a pixel lie together
        (322, _LONG, [picture.tile_size[0]]),
        (323, _LONG, [picture.tile_size[1]]),
        (324, _LONG8, None),  # where the tiles lie
        (325, _LONG, None),  # their sizes
    ]
    if picture.channels in (2, 4):
        tags.append((338, _SHORT, [_UNASSOCIATED_ALPHA]))
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


def cut_into_tiles(
    pixels: NDArray[np.generic],
    encode: Callable[[NDArray[np.generic]], bytes],
    *,
    is_png: bool,
) -> bytes:
    """The KEY.tif of pixels.

    Args:
        pixels: (height, width, 1..4) uint8 or uint16.
        encode: makes the JPEG or PNG of a tile, (height, width, 1..4). JPEGs of colours are YCbCr
            whose chroma has as many samples as luma.
        is_png: `encode` makes PNGs.
    """
    height, width, channels = pixels.shape
    side = _TILE_SIDE
    tiles = []
    for top in range(0, height, side):
        for left in range(0, width, side):
            tile = pixels[top : top + side, left : left + side]
            # Tiles at the right and lower edge are whole, too: their last pixels are repeated.
            missing_rows = side - tile.shape[0]
            missing_columns = side - tile.shape[1]
            padding = ((0, missing_rows), (0, missing_columns), (0, 0))
            tiles.append(encode(np.pad(tile, padding, mode="edge")))
    return tiled_file(
        TiledPicture(
            (width, height),
            (side, side),
            channels,
            tiles,
            is_png=is_png,
            bits=8 * pixels.itemsize,
            sampling=(1, 1) if channels == 3 and not is_png else None,
        )
    )


def tiled_form(data: bytes) -> PixelForm:
    """The form of the pixels of a KEY.tif, from its first bytes."""
    (bits,) = struct.unpack_from("<H", data, _BITS_OFFSET)
    (channels,) = struct.unpack_from("<H", data, _CHANNELS_OFFSET)
    if channels == 2:
        channels = 4  # gray and alpha
    return PixelForm(channels, bits)


def has_png_tiles(data: bytes) -> bool:
    """Whether a picture is a KEY.tif whose tiles are PNGs."""
    compression = struct.pack("<H", PNG_COMPRESSION)
    return (
        data.startswith(TILED_MAGIC) and data[_COMPRESSION_OFFSET:][:2] == compression
    )
