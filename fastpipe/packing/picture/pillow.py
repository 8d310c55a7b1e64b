"""Turns a file into the 8-bit RGB pixels that Pillow's ``Image.open(file).convert("RGB")`` shows of its first frame.

Note [Pillow's plugins]
A format's plugin is made by itself, not by ``Image.open``. So a plugin that runs another program (PostScript) or needs
a display is never asked; the reason for which a plugin refuses a file is kept; and the limit is `max_pixels` alone:
``Image.open`` warns, and above that fails, by a number that is global to the process (``Image.MAX_IMAGE_PIXELS``).
A plugin reads the header only, so the size is known before memory for the pixels is asked for. WebP's and ICO's do not
wait, so their size is read here. No global setting of Pillow is changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.packing.picture.jpeg_segments import exif_orientation

_MODES = frozenset(["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB"])
_MODES_OF_16_BITS = frozenset(["I;16", "I;16B", "I;16L", "I;16N"])
_SAVE_AS = "save it as 8-bit PNG"
# What the classes and modules of Pillow's plugins are called, where it is not as their formats.
_STEMS = {"WebP": "WebP", "JPEG 2000": "Jpeg2K"}

PNG_END = b"\0\0\0\0IEND\xaeB`\x82"  # the last bytes of a PNG
_NO_DATA = b"\0\0\0\0IDAT\x35\xaf\x06\x1e"
_CODESTREAM, _START_OF_DATA, _END_OF_CODESTREAM = b"\xff\x4f", b"\xff\x93", b"\xff\xd9"  # of JPEG 2000
# Of TIFF.
_RAW = 1
_WHITE_IS_ZERO, _YCBCR = 0, 6
_SEPARATE_PLANES = 2
_UNSIGNED, _UNDEFINED = 1, 4
# Strips may share bytes (blank tiles stored once), but not so much that a small file costs hours.
_MOST_SHARING = 4
_SMALL_TILE_PIXELS = 2**22


class TooManyPixelsError(ImageError):
    """A picture, of this width and height, is over the limit."""

    size = (0, 0)


def refuse_more_pixels(size: tuple[int, int], max_pixels: int) -> None:
    """Raises TooManyPixelsError if a picture is over the limit."""
    width, height = size
    if width * height > max_pixels:
        problem = TooManyPixelsError(f"{width} x {height} is over the limit of {max_pixels:,} pixels (--max-pixels)")
        problem.size = size
        raise problem


@dataclass(frozen=True)
class OpenedImage:
    """A picture whose header has been read.

    Attributes:
        format: its name, as `image_format` has it.
        image: Pillow's.
        orientation: EXIF orientation, 1..8, which is not applied; 1 where absent or invalid. A TIFF's own, and a
            HEIC's, are part of the format: Pillow applies them.
        multi_frame: the file has more frames (animation, pages), which are not looked at.
        gray_bits: bits of a gray sample where they are more than 8.
        inverted: 0 is white, and Pillow leaves it so.
    """

    format: str
    image: Any
    orientation: int = 1
    multi_frame: bool = False
    gray_bits: int = 16
    inverted: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, as they will be decoded."""
        width, height = self.image.size
        return width, height

    def rgb(self) -> NDArray[np.uint8]:
        """Decodes it to (height, width, 3) uint8, C-contiguous; ImageError: it is damaged or cut short.

        Alpha is dropped, not blended; palettes are expanded; gray is repeated; of samples of more than 8 bits the
        high ones are taken, so they are scaled and never clipped; no color profile is applied.
        """
        with _reasons(self.format):
            self.image.load()
            if self.image.mode in _MODES:
                self.image.info.pop("transparency", None)  # a colour that stands for it; Pillow would warn of some
                image = self.image if self.image.mode == "RGB" else self.image.convert("RGB")
                return np.asarray(image, np.uint8)
            high = (np.asarray(self.image) >> (self.gray_bits - 8)).astype(np.uint8)
        return np.repeat((255 - high if self.inverted else high)[:, :, None], 3, axis=2)

    def values(self) -> NDArray[Any]:
        """Decodes it to what its pixels hold: gray values, or numbers of the palette's colours.

        (height, width) uint8, of more than 8 bits uint16; another shape if it has colours.
        """
        with _reasons(self.format):
            self.image.load()
            found = np.asarray(self.image)
        return found.astype(np.uint16 if found.dtype.itemsize > 1 else np.uint8)


