"""The headers of WebP, AVIF, JPEG 2000 and TIFF files -> facts that Pillow does not tell."""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from typing import Any, NamedTuple

from fastpipe.errors import ImageError

SAVE_AS_PNG = "save it as 8-bit PNG"

# Markers of a JPEG 2000 codestream (ITU-T T.800, A.2).
_CODESTREAM = b"\xff\x4f"
_CODING_STYLE = b"\xff\x52"
_START_OF_TILE = b"\xff\x90"
_START_OF_DATA = b"\xff\x93"
_END_OF_CODESTREAM = b"\xff\xd9"
# In a codestream, this byte is the number of bits of the first component, less 1.
_PRECISION_OFFSET = 42

# Tags of TIFF.
_SUBFILE_TYPE = 254
_WIDTH = 256
_HEIGHT = 257
_BITS_PER_SAMPLE = 258
_COMPRESSION = 259
_PHOTOMETRIC = 262
_STRIP_BYTES = 279
_PLANES = 284
_TILE_WIDTH = 322
_TILE_HEIGHT = 323
_TILE_BYTES = 325
_SAMPLE_FORMAT = 339
_YCBCR_SUBSAMPLING = 530
_DNG_VERSION = 50706
# Values of these tags.
_THUMBNAIL = 1  # a bit of the subfile type
_UNCOMPRESSED = 1
# Compressions of JPEG, JPEG 2000 and WebP.
_LOSSY_COMPRESSIONS = frozenset([6, 7, 33003, 33005, 34712, 50001])
_WHITE_IS_ZERO = 0
_YCBCR = 6
_SEPARATE_PLANES = 2
_UNSIGNED = 1
_UNDEFINED = 4
# Strips may share bytes, as blank tiles that are stored once do. But a small file that claims far
# more bytes than it has would cost hours.
_MAX_SHARING = 4
# Tiles of up to this size cost little, however small the picture is.
_SMALL_TILE_PIXELS = 2**22


def read_webp_size(data: bytes) -> tuple[int, int]:
    """Width and height of a WebP's canvas (RFC 9649, 2.4, 2.7 and 3.4; RFC 6386, 9.1).

    Raises:
        ImageError: the file ends early.
    """
    needed = 8 + int.from_bytes(data[4:8], "little")
    if needed > len(data):
        raise ImageError(f"truncated WebP: RIFF needs {needed} bytes, has {len(data)}")
    kind = data[12:16]
    header = data[20:30].ljust(10, b"\0")
    if kind == b"VP8X":
        width = int.from_bytes(header[4:7], "little") + 1
        height = int.from_bytes(header[7:10], "little") + 1
    elif kind == b"VP8L":
        bits = int.from_bytes(header[1:5], "little")
        width = (bits & 0x3FFF) + 1
        height = (bits >> 14 & 0x3FFF) + 1
    else:
        width, height = struct.unpack_from("<HH", header, 6)
        # The upper two bits are scales for display.
        width &= 0x3FFF
        height &= 0x3FFF
    return width, height


def is_lossless_webp(data: bytes) -> bool:
    """Whether the first frame has no loss (RFC 9649, 2.5 to 2.7)."""
    offset = 12  # behind RIFF, the size and WEBP
    while True:
        kind = data[offset : offset + 4]
        if kind in (b"VP8 ", b"VP8L", b""):
            return kind == b"VP8L"
        size = int.from_bytes(data[offset + 4 : offset + 8], "little")
        if kind == b"ANMF":
            # The chunks of a frame lie in the frame, behind its own header.
            size = 16
        offset += 8 + size + size % 2


def is_lossless_avif(data: bytes) -> bool:
    """Whether colours are stored without a matrix (ITU-T H.273), as only lossless files do."""
    offset = data.find(b"colrnclx")
    return offset >= 0 and data[offset + 12 : offset + 14] == b"\0\0"


def find_jpeg_2000_codestream(data: bytes) -> int:
    """The offset of a JPEG 2000's codestream (ITU-T T.800, A.4, I.5.4).

    Raises:
        ImageError: the file ends early, which Pillow does not notice.
    """
    start = 0
    end = len(data)
    # A file may be a codestream alone. Else the box jp2c holds it, with the length before the name.
    box = -1
    if not data.startswith(_CODESTREAM):
        box = data.find(b"jp2c")
    if box >= 4:
        start = box + 4
        length = int.from_bytes(data[box - 4 : box], "big")
        if length == 1:
            # A length of 64 bits follows the name.
            length = int.from_bytes(data[start : start + 8], "big")
        # A length of 0 means: up to the end of the file.
        if length:
            end = box - 4 + length
    # The data of a picture hold neither marker, so the last end has to be behind the last start.
    last_end = data.rfind(_END_OF_CODESTREAM, start, end)
    last_start = data.rfind(_START_OF_DATA, start, end)
    if end > len(data) or last_end <= last_start:
        raise ImageError(
            f"truncated JPEG 2000: ends at byte {len(data)} before its end marker"
        )
    return start


