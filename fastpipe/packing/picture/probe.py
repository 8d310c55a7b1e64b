"""Turns the bytes of a file into its image format, stored size and orientation, without decoding it.

Formats are told by content, never by name. What a decoder would accept silently though part of the file
is missing is refused here; see containers.py, bmp.py and tiff.py for what is checked in each format.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from fastpipe.errors import ImageError
from fastpipe.packing.picture.bmp import BMP_HEADER_SIZES, read_bmp
from fastpipe.packing.picture.containers import read_jpeg, read_png, read_webp
from fastpipe.packing.picture.tiff import read_tiff
from fastpipe.packing.picture.tiff_directory import TIFF_SIGNATURES

__all__ = ["Probe", "probe"]

_EXPECTED = "expected JPEG, PNG, WebP, BMP or TIFF"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_JPEG_SIGNATURE = b"\xff\xd8\xff"

# Formats that we name but do not read: (offset, bytes there, name).
_UNSUPPORTED = (
    (0, b"GIF87a", "GIF"),
    (0, b"GIF89a", "GIF"),
    (0, b"\x00\x00\x00\x0cJXL \r\n\x87\n", "JPEG XL"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG 2000"),
    (0, b"8BPS", "PSD (Photoshop)"),
    (0, b"II\xbc\x01", "JPEG XR"),
    (0, b"\x76\x2f\x31\x01", "OpenEXR"),
    (0, b"%PDF-", "PDF"),
    (8, b"CR\x02\x00", "Canon raw (CR2)"),
)
# Brands of an ISO base media file (ISO/IEC 14496-12, 4.3).
_BRANDS = {
    b"avif": "AVIF",
    b"avis": "AVIF",
    b"heic": "HEIF",
    b"heix": "HEIF",
    b"heim": "HEIF",
    b"heis": "HEIF",
    b"hevc": "HEIF",
    b"hevx": "HEIF",
    b"mif1": "HEIF",
    b"msf1": "HEIF",
    b"crx ": "Canon raw (CR3)",
}


@dataclass(frozen=True)
class Probe:
    """What the header of an image file says.

    Attributes:
        format: "jpeg", "png", "webp", "bmp" or "tiff".
        width, height: pixels as stored, before any orientation is applied.
        orientation: EXIF or TIFF orientation, 1..8; 1 where absent or invalid.
    """

    format: str
    width: int
    height: int
    orientation: int


def probe(data: bytes) -> Probe:
    """Recognise an image file by its content and read its header.

    Args:
        data: the whole file.

    Returns:
        Its format, stored size in pixels and orientation. Of a file with many pictures, the first.

    Raises:
        ImageError: the file is empty, not an image, of a format that is not supported, truncated or damaged.
    """
    if not data:
        raise ImageError("empty file")
    if data.startswith(_JPEG_SIGNATURE) or data == _JPEG_SIGNATURE[:2]:
        return Probe("jpeg", *read_jpeg(data))
    if data.startswith(_PNG_SIGNATURE):
        return Probe("png", *read_png(data))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return Probe("webp", *read_webp(data))
    for offset, magic, name in _UNSUPPORTED:
        if data.startswith(magic, offset):
            raise ImageError(f"{name} is not supported; {_EXPECTED}")
    if data.startswith(TIFF_SIGNATURES):
        page = read_tiff(data)
        return Probe("tiff", page.width, page.height, page.orientation)
    if _looks_like_bmp(data):
        layout = read_bmp(data)
        return Probe("bmp", layout.width, layout.height, 1)
    if (found := _name_by_content(data)) is not None:
        raise ImageError(f"{found} is not supported; {_EXPECTED}")
    if len(data) < 12 and any(
        magic.startswith(data[:8]) for magic in (_PNG_SIGNATURE, _JPEG_SIGNATURE, b"RIFF", *TIFF_SIGNATURES)
    ):
        raise ImageError(f"truncated file: the {len(data)} bytes {data!r} are only the beginning of an image")
    raise ImageError(f"not an image: starts with {data[:16]!r}; {_EXPECTED}")


def _looks_like_bmp(data: bytes) -> bool:
    """Two letters are a weak signature (a text may begin with "BM"), so the header's size is asked too."""
    if not data.startswith(b"BM"):
        return False
    return len(data) < 18 or struct.unpack_from("<I", data, 14)[0] in BMP_HEADER_SIZES


def _name_by_content(data: bytes) -> str | None:
    """Name a format that has no signature at a fixed place, or None."""
    if data[4:8] == b"ftyp":
        (length,) = struct.unpack_from(">I", data)
        brands = data[8 : max(12, min(length, 256))]
        # The major brand first; mif1 says little, so a compatible brand that says more wins over it.
        found = [_BRANDS[brands[i : i + 4]] for i in range(0, len(brands), 4) if brands[i : i + 4] in _BRANDS]
        if found:
            return "AVIF" if "AVIF" in found else found[0]
        return f"ISO media file (brand {data[8:12]!r})"
    head = data[:1024].removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"<") and b"<svg" in head:
        return "SVG"
    return None