def open_image(data: bytes, name: str, *, max_pixels: int) -> OpenedImage:
    """Reads the header of an image file, whose format is called `name`.

    Raises:
        ImageError: over the limit, damaged, or of a kind that is not supported.
    """
    if name == "ICO":
        return _open_ico(data, max_pixels)
    if name == "WebP":
        refuse_more_pixels(_webp_size(data), max_pixels)
    if name == "JPEG 2000":
        _check_jpeg_2000(data)
    chunks = read_png(data) if name == "PNG" else PngChunks(data)
    with _reasons(name):
        image = _plugin(name)(io.BytesIO(chunks.picture))
        refuse_more_pixels(image.size, max_pixels)
        animated = chunks.animated or getattr(image, "is_animated", False)
        _check_mode(image.mode, name)
        orientation = exif_orientation(chunks.exif or image.info.get("exif") or b"")
        bits, inverted = _check_tiff(image, data) if name == "TIFF" else (16, False)
    return OpenedImage(name, image, orientation, bool(animated), bits, inverted)


def rgb_of(image: Any) -> NDArray[np.uint8]:
    """The pixels of a PIL image of a program's, as `OpenedImage.rgb` gives them; the image stays as it is."""
    with _reasons("a PIL image"):
        copy = image.copy()
    _check_mode(copy.mode, "a PIL image")
    return OpenedImage("a PIL image", copy).rgb()


def array_of(image: Any) -> NDArray[Any]:
    """What the pixels of a PIL image of a program's hold; the image stays as it is."""
    with _reasons("a PIL image"):
        return np.array(image)


def _plugin(name: str) -> Any:
    """Imported with the first image of its format."""
    stem = _STEMS.get(name, name.capitalize())
    if name != "HEIC":
        return getattr(importlib.import_module(f"PIL.{stem}ImagePlugin"), f"{stem}ImageFile")
    try:
        return importlib.import_module("pillow_heif").HeifImageFile
    except ImportError as missing:
        raise ImageError("HEIC needs pillow-heif; pip install 'fastpipe[heif]', then pack again") from missing


@contextlib.contextmanager
def _reasons(name: str) -> Iterator[None]:
    """Whatever a plugin raises -> ImageError; damage makes them stumble in any way. Memory is the machine's affair."""
    try:
        yield
    except (ImageError, MemoryError):
        raise
    except Exception as problem:
        words = " ".join(str(problem).split())
        if not isinstance(problem, (OSError, SyntaxError, ValueError)):
            words = f"{type(problem).__name__} {words}".strip()
        raise ImageError(f"{name} that Pillow cannot decode, damaged or of a rare kind: {words}") from problem


def _check_mode(mode: str, name: str) -> None:
    # Samples of 32 bits and floats have no scale that is known; a PPM's are 0 to 65,535.
    if mode not in _MODES | _MODES_OF_16_BITS and not (mode == "I" and name == "PPM"):
        raise ImageError(f"{name} with pixels of Pillow's mode {mode} is not supported; {_SAVE_AS}")


def _check_tiff(image: Any, data: bytes) -> tuple[int, bool]:
    """Refuses a TIFF that Pillow would read wrong in silence, or at a cost far beyond its size.

    Gives the bits of a gray sample, and whether 0 is white and is left so.
    """
    tags = image.tag_v2
    width, height = tags[256], tags[257]
    # Camera raw files are TIFFs whose first picture is a preview; packing that would be a silent mistake.
    if tags.get(254, 0) & 1 or 50706 in tags:
        raise ImageError("the first picture in this TIFF is a thumbnail (camera raw?); save it as PNG or JPEG")
    bits, samples = max(tags.get(258, (1,))), set(tags.get(339, (_UNSIGNED,)))
    if not samples <= {_UNSIGNED, _UNDEFINED}:
        raise ImageError(f"TIFF with signed or float {bits}-bit samples is not supported; {_SAVE_AS}")
    if tags.get(284, 1) == _SEPARATE_PLANES and bits > 8:
        raise ImageError(f"TIFF with {bits}-bit samples in separate planes is not supported; {_SAVE_AS}")
    if tags.get(259, _RAW) == _RAW and tags.get(262) == _YCBCR and tags.get(530, (2, 2)) != (1, 1):
        raise ImageError(f"TIFF with subsampled YCbCr outside JPEG is not supported; {_SAVE_AS}")
    if 322 in tags and tags[322] * tags[323] > 4 * width * height + _SMALL_TILE_PIXELS:
        raise ImageError(f"damaged TIFF: tiles of {tags[322]}x{tags[323]} for a picture of {width}x{height}")
    total = sum(tags.get(325, ())) + sum(tags.get(279, ()))
    if total > _MOST_SHARING * len(data):
        raise ImageError(f"damaged TIFF: its strips or tiles claim {total:,} bytes of a file of {len(data):,}")
    # Else Pillow would look at its own limit when it makes room for the pixels.
    image.im = _quiet_core().new(image.mode, (width, height))
    return bits, tags.get(262) == _WHITE_IS_ZERO


@functools.cache
def _quiet_core() -> Any:
    """Pillow's extension, whose libtiff no longer writes to stderr about bad files: we report the reason ourselves."""
    core = importlib.import_module("PIL._imaging")
    with contextlib.suppress(OSError, AttributeError):  # a Pillow that hides its libtiff
        ctypes.CDLL(core.__file__).TIFFSetErrorHandler(None)
    return core