def read_jpeg_2000_bits(data: bytes, start: int) -> int:
    """Bits of a sample, of the codestream at `start`."""
    offset = start + _PRECISION_OFFSET
    return int.from_bytes(data[offset : offset + 1], "big") + 1


def is_lossless_jpeg_2000(data: bytes, start: int) -> bool:
    """Whether the default transform of the codestream at `start` has no loss (T.800, A.6.1)."""
    offset = start + 2
    while True:
        kind = data[offset : offset + 2]
        if kind == _CODING_STYLE:
            return data[offset + 13 : offset + 14] == b"\1"
        if kind in (_START_OF_TILE, _START_OF_DATA, b""):
            return False
        length = int.from_bytes(data[offset + 2 : offset + 4], "big")
        offset += 2 + length


def is_lossless_tiff(image: Any) -> bool:
    """Whether the compression of a TIFF, opened by Pillow, has no loss."""
    return image.tag_v2.get(_COMPRESSION, _UNCOMPRESSED) not in _LOSSY_COMPRESSIONS


class TiffSamples(NamedTuple):
    """How a TIFF stores samples."""

    bits: int
    is_inverted: bool  # 0 is white


def check_tiff(image: Any, data: bytes) -> TiffSamples:
    """Refuses TIFFs that Pillow would read wrong without an error, or at a huge cost.

    Args:
        image: opened by Pillow's plugin. It gets its memory for pixels here.
        data: the file.

    Raises:
        ImageError: it is such a TIFF.
    """
    tags = image.tag_v2
    width = tags[_WIDTH]
    height = tags[_HEIGHT]
    bits = max(tags.get(_BITS_PER_SAMPLE, (1,)))
    photometric = tags.get(_PHOTOMETRIC)

    # Camera raw files are TIFFs whose first picture is a preview. Nobody would notice that only
    # this was packed.
    if tags.get(_SUBFILE_TYPE, 0) & _THUMBNAIL or _DNG_VERSION in tags:
        raise ImageError(
            "the first image in this TIFF is a thumbnail (camera raw?); save it as PNG or JPEG"
        )
    sample_formats = set(tags.get(_SAMPLE_FORMAT, (_UNSIGNED,)))
    if not sample_formats <= {_UNSIGNED, _UNDEFINED}:
        raise ImageError(
            f"TIFF with signed or float {bits}-bit samples is not supported; {SAVE_AS_PNG}"
        )
    if bits > 8 and tags.get(_PLANES) == _SEPARATE_PLANES:
        raise ImageError(
            f"TIFF with {bits}-bit samples in separate planes is not supported; {SAVE_AS_PNG}"
        )
    is_uncompressed = tags.get(_COMPRESSION, _UNCOMPRESSED) == _UNCOMPRESSED
    # TIFF's default is 2 x 2.
    subsampling = tags.get(_YCBCR_SUBSAMPLING, (2, 2))
    is_subsampled = photometric == _YCBCR and subsampling != (1, 1)
    if is_uncompressed and is_subsampled:
        raise ImageError(
            f"TIFF with subsampled YCbCr outside JPEG is not supported; {SAVE_AS_PNG}"
        )

    if _TILE_WIDTH in tags:
        tile_pixels = tags[_TILE_WIDTH] * tags[_TILE_HEIGHT]
        if tile_pixels > 4 * width * height + _SMALL_TILE_PIXELS:
            raise ImageError(
                f"damaged TIFF: tiles of {tags[_TILE_WIDTH]}x{tags[_TILE_HEIGHT]} for an image of "
                f"{width}x{height}"
            )
    tile_bytes = tags.get(_TILE_BYTES, ())
    strip_bytes = tags.get(_STRIP_BYTES, ())
    compressed_bytes = sum(tile_bytes) + sum(strip_bytes)
    if compressed_bytes > _MAX_SHARING * len(data):
        raise ImageError(
            f"damaged TIFF: its strips or tiles claim {compressed_bytes:,} bytes of a file of "
            f"{len(data):,}"
        )
    # Pillow would apply a limit of its own when it makes room for the pixels. It gets the room
    # here, so that only `max_pixels` counts.
    image.im = _pillow_core().new(image.mode, (width, height))
    return TiffSamples(bits, photometric == _WHITE_IS_ZERO)


@cache
def _pillow_core() -> Any:
    """Pillow's extension. Its libtiff no longer writes to stderr: our errors have the reason."""
    from PIL import _imaging

    try:
        ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler(None)
    except (OSError, AttributeError):
        pass  # this build of Pillow hides its libtiff, which then goes on writing to stderr
    return _imaging
