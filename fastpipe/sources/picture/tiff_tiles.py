"""A TIFF whose tiles are JPEGs -> a KEY.tif with the coefficients of these JPEGs.

Slides of microscopes and many GeoTIFFs are such files. A tile is never decoded, so that it keeps
its pixels. tifffile says where the tiles lie.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from fastpipe.dataset.format.tiled_file import (
    JPEG_COMPRESSION,
    TILE_MULTIPLE,
    TiledPicture,
    tiled_file,
)
from fastpipe.errors import ImageError

if TYPE_CHECKING:
    import tifffile

_TILE_WIDTH_TAG = 322
_ORIENTATION_TAG = 274
_CONTIGUOUS = 1
_MIN_IS_BLACK = 1
_RGB = 2
_YCBCR = 6
# How many channels a pixel has, by the photometric interpretation.
_CHANNELS = {_MIN_IS_BLACK: 1, _RGB: 3, _YCBCR: 3}

_START_OF_IMAGE = b"\xff\xd8"
_END_OF_IMAGE = b"\xff\xd9"
# The segment "Adobe" (ITU-T T.872, 6.5.3) says whether colours are RGB (0) or YCbCr (1).
_TRANSFORM_OFFSET = 15
_ADOBE = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00"
_FIRST_SCAN = 0xDA
_APPLICATION_MARKERS = range(0xE0, 0xF0)
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}

# Makes a baseline JPEG of one scan, with the same coefficients, of a whole JPEG.
Transcode = Callable[[bytes], bytes]


class TiffTiles(NamedTuple):
    """A level of a TIFF, all of whose tiles are JPEGs.

    Attributes:
        size, tile_size: width and height in pixels.
        photometric: how the colours are to be understood: tag 262 of TIFF 6.0.
        tables: the JPEG tables that all tiles share; b"": each has its own.
        places: offset and size in bytes of each tile, row by row; size 0: it is black.
        num_levels: how many sizes of the picture the file has.
        multi_frame: the file has several pictures of one size, of which this is the first.
    """

    size: tuple[int, int]
    tile_size: tuple[int, int]
    photometric: int
    tables: bytes
    places: list[tuple[int, int]]
    num_levels: int
    multi_frame: bool

    @property
    def channels(self) -> int:
        return _CHANNELS[self.photometric]


def find_tiles(data: bytes, level: int = 0) -> TiffTiles | None:
    """The tiles of a TIFF; None if they are no JPEGs that can be stored, or tifffile cannot read it.

    Args:
        data: the file.
        level: of a pyramid: 0 is the largest picture.

    Raises:
        ImageError: the file lacks the level, or that is not in JPEG tiles.
    """
    import tifffile  # takes 60 ms, and most sources have no TIFF

    try:
        with tifffile.TiffFile(io.BytesIO(data)) as file:
            return _find_tiles(file, level)
    except ImageError:
        raise
    # tifffile raises errors of many kinds for damaged files.
    except Exception as problem:
        if level > 0:
            raise ImageError(f"damaged TIFF: {problem}") from problem
        return None  # Pillow may read it, or says what is wrong


def _find_tiles(file: tifffile.TiffFile, level: int) -> TiffTiles | None:
    first = file.series[0]
    if level >= len(first.levels):
        raise _missing_level(first.levels, level)
    # A series of several pictures is no picture of one size.
    page: Any = first.levels[level].pages[0]
    if not _has_jpeg_tiles(page):
        if level > 0:
            raise ImageError(
                f"level {level} of this TIFF is not in JPEG tiles; save that level as a file of its "
                "own"
            )
        return None
    across = -(-page.imagewidth // page.tilewidth)
    down = -(-page.imagelength // page.tilelength)
    places = list(zip(page.dataoffsets, page.databytecounts, strict=True))
    if len(places) != across * down:
        raise ImageError(f"damaged TIFF: {len(places)} tiles for {across} x {down}")
    return TiffTiles(
        size=(page.imagewidth, page.imagelength),
        tile_size=(page.tilewidth, page.tilelength),
        photometric=int(page.photometric),
        tables=page.jpegtables or b"",
        places=places,
        num_levels=len(first.levels),
        multi_frame=_has_frames(file),
    )


def _has_frames(file: tifffile.TiffFile) -> bool:
    """Whether a file has several pictures of one size. Slides have labels and thumbnails, too."""
    size = file.series[0].shape
    num_frames = 0
    for series in file.series:
        if series.shape[-3:] == size[-3:]:
            num_frames += len(series.pages)
    return num_frames > 1


def _has_jpeg_tiles(page: Any) -> bool:
    """Whether the tiles of a page are JPEGs that can be stored."""
    if page.compression != JPEG_COMPRESSION or _TILE_WIDTH_TAG not in page.tags:
        return False
    # Some microscopes write one JPEG for the whole picture, which tifffile shows as tiles.
    if page.jpegheader:
        return False
    channels = _CHANNELS.get(int(page.photometric))
    has_8_bits = page.bitspersample == 8 and page.samplesperpixel == channels
    is_one_picture = page.imagedepth == 1 and page.planarconfig == _CONTIGUOUS
    is_upright = page.tags.valueof(_ORIENTATION_TAG, default=1) == 1
    # Empty tiles have this value; a KEY.tif has black ones.
    has_black_tiles = page.nodata == 0
    has_whole_blocks = not (
        page.tilewidth % TILE_MULTIPLE or page.tilelength % TILE_MULTIPLE
    )
    return (
        has_8_bits
        and is_one_picture
        and is_upright
        and has_black_tiles
        and has_whole_blocks
    )


def _missing_level(levels: Any, level: int) -> ImageError:
    sizes = []
    for number, each in enumerate(levels):
        page = each.pages[0]
        sizes.append(f"{number}: {page.imagewidth} x {page.imagelength}")
    return ImageError(
        f"it has no level {level}; its levels are {', '.join(sizes)} pixels: pass --level"
    )


def store_tiles(data: bytes, tiles: TiffTiles, transcode: Transcode) -> bytes:
    """The KEY.tif of a TIFF.

    Args:
        data: the TIFF.
        tiles: its tiles.
        transcode: of a tile. ImageError: the tile is damaged.

    Raises:
        ImageError: a tile is damaged.
    """
    across = -(-tiles.size[0] // tiles.tile_size[0])
    stored = []
    for number, (offset, size) in enumerate(tiles.places):
        if size == 0:
            stored.append(b"")
            continue
        tile = data[offset : offset + size]
        try:
            stored.append(_transcode_tile(tile, tiles, transcode))
        except ImageError as problem:
            row, column = divmod(number, across)
            raise ImageError(
                f"the tile in row {row}, column {column}: {problem}"
            ) from problem

    sampling = None
    if tiles.photometric == _YCBCR:
        sampling = (1, 1)
        whole = next((jpeg for jpeg in stored if jpeg), None)
        if whole is not None:
            sampling = _read_frame(whole)[2]
    return tiled_file(
        TiledPicture(
            tiles.size,
            tiles.tile_size,
            tiles.channels,
            stored,
            sampling=sampling,
        )
    )


def _transcode_tile(tile: bytes, tiles: TiffTiles, transcode: Transcode) -> bytes:
    jpeg = transcode(_whole_jpeg(tile, tiles))
    width, height, _ = _read_frame(jpeg)
    if (width, height) != tiles.tile_size:
        raise ImageError(
            f"{width} x {height} pixels, expected {tiles.tile_size[0]} x {tiles.tile_size[1]}"
        )
    return jpeg


def _whole_jpeg(tile: bytes, tiles: TiffTiles) -> bytes:
    """A tile with the tables of the file, and with the meaning of its colours.

    A TIFF says it in a tag (TIFF Technical Note 2). A decoder of JPEG would guess it.
    """
    if not tile.startswith(_START_OF_IMAGE):
        raise ImageError("it does not begin as a JPEG")
    kept = [_START_OF_IMAGE]
    if tiles.channels == 3:
        transform = b"\x01" if tiles.photometric == _YCBCR else b"\x00"
        kept.append(_ADOBE + transform)
    if tiles.tables:
        tables = tiles.tables.removeprefix(_START_OF_IMAGE)
        kept.append(tables.removesuffix(_END_OF_IMAGE))
    position = 2
    for marker, start, end in _segments(tile):
        segment = tile[start:end]
        if segment[4:9] == b"Adobe" and tiles.photometric == _YCBCR:
            _check_transform(segment)
        if marker not in _APPLICATION_MARKERS:
            kept.append(segment)
        position = end
    kept.append(tile[position:])
    return b"".join(kept)


def _check_transform(adobe: bytes) -> None:
    """Raises ImageError if a JPEG says RGB where its TIFF says YCbCr.

    libtiff believes the TIFF, tifffile the JPEG.
    """
    if adobe[_TRANSFORM_OFFSET : _TRANSFORM_OFFSET + 1] == b"\x00":
        raise ImageError(
            "the TIFF says that its colours are YCbCr, and the JPEG that they are RGB; save it "
            "again by the program that shows it right"
        )


def _read_frame(jpeg: bytes) -> tuple[int, int, tuple[int, int]]:
    """Width, height, and the sampling factors of the first component against the second's."""
    for marker, start, _ in _segments(jpeg):
        if marker in _FRAME_MARKERS:
            height, width, channels = struct.unpack_from(">HHB", jpeg, start + 5)
            if channels == 1:
                return width, height, (1, 1)
            luma = jpeg[start + 11]
            chroma = jpeg[start + 14]
            across = (luma >> 4) // max(chroma >> 4, 1)
            down = (luma & 15) // max(chroma & 15, 1)
            return width, height, (across, down)
    raise ImageError("it has no frame header")


def _segments(jpeg: bytes) -> Iterator[tuple[int, int, int]]:
    """The marker of each segment before the first scan, its start, and its end."""
    position = 2
    while position + 4 <= len(jpeg):
        if jpeg[position] != 0xFF:
            raise ImageError(f"no marker at byte {position}")
        marker = jpeg[position + 1]
        if marker == _FIRST_SCAN:
            return
        length = int.from_bytes(jpeg[position + 2 : position + 4], "big")
        end = position + 2 + length
        yield marker, position, end
        position = end
    raise ImageError("truncated: the image data are missing")
