"""TIFFs in JPEG tiles, as slides of microscopes and GeoTIFFs are, written by tifffile."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]
SAMPLINGS = {"444": (1, 1), "422": (2, 1), "420": (2, 2)}


def _encode(tile: Pixels, colours: str, quality: int) -> bytes:
    """The JPEG of a tile. `colours`: "gray", "RGB", or the sampling of YCbCr."""
    file = io.BytesIO()
    if colours == "gray":
        Image.fromarray(tile[:, :, 0]).save(file, "JPEG", quality=quality)
    elif colours == "RGB":
        rgb = {"colorspace": "rgb", "outcolorspace": "rgb", "subsampling": "444"}
        return bytes(imagecodecs.jpeg_encode(tile, level=quality, **rgb))
    else:
        sampling = {"444": 0, "422": 1, "420": 2}[colours]
        Image.fromarray(tile).save(file, "JPEG", quality=quality, subsampling=sampling)
    return file.getvalue()


def _tiles(pixels: Pixels, side: int, colours: str, quality: int, empty: Any) -> Iterator[bytes]:
    height, width = pixels.shape[:2]
    for number, (y, x) in enumerate(
        (y, x) for y in range(0, height, side) for x in range(0, width, side)
    ):
        part = pixels[y : y + side, x : x + side]
        missing = ((0, side - part.shape[0]), (0, side - part.shape[1]), (0, 0))
        whole = np.pad(part, missing, mode="edge")
        yield b"" if number in empty else _encode(whole, colours, quality)


def _split_tables(jpeg: bytes) -> tuple[bytes, bytes]:
    """A JPEG of its tables alone, and the JPEG without them."""
    tables, rest, position = b"", b"", 2
    while jpeg[position + 1] != 0xDA:
        end = position + 2 + int.from_bytes(jpeg[position + 2 : position + 4], "big")
        if jpeg[position + 1] in (0xDB, 0xC4):
            tables += jpeg[position:end]
        else:
            rest += jpeg[position:end]
        position = end
    return b"\xff\xd8" + tables + b"\xff\xd9", b"\xff\xd8" + rest + jpeg[position:]


def add_tiled(
    writer: tifffile.TiffWriter,
    pixels: Pixels,
    *,
    side: int = 64,
    colours: str = "420",
    quality: int = 85,
    empty: Any = (),
    share_tables: bool = False,
    **options: Any,
) -> None:
    """Appends a page.

    Args:
        empty: the numbers of tiles of which nothing is stored.
        share_tables: a tag of the file has the tables, as libtiff writes them.
    """
    shape = pixels.shape if colours != "gray" else pixels.shape[:2]
    photometric = {"gray": "minisblack", "RGB": "rgb"}.get(colours, "ycbcr")
    if photometric == "ycbcr":
        options["subsampling"] = SAMPLINGS[colours]
    elif photometric == "rgb":
        options["compressionargs"] = {"outcolorspace": "rgb"}
    tiles = list(_tiles(pixels, side, colours, quality, empty))
    if share_tables:
        tables, _ = _split_tables(tiles[0])
        options["extratags"] = [(347, 7, len(tables), tables, True)]
        tiles = [_split_tables(tile)[1] for tile in tiles]
    writer.write(
        iter(tiles),
        shape=shape,
        dtype=np.uint8,
        tile=(side, side),
        compression="jpeg",
        photometric=photometric,
        **options,
    )


def tiled_tiff(pixels: Pixels, **options: Any) -> bytes:
    """The bytes of a TIFF with one page; `options` of add_tiled."""
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        add_tiled(writer, pixels, **options)
    return file.getvalue()


def pyramid(levels: list[Pixels], **options: Any) -> bytes:
    """The bytes of a TIFF whose smaller levels are the first one's SubIFDs, as OME-TIFF has them."""
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        add_tiled(writer, levels[0], subifds=len(levels) - 1, **options)
        for level in levels[1:]:
            add_tiled(writer, level, subfiletype=1, **options)
    return file.getvalue()


def shown(file: bytes | Path) -> Pixels:
    """(height, width, 3) what tifffile makes of the first page."""
    pixels = tifffile.imread(io.BytesIO(file) if isinstance(file, bytes) else file)
    return pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)
