"""Turns the header of a BMP file into its layout, checking that all its pixels are in the file.

Format: Microsoft BITMAPFILEHEADER, BITMAPCOREHEADER, BITMAPINFOHEADER and V2..V5, and OS/2 2.x headers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from fastpipe.errors import ImageError

__all__ = ["BMP_HEADER_SIZES", "BmpLayout", "read_bmp"]

BMP_HEADER_SIZES = (12, 40, 52, 56, 64, 108, 124)

_RGB, _RLE8, _RLE4, _BITFIELDS = 0, 1, 2, 3
# Which bits a pixel may have under each compression that we read.
_DEPTHS = {_RGB: (1, 4, 8, 16, 24, 32), _RLE8: (8,), _RLE4: (4,), _BITFIELDS: (16, 32)}
_MASKS_555 = (0x7C00, 0x3E0, 0x1F)
_MASKS_888 = (0xFF0000, 0xFF00, 0xFF)


@dataclass(frozen=True)
class BmpLayout:
    """How the pixels of a BMP lie in its file.

    Attributes:
        width, height: pixels.
        bits: bits a pixel: 1, 4, 8, 16, 24 or 32.
        top_down: whether the first stored row is the top one.
        compressed: whether the rows are run-length encoded.
        offset_bytes: where the rows begin.
        stride_bytes: bytes from one stored row to the next; unused where compressed.
        masks: red, green and blue bits of a 16- or 32-bit pixel.
    """

    width: int
    height: int
    bits: int
    top_down: bool
    compressed: bool
    offset_bytes: int
    stride_bytes: int
    masks: tuple[int, int, int]


def read_bmp(data: bytes) -> BmpLayout:
    """Read and check the headers of a BMP.

    Raises:
        ImageError: the file is shorter than its pixels, or has a layout that is not supported.
    """
    if len(data) < 18:
        raise ImageError(f"truncated BMP: ends at byte {len(data)} inside its header")
    file_size, _, offset, header = struct.unpack_from("<IIII", data, 2)
    if header not in BMP_HEADER_SIZES:
        raise ImageError(f"damaged BMP: header of {header} bytes, expected one of {BMP_HEADER_SIZES}")
    if len(data) < 14 + header:
        raise ImageError(f"truncated BMP: ends inside its header (needs {14 + header} bytes, has {len(data)})")
    compression = image_size = 0
    if header == 12:
        width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
    else:
        width, height, _, bits, compression, image_size = struct.unpack_from("<iiHHII", data, 18)
    if width < 1 or height == 0:
        raise ImageError(f"damaged BMP: impossible size {width}x{height}")
    if header == 64 and compression not in (_RGB, _RLE8, _RLE4):
        raise ImageError("BMP with OS/2 Huffman or RLE24 compression is not supported; save it as PNG")
    if bits not in _DEPTHS.get(compression, ()):
        raise ImageError(f"BMP with {bits} bits a pixel and compression {compression} is not supported; save it as PNG")
    masks = _MASKS_555 if bits == 16 else _MASKS_888
    headers_end = 14 + header
    if compression == _BITFIELDS:
        if len(data) < 66:  # with the 40-byte header the three masks follow it, in later ones they are in it
            raise ImageError(f"truncated BMP: ends inside its color masks (needs 66 bytes, has {len(data)})")
        masks = struct.unpack_from("<III", data, 54)
        headers_end = max(headers_end, 66)
    if offset < headers_end:
        raise ImageError(f"damaged BMP: pixels at byte {offset}, inside the {headers_end} bytes of headers")
    stride = (width * bits + 31) // 32 * 4
    compressed = compression in (_RLE8, _RLE4)
    # The size fields are often 0 or wrong in plain files, where the true need is known without them.
    need = max(file_size, offset + image_size, offset + 2) if compressed else offset + stride * abs(height)
    if need > len(data):
        raise ImageError(f"truncated BMP: needs {need} bytes, has {len(data)}")
    return BmpLayout(width, abs(height), bits, height < 0, compressed, offset, stride, masks)
