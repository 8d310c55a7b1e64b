"""Turns the first directory of a TIFF file into its layout, checking that all its pixels are in the file.

Formats: TIFF 6.0 (Adobe, 1992) and BigTIFF (libtiff, 2007), both byte orders.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from fastpipe.errors import ImageError
from fastpipe.packing.picture.tiff_directory import TiffDirectory

__all__ = ["RAW", "Segments", "TiffPage", "read_tiff"]

RAW = 1  # Compression tag: pixels as they are

_ORIENTATION, _EXTRA_SAMPLES = 274, 338
_YCBCR = 6
_STRIP_OFFSETS, _STRIP_COUNTS, _TILE_OFFSETS, _TILE_COUNTS = 273, 279, 324, 325
# Strips may share bytes (blank tiles stored once), but not so much that a small file costs hours.
_MOST_SHARING = 4
_SMALL_TILE_PIXELS = 2**22


@dataclass(frozen=True)
class Segments:
    """How the rows of a picture are cut into strips or tiles; all alike, but the last strip of a plane.

    Attributes:
        tiled: tiles or strips.
        a_plane: segments in one plane.
        planes: how many planes.
        full_bytes, last_bytes: decompressed size of a segment, and of the last one of a plane.
    """

    tiled: bool
    a_plane: int
    planes: int
    full_bytes: int
    last_bytes: int

    @property
    def count(self) -> int:
        return self.a_plane * self.planes

    def decompressed_bytes(self, index: int) -> int:
        return self.last_bytes if (index + 1) % self.a_plane == 0 else self.full_bytes


@dataclass(frozen=True)
class TiffPage:
    """How the pixels of a TIFF's first picture lie in its file.

    Attributes:
        endian: "<" or ">", as for struct.
        width, height: pixels as stored.
        orientation: 1..8; 1 where absent or invalid.
        bits: bits of each sample, one number a sample.
        samples: samples a pixel.
        photometric: tag 262 (0 white is zero, 1 black is zero, 2 RGB, 3 palette, 5 CMYK, 6 YCbCr, ...).
        compression: tag 259 (1 raw, 5 LZW, 7 JPEG, 8 deflate, 32773 PackBits, ...).
        planar: whether each sample lies in a plane of its own.
        sample_format: 1 unsigned, 2 signed, 3 float.
        extra_samples: tag 338: 0 unspecified, 1 alpha already multiplied in, 2 plain alpha.
        fill_order: 1 or 2 (bits of each byte reversed).
        chroma_subsampling: tag 530, of YCbCr only.
        segment_offsets, segment_sizes: where in the file each strip or tile is, in bytes.
        segments: which strips or tiles hold the picture, and their decompressed sizes.
        jpeg_tables: (offset, size) in bytes of tag 347, or None.
        orientation_entry, extra_samples_entry: byte offsets of these tags' directory entries, or None.
        big: whether the directory is BigTIFF's (20 bytes an entry).
    """

    endian: str
    width: int
    height: int
    orientation: int
    bits: tuple[int, ...]
    samples: int
    photometric: int
    compression: int
    planar: bool
    sample_format: int
    extra_samples: tuple[int, ...]
    fill_order: int
    chroma_subsampling: tuple[int, ...]
    segment_offsets: array[int]
    segment_sizes: array[int]
    segments: Segments
    jpeg_tables: tuple[int, int] | None
    orientation_entry: int | None
    extra_samples_entry: int | None
    big: bool


def read_tiff(data: bytes) -> TiffPage:
    """Read the first directory of a TIFF and check that its strips or tiles lie in the file.

    Raises:
        ImageError: the file is shorter than its directory or pixels, or its first picture is a thumbnail.
    """
    directory = TiffDirectory(data)
    # Camera raw files are TIFFs whose first picture is a preview; packing that would be a silent mistake.
    if directory.one(254, 0) & 1 or 50706 in directory.entries:
        raise ImageError("the first picture in this TIFF is a thumbnail (camera raw?); save it as PNG or JPEG")
    width, height = directory.one(256, 0), directory.one(257, 0)
    if width < 1 or height < 1:
        raise ImageError(f"damaged TIFF: impossible size {width}x{height}")
    samples = directory.one(277, 1)
    if not 1 <= samples <= 64:
        raise ImageError(f"TIFF with {samples} samples a pixel is not supported; save it as RGB")
    bits = directory.values(258, (1,), samples)
    if not all(1 <= b <= 64 for b in bits):
        raise ImageError(f"damaged TIFF: {max(bits)} bits a sample")
    planar = directory.one(284, 1) == 2 and samples > 1
    compression = directory.one(259, RAW)
    segments = _segments(directory, width, height, 1 if planar else samples, max(bits), samples if planar else 1)
    photometric = directory.one(262, -1)
    # Rows of subsampled YCbCr are shorter than computed here.
    is_raw = compression == RAW and photometric != _YCBCR
    offsets, sizes = _segments_in_file(directory, segments, is_raw)
    tables = directory.entries.get(347)
    return TiffPage(
        endian=directory.endian,
        width=width,
        height=height,
        orientation=_orientation(directory),
        bits=bits,
        samples=samples,
        photometric=photometric,
        compression=compression,
        planar=planar,
        sample_format=max(directory.values(339, (1,), samples)),
        extra_samples=directory.values(_EXTRA_SAMPLES, (), samples),
        fill_order=directory.one(266, 1),
        chroma_subsampling=directory.values(530, (2, 2), 2),
        segment_offsets=offsets,
        segment_sizes=sizes,
        segments=segments,
        jpeg_tables=(directory.where(347, tables[1]), tables[1]) if tables else None,
        orientation_entry=directory.entry(_ORIENTATION),
        extra_samples_entry=directory.entry(_EXTRA_SAMPLES),
        big=directory.big,
    )


def _orientation(directory: TiffDirectory) -> int:
    try:
        value = directory.one(_ORIENTATION, 1)
    except ImageError:
        return 1
    return value if 1 <= value <= 8 else 1


def _segments(directory: TiffDirectory, width: int, height: int, samples: int, bits: int, planes: int) -> Segments:
    """Cut the picture as the tags say; ``samples`` are those of one plane."""
    if _TILE_OFFSETS in directory.entries:
        tile_width, tile_height = directory.one(322, 0), directory.one(323, 0)
        if tile_width < 1 or tile_height < 1:
            raise ImageError(f"damaged TIFF: impossible tile size {tile_width}x{tile_height}")
        # libtiff decompresses whole tiles: a small picture must not ask for a huge one.
        if tile_width * tile_height > 4 * width * height + _SMALL_TILE_PIXELS:
            raise ImageError(f"damaged TIFF: tiles of {tile_width}x{tile_height} for a picture of {width}x{height}")
        tile = tile_height * ((tile_width * samples * bits + 7) // 8)
        return Segments(True, -(-width // tile_width) * -(-height // tile_height), planes, tile, tile)
    rows = min(directory.one(278, height), height)
    if rows < 1:
        raise ImageError("damaged TIFF: strips of 0 rows")
    row_bytes = (width * samples * bits + 7) // 8
    strips = -(-height // rows)
    last_rows = height - (strips - 1) * rows
    return Segments(False, strips, planes, rows * row_bytes, last_rows * row_bytes)


def _segments_in_file(directory: TiffDirectory, segments: Segments, is_raw: bool) -> tuple[array[int], array[int]]:
    """Offsets and sizes of the strips or tiles, all known to lie in the file."""
    name = "tile" if segments.tiled else "strip"
    end_of_file = len(directory.data)
    count = segments.count
    offsets = directory.numbers(_TILE_OFFSETS if segments.tiled else _STRIP_OFFSETS, count)
    sizes = directory.numbers(_TILE_COUNTS if segments.tiled else _STRIP_COUNTS, count)
    total = 0
    for index, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        if size < 1:
            raise ImageError(f"damaged TIFF: {name} {index} of {count} is empty")
        need = size
        if is_raw:
            need = max(size, segments.decompressed_bytes(index))
        if offset + need > end_of_file:
            raise ImageError(
                f"truncated TIFF: {name} {index} of {count} needs bytes up to {offset + need}, has {end_of_file}"
            )
        if need > size:
            raise ImageError(f"damaged TIFF: {name} {index} of {count} needs {need} bytes, has {size}")
        total += size
    if total > _MOST_SHARING * end_of_file:
        raise ImageError(f"damaged TIFF: its {count} {name}s overlap ({total} bytes in {end_of_file})")
    return offsets, sizes