def _webp_size(data: bytes) -> tuple[int, int]:
    """The canvas that a WebP's header announces (RFC 9649, 2.4, 2.7 and 3.4; RFC 6386, 9.1)."""
    needed = 8 + int.from_bytes(data[4:8], "little")
    if needed > len(data):
        raise ImageError(f"truncated WebP: RIFF needs {needed} bytes, has {len(data)}")
    head, kind = data[20:30].ljust(10, b"\0"), data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[4:7], "little"), 1 + int.from_bytes(head[7:10], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(head[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", head, 6)
    return width & 0x3FFF, height & 0x3FFF


def _check_jpeg_2000(data: bytes) -> None:
    """Finds a file that ends between two parts of the picture, which Pillow takes (ITU-T T.800, A.4 and I.5.4)."""
    start, end = 0, len(data)
    if not data.startswith(_CODESTREAM) and (box := data.find(b"jp2c")) >= 4:
        start, length = box + 4, int.from_bytes(data[box - 4 : box], "big")
        if length == 1:
            length = int.from_bytes(data[start : start + 8], "big")
        end = box - 4 + length if length else end
    # A picture's data hold neither marker.
    if end > len(data) or data.rfind(_END_OF_CODESTREAM, start, end) <= data.rfind(_START_OF_DATA, start, end):
        raise ImageError(f"truncated JPEG 2000: ends at byte {len(data)} before its end marker")


def _open_ico(data: bytes, max_pixels: int) -> OpenedImage:
    """The largest picture in an ICO: a PNG, or a BMP without its file header, twice as high with its mask."""
    with _reasons("ICO"):
        icon = importlib.import_module("PIL.IcoImagePlugin").IcoFile(io.BytesIO(data))
        inner = data[icon.entry[0].offset :]
        if inner.startswith(b"\x89PNG"):
            return OpenedImage("ICO", open_image(inner, "PNG", max_pixels=max_pixels).image)
        width, height = struct.unpack_from("<ii", inner, 4)
        refuse_more_pixels((width, height // 2), max_pixels)
        image = icon.frame(0)
        _check_mode(image.mode, "ICO")
        return OpenedImage("ICO", image)


class PngChunks(NamedTuple):
    """A PNG with its critical chunks only (their names begin with a capital letter), and what else is of use in it.

    Without the others there is no animation, so the picture is IDAT's, which every reader shows; and no text, profile
    or transparency that could be damaged. Chunk eXIf may stand behind the picture. `animated`: it has further frames.
    """

    picture: bytes
    exif: bytes = b""
    animated: bool = False


def png_header(start: bytes) -> bytes:
    """The start of a PNG, up to its picture data, as a PNG without them; as it is if they are not in it."""
    at = start.find(b"IDAT") - 4  # in another chunk it makes a damaged PNG
    return start[:at] + _NO_DATA + PNG_END if at >= 0 else start


def read_png(data: bytes) -> PngChunks:
    """Walks the chunks of a PNG up to IEND (W3C PNG 3rd edition, 5 and 11), and checks those that are needed.

    Pillow stops at the last row that it needs. A file that is cut short or changed behind it, or in bytes that happen
    to decode, is found here: it ends before IEND, a checksum is wrong, or IHDR or IDAT is missing.
    """
    kept: list[bytes | memoryview] = [data[:8]]
    exif = b""
    names: set[bytes] = set()
    position = 8
    while b"IEND" not in names:
        length, kind = int.from_bytes(data[position : position + 4], "big"), data[position + 4 : position + 8]
        end = position + 12 + length
        if end > len(data):
            raise ImageError(
                f"truncated PNG: ends inside the chunk at byte {position} (needs {end} bytes, has {len(data)})"
            )
        if not kind.isalpha():
            raise ImageError(f"damaged PNG: no chunk name at byte {position + 4}, got {kind!r}")
        if not names and (kind != b"IHDR" or length != 13):
            raise ImageError(f"damaged PNG: first chunk is {kind.decode()} of {length} bytes, expected IHDR of 13")
        critical = kind[:1].isupper()
        if critical or kind == b"eXIf":
            chunk = memoryview(data)[position:end]
            if zlib.crc32(chunk[4:-4]).to_bytes(4, "big") != chunk[-4:]:
                raise ImageError(f"damaged PNG: chunk {kind.decode()} at byte {position} has a wrong checksum")
        if critical:
            kept.append(chunk)
        elif kind == b"eXIf":
            exif = data[position + 8 : end - 4]
        names.add(kind)
        position = end
    if b"IDAT" not in names:
        raise ImageError("damaged PNG: no picture data (chunk IDAT)")
    return PngChunks(b"".join(kept), exif, b"fdAT" in names)
