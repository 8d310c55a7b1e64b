"""Turns a file into the samples of its first frame: PNGs by the engine, all other formats as Pillow shows them.

Of colours with more than 8 bits Pillow keeps 8. OpenCV gives the others, where it shows the same picture.

Note [Pillow's plugins]
A format's plugin is made by itself, not by ``Image.open``. So a plugin that runs another program (PostScript) or needs
a display is never asked; the reason for which a plugin refuses a file is kept; and the limit is `max_pixels` alone, not
the process's ``Image.MAX_IMAGE_PIXELS``. A plugin reads the header only, so the size is known before memory for the
pixels is asked for. WebP's and ICO's do not wait, so their size is read here.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError, ImageError
from fastpipe.format.pixel_form import PixelForm
from fastpipe.native import _engine
from fastpipe.sources.picture.jpeg import opencv
from fastpipe.sources.picture.jpeg_segments import exif_orientation
from fastpipe.sources.picture.png import is_ours
from fastpipe.sources.picture.probe import code_of, form_of, native

_MODES = frozenset(["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB"])
_MODES_OF_16_BITS = frozenset(["I;16", "I;16B", "I;16L", "I;16N"])
_WITH_ALPHA = {"L": "LA", "P": "RGBA", "PA": "RGBA", "RGB": "RGBA"}
_WITHOUT = {"1": "L", "L": "L", "LA": "LA", "RGBA": "RGBA"}  # all others are shown as RGB
_SAVE_AS = "save it as 8-bit PNG"
# What the classes and modules of Pillow's plugins are called, where it is not as their formats.
_STEMS = {"WebP": "WebP", "JPEG 2000": "Jpeg2K"}

_LOSSLESS = frozenset(["PNG", "BMP", "GIF", "PPM", "TGA", "ICO"])  # whatever is in the file
_LOSSY_OF_PILLOW = frozenset(["JPEG", "MPO", "WEBP", "AVIF", "HEIF", "JPEG2000"])
_ANY_PIXELS = 2**62
_PHOTO = PixelForm()
_PNG_START_BYTES = 33  # signature and IHDR
_CODESTREAM, _START_OF_DATA, _END_OF_CODESTREAM = (
    b"\xff\x4f",
    b"\xff\x93",
    b"\xff\xd9",
)  # of JPEG 2000
_CODING_STYLE, _START_OF_TILE = b"\xff\x52", b"\xff\x90"
_PRECISION_AT = 42  # in a codestream
# Of TIFF: compressions without and with loss (JPEG, JPEG 2000, WebP), photometric interpretations, planes, samples.
_RAW, _LOSSY_TIFF = 1, frozenset([6, 7, 33003, 33005, 34712, 50001])
_WHITE_IS_ZERO, _YCBCR, _SEPARATE_PLANES, _UNSIGNED, _UNDEFINED = 0, 6, 2, 1, 4
# Strips may share bytes (blank tiles stored once), but not so much that a small file costs hours.
_MOST_SHARING = 4
_SMALL_TILE_PIXELS = 2**22


class TooManyPixelsError(ImageError):
    """A picture, of this width and height, is over the limit."""

    size = (0, 0)


def refuse_more_pixels(size: tuple[int, int], max_pixels: int) -> None:
    width, height = size
    if width * height > max_pixels:
        problem = TooManyPixelsError(
            f"{width} x {height} is over the limit of {max_pixels:,} pixels (--max-pixels)"
        )
        problem.size = size
        raise problem


@dataclass(frozen=True)
class OpenedImage:
    """A picture whose header has been read.

    `samples` decodes it to (height, width, channels) uint8 or uint16: gray; gray and alpha; RGB; RGB and alpha.
    Palettes are looked up, samples of other bits stretched, inks turned into RGB; no color profile is applied.
    ImageError: it is damaged or cut short.
    """

    size: tuple[int, int]  # width and height in pixels, as they will be decoded
    samples: Callable[[], NDArray[Any]]
    # Of EXIF, 1..8, which is not applied; 1 where absent or invalid. A TIFF's own, and a HEIC's, are part of the
    # format: Pillow applies them.
    orientation: int = 1
    multi_frame: bool = (
        False  # the file has more frames (animation, pages), which are not looked at
    )
    lossless: bool = True  # it has no loss, as far as that is known
    form: PixelForm = _PHOTO  # of what packing makes of a file, unless options change it


def rgb_of(samples: NDArray[Any]) -> NDArray[np.uint8]:
    """Samples -> (height, width, 3) uint8, as ``convert("RGB")``: no alpha, gray repeated, the high 8 bits of 16."""
    colors = samples[:, :, : samples.shape[2] - (samples.shape[2] % 2 == 0)]
    high = (colors >> 8).astype(np.uint8) if colors.dtype == np.uint16 else colors
    return np.ascontiguousarray(np.broadcast_to(high, (*high.shape[:2], 3)))


def open_image(data: bytes, name: str, *, max_pixels: int) -> OpenedImage:
    """Reads the header of a file of a format. ImageError: it is over the limit, damaged, or not supported."""
    if name in ("PNG", "ICO"):
        return (_open_png if name == "PNG" else _open_ico)(data, max_pixels)
    return _open_by_plugin(data, name, max_pixels)


def _open_by_plugin(data: bytes, name: str, max_pixels: int) -> OpenedImage:
    """See Note [Pillow's plugins]."""
    lossless, most = name in _LOSSLESS, 255  # the greatest value of a sample of the file
    if name == "WebP":
        refuse_more_pixels(_webp_size(data), max_pixels)
        lossless = _is_lossless_webp(data)
    elif name == "JPEG 2000":
        start = _check_jpeg_2000(data)
        lossless = _is_reversible(data, start)
        most = (
            2
            ** (int.from_bytes(data[start + _PRECISION_AT : start + _PRECISION_AT + 1], "big") + 1)
            - 1
        )
    elif (
        name == "AVIF"
    ):  # colours as they are, without a matrix (ITU-T H.273): only lossless files have them so
        at = data.find(b"colrnclx")
        lossless = at >= 0 and data[at + 12 : at + 14] == b"\0\0"
    with _reasons(name):
        image = _plugin(name)(io.BytesIO(data))
        refuse_more_pixels(image.size, max_pixels)
        _check_mode(image.mode, name)
        bits, inverted = 16, False
        if name == "TIFF":
            bits, inverted = _check_tiff(image, data)
            lossless = image.tag_v2.get(259, _RAW) not in _LOSSY_TIFF
            most = 2**bits - 1
        elif name == "PNG":
            most = 2 ** data[24] - 1
        elif name == "PPM" and isinstance(image.tile[0].args, tuple):
            most = image.tile[0].args[1]
        orientation = exif_orientation(image.info.get("exif") or b"")
        animated = bool(getattr(image, "is_animated", False))
    decode = partial(_samples, image, name, bits, inverted=inverted)
    form = _form(image, lossless=lossless)
    if 255 < most < 65536 and image.mode in ("RGB", "RGBA"):
        decode, form = (
            partial(_all_bits, data, most, decode),
            form._replace(bits=16 if lossless else 8),
        )
    return OpenedImage(image.size, decode, orientation, animated, lossless, form)


def opened_pixels(samples: NDArray[Any], *, lossless: bool = True) -> OpenedImage:
    return OpenedImage(samples.shape[1::-1], lambda: samples, lossless=lossless)


def opened_pil(image: Any) -> OpenedImage:
    """A copy of a PIL image's samples. It counts as lossless unless it comes directly from a file with loss."""
    with _reasons("a PIL image"):
        copy = image.copy()
    _check_mode(copy.mode, "a PIL image")
    return opened_pixels(
        _samples(copy, "a PIL image"),
        lossless=getattr(image, "format", None) not in _LOSSY_OF_PILLOW,
    )


def numbers_of(data: bytes, name: str, *, max_pixels: int) -> NDArray[Any] | None:
    """(H, W) uint8 or uint16: the numbers of the palette, or the gray samples, of a picture without loss; None: it has
    colours or loss, so its pixels are no numbers of classes.
    """
    if name not in ("GIF", "BMP", "TIFF"):
        return None
    with _reasons(name):
        image = _plugin(name)(io.BytesIO(data))
        refuse_more_pixels(image.size, max_pixels)
        lossy = name == "TIFF" and image.tag_v2.get(259, _RAW) in _LOSSY_TIFF
        if lossy or image.mode not in ("1", "L", "P", "I;16"):
            return None
        return np.asarray(image).astype(np.uint16 if image.mode == "I;16" else np.uint8)


def array_of(image: Any) -> NDArray[Any]:
    """What the pixels of a PIL image of a program's hold; the image stays as it is."""
    with _reasons("a PIL image"):
        return np.array(image)


def _samples(image: Any, name: str, bits: int = 16, *, inverted: bool = False) -> NDArray[Any]:
    """See OpenedImage. `bits` are of a gray sample with more than 8; `inverted`: 0 is white, and Pillow keeps it so."""
    with _reasons(name):
        image.load()
        if image.mode in _MODES:
            mode = _shown(image)
            found = np.asarray(image if image.mode == mode else image.convert(mode))
            return found if found.ndim == 3 else found[:, :, None]
        gray: NDArray[Any] = np.asarray(image).astype(np.uint16)
    if bits < 16:
        gray = gray << (16 - bits) | gray >> (2 * bits - 16)
    return (~gray if inverted else gray)[:, :, None]


def _all_bits(data: bytes, most: int, decode: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """Samples of 0 to `most` in a file -> 0 to 65,535; where OpenCV reads another picture, the 8 bits of `decode`."""
    high, cv2 = decode(), opencv()  # Pillow comes first, since it refuses what is damaged
    try:
        found = cv2.imdecode(
            np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED
        )  # orientation is not applied
    except cv2.error:  # over OpenCV's limits
        found = None
    channels = high.shape[2]
    if found is None or found.dtype != np.uint16 or found.ndim < 3 or found.shape[2] < channels:
        return high  # OpenCV lacks some of libtiff's ways to compress
    wide = np.ascontiguousarray(found[:, :, [2, 1, 0, 3][:channels]])
    if wide.shape != high.shape:
        return high
    if most < 65535:
        wide = ((np.minimum(wide, most).astype(np.uint32) * 65535 + most // 2) // most).astype(
            np.uint16
        )
    # Rounded up or down; Pillow's rounding of JPEG 2000 makes 0 of the brightest 128.
    return wide if ((wide >> 8).astype(np.uint8) - high + np.uint8(1) <= 2).all() else high


def _shown(image: Any) -> str:
    """The mode in which a picture of Pillow's of 8 bits is shown."""
    alpha = (
        "transparency" in image.info
        or getattr(image.palette, "mode", None) == "RGBA"
        or image.mode == "PA"
    )
    return (alpha and _WITH_ALPHA.get(image.mode)) or _WITHOUT.get(image.mode, "RGB")


def _form(image: Any, *, lossless: bool = True) -> PixelForm:
    """What is stored of a picture of Pillow's."""
    channels, bits = (len(_shown(image)), 8) if image.mode in _MODES else (1, 16)
    if not lossless:  # a JPEG
        return PixelForm(1 if channels < 3 else 3)
    return PixelForm(4 if channels == 2 else channels, bits)


def _open_png(data: bytes, max_pixels: int) -> OpenedImage:
    """A PNG (W3C PNG 3rd edition), whose picture is that of its IDAT, also where it is animated."""
    if len(data) >= _PNG_START_BYTES:  # before its bytes are found to be too few for so many
        refuse_more_pixels(struct.unpack_from(">II", data, 16), max_pixels)
    size = native(_engine.picture_size, data, _ANY_PIXELS)
    exif, animated, at = b"", False, 8
    while (kind := data[at + 4 : at + 8]) not in (b"IEND", b""):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        animated |= kind == b"fdAT"
        if kind == b"eXIf":  # it may stand behind the picture
            exif = data[at + 8 : end - 4]
            if zlib.crc32(kind + exif).to_bytes(4, "big") != data[end - 4 : end]:
                raise ImageError(f"damaged PNG: chunk eXIf at byte {at} has a wrong checksum")
        at = end

    def decode() -> NDArray[Any]:
        try:
            return native(_engine.png_samples, data, max_pixels)
        except ImageError as problem:
            if code_of(problem) == _engine.Code.png_surplus and not is_ours(
                data
            ):  # Pillow passes over it
                return _open_by_plugin(data, "PNG", max_pixels).samples()
            raise

    return OpenedImage(size, decode, exif_orientation(exif), animated, form=form_of(data))


def _plugin(name: str) -> Any:
    """Imported with the first image of its format."""
    stem = _STEMS.get(name, name.capitalize())
    if name != "HEIC":
        return getattr(importlib.import_module(f"PIL.{stem}ImagePlugin"), f"{stem}ImageFile")
    try:
        return importlib.import_module("pillow_heif").HeifImageFile
    except ImportError as missing:
        raise ImageError(
            "HEIC needs pillow-heif; pip install 'fastpipe[heif]', then pack again"
        ) from missing


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
        raise ImageError(
            f"{name} that Pillow cannot decode, damaged or of a rare kind: {words}"
        ) from problem


def _check_mode(mode: str, name: str) -> None:
    # Samples of 32 bits and floats have no scale that is known; a PPM's are 0 to 65,535.
    if mode not in _MODES | _MODES_OF_16_BITS and not (mode == "I" and name == "PPM"):
        raise ImageError(f"{name} with pixels of Pillow's mode {mode} is not supported; {_SAVE_AS}")


def _check_tiff(image: Any, data: bytes) -> tuple[int, bool]:
    """Its bits, and whether 0 is white. ImageError: Pillow would read it wrong in silence, or at a huge cost."""
    tags = image.tag_v2
    width, height = tags[256], tags[257]
    # Camera raw files are TIFFs whose first picture is a preview; packing that would be a silent mistake.
    if tags.get(254, 0) & 1 or 50706 in tags:
        raise ImageError(
            "the first picture in this TIFF is a thumbnail (camera raw?); save it as PNG or JPEG"
        )
    bits, samples = max(tags.get(258, (1,))), set(tags.get(339, (_UNSIGNED,)))
    if not samples <= {_UNSIGNED, _UNDEFINED}:
        raise ImageError(
            f"TIFF with signed or float {bits}-bit samples is not supported; {_SAVE_AS}"
        )
    if tags.get(284, 1) == _SEPARATE_PLANES and bits > 8:
        raise ImageError(
            f"TIFF with {bits}-bit samples in separate planes is not supported; {_SAVE_AS}"
        )
    if tags.get(259, _RAW) == _RAW and tags.get(262) == _YCBCR and tags.get(530, (2, 2)) != (1, 1):
        raise ImageError(f"TIFF with subsampled YCbCr outside JPEG is not supported; {_SAVE_AS}")
    if 322 in tags and tags[322] * tags[323] > 4 * width * height + _SMALL_TILE_PIXELS:
        raise ImageError(
            f"damaged TIFF: tiles of {tags[322]}x{tags[323]} for a picture of {width}x{height}"
        )
    total = sum(tags.get(325, ())) + sum(tags.get(279, ()))
    if total > _MOST_SHARING * len(data):
        raise ImageError(
            f"damaged TIFF: its strips or tiles claim {total:,} bytes of a file of {len(data):,}"
        )
    # Else Pillow would look at its own limit when it makes room for the pixels.
    image.im = _quiet_core().new(image.mode, (width, height))
    return bits, tags.get(262) == _WHITE_IS_ZERO


@cache
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


def _is_lossless_webp(data: bytes) -> bool:
    """Whether the first frame is (RFC 9649, 2.5 to 2.7)."""
    at = 12
    while (kind := data[at : at + 4]) not in (b"VP8 ", b"VP8L", b""):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + (
            16 if kind == b"ANMF" else size + size % 2
        )  # the chunks of a frame stand behind its head
    return kind == b"VP8L"


def _check_jpeg_2000(data: bytes) -> int:
    """The codestream's first byte. ImageError: the file ends early, which Pillow takes (ITU-T T.800, A.4, I.5.4)."""
    start, end = 0, len(data)
    if not data.startswith(_CODESTREAM) and (box := data.find(b"jp2c")) >= 4:
        start, length = box + 4, int.from_bytes(data[box - 4 : box], "big")
        if length == 1:
            length = int.from_bytes(data[start : start + 8], "big")
        end = box - 4 + length if length else end
    # A picture's data hold neither marker.
    if end > len(data) or data.rfind(_END_OF_CODESTREAM, start, end) <= data.rfind(
        _START_OF_DATA, start, end
    ):
        raise ImageError(f"truncated JPEG 2000: ends at byte {len(data)} before its end marker")
    return start


def _is_reversible(data: bytes, start: int) -> bool:
    """Whether a codestream's default style is the transform without loss (ITU-T T.800, A.6.1)."""
    at = start + 2
    while (kind := data[at : at + 2]) not in (_CODING_STYLE, _START_OF_TILE, _START_OF_DATA, b""):
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return kind == _CODING_STYLE and data[at + 13 : at + 14] == b"\1"


def _open_ico(data: bytes, max_pixels: int) -> OpenedImage:
    """The largest picture in an ICO: a PNG, or a BMP without its file header, twice as high with its mask."""
    with _reasons("ICO"):
        icon = importlib.import_module("PIL.IcoImagePlugin").IcoFile(io.BytesIO(data))
        inner = data[icon.entry[0].offset :]
        if inner.startswith(b"\x89PNG"):
            return replace(_open_png(inner, max_pixels), orientation=1, multi_frame=False)
        width, height = struct.unpack_from("<ii", inner, 4)
        refuse_more_pixels((width, height // 2), max_pixels)
        image = icon.frame(0)
        _check_mode(image.mode, "ICO")
        return OpenedImage(image.size, partial(_samples, image, "ICO"), form=_form(image))


def picture_of(pixels: NDArray[Any]) -> Any:
    """(height, width, channels), uint8 of gray, RGB or RGBA, or uint16 of gray -> Pillow's image.
    ConfigError: Pillow has no such images.
    """
    channels = pixels.shape[2]
    if pixels.dtype != np.uint8 and (pixels.dtype != np.uint16 or channels > 1):
        raise ConfigError(
            f'images="pil": Pillow has no images of {channels} channels of {pixels.dtype}; expected uint8, which '
            "data.with_pixels(dtype=torch.uint8) gives"
        )
    image = importlib.import_module("PIL.Image")
    return image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
