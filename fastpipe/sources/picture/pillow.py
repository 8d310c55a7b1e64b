"""Images by Pillow -> their samples: of files of most formats, and of PIL images.

Of colours with more than 8 bits Pillow keeps 8. OpenCV gives the others, where it shows the same
picture.

Note [Pillow's plugins]
A format's plugin is called directly, and not by ``Image.open``. So a plugin that runs another
program (PostScript) or needs a display is never called; the reason for which a plugin refuses a
file is kept; and the limit is `max_pixels` alone, not the process's ``Image.MAX_IMAGE_PIXELS``. A
plugin reads only the header, so the size is known before there is memory for the pixels. WebP's
and ICO's decode at once, so their size is read here.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.distribution import install_extra
from fastpipe.errors import ConfigError, ImageError, in_one_line
from fastpipe.sources.jpeg_segments import exif_orientation
from fastpipe.sources.picture.file_headers import (
    SAVE_AS_PNG,
    check_tiff,
    find_jpeg_2000_codestream,
    is_lossless_avif,
    is_lossless_jpeg_2000,
    is_lossless_tiff,
    is_lossless_webp,
    read_jpeg_2000_bits,
    read_webp_size,
)
from fastpipe.sources.picture.jpeg import import_opencv

# The modes of Pillow's images, by the bits of a sample.
_MODES_OF_8_BITS = frozenset(
    ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB"]
)
_MODES_OF_16_BITS = frozenset(["I;16", "I;16B", "I;16L", "I;16N"])
# The mode that shows an image of a mode; all others are shown as RGB.
_SHOWN_MODES = {"1": "L", "L": "L", "LA": "LA", "RGBA": "RGBA"}
_SHOWN_MODES_WITH_ALPHA = {"L": "LA", "P": "RGBA", "PA": "RGBA", "RGB": "RGBA"}
# Names of Pillow's modules where they differ from those of the formats.
_PLUGIN_NAMES = {"WebP": "WebP", "JPEG 2000": "Jpeg2K"}

_LOSSLESS_FORMATS = frozenset(["PNG", "BMP", "GIF", "PPM", "TGA", "ICO"])
_LOSSY_FORMATS_OF_PILLOW = frozenset(
    ["JPEG", "MPO", "WEBP", "AVIF", "HEIF", "JPEG2000"]
)
_MAX_U16 = 65535
_RGB_OF_8_BITS = PixelForm(channels=3, bits=8)


class TooManyPixelsError(ImageError):
    """A picture, of this width and height, is over the limit."""

    size = (0, 0)


def refuse_more_pixels(size: tuple[int, int], max_pixels: int) -> None:
    """Raises TooManyPixelsError if a picture of this width and height is over the limit."""
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

    `samples` decodes it to (height, width, channels) uint8 or uint16. The channels are gray, gray
    and alpha, RGB, or RGB and alpha. Palettes are looked up, samples of other bits are stretched,
    and inks become RGB. No color profile is applied. It raises ImageError if the file is damaged.
    """

    size: tuple[int, int]  # width and height in pixels, as they will be decoded
    samples: Callable[[], NDArray[Any]]
    # Of EXIF, 1..8, which is not applied; 1 where absent or invalid. TIFF and HEIC have their own,
    # which is part of the format, so Pillow applies it.
    orientation: int = 1
    # There are more frames (animation, pages), which are not read.
    multi_frame: bool = False
    lossless: bool = True  # it has no loss, as far as that is known
    form: PixelForm = _RGB_OF_8_BITS  # of the packed picture, unless options change it


def to_rgb(samples: NDArray[Any]) -> NDArray[np.uint8]:
    """Samples -> (height, width, 3) uint8, as Pillow's ``convert("RGB")`` gives them.

    Alpha is dropped, gray is repeated, and 16 bits become the high 8.
    """
    if samples.shape[2] in (2, 4):
        samples = samples[:, :, :-1]
    if samples.dtype == np.uint16:
        samples = (samples >> 8).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(samples, (*samples.shape[:2], 3)))


def open_pixels(samples: NDArray[Any], *, lossless: bool = True) -> OpenedImage:
    """The image of samples in memory: (height, width, 1..4) uint8 or uint16."""
    return OpenedImage(samples.shape[1::-1], lambda: samples, lossless=lossless)


def open_pil(image: Any) -> OpenedImage:
    """Copies the samples of a PIL image.

    It counts as lossless unless it comes directly from a file with loss.
    """
    with raise_as_image_errors("a PIL image"):
        copy = image.copy()
    check_mode(copy.mode, "a PIL image")
    image_format = getattr(image, "format", None)
    is_lossless = image_format not in _LOSSY_FORMATS_OF_PILLOW
    return open_pixels(decode_samples(copy, "a PIL image"), lossless=is_lossless)


def copy_array(image: Any) -> NDArray[Any]:
    """A copy of the pixels of a PIL image, in its own mode."""
    with raise_as_image_errors("a PIL image"):
        return np.array(image)


def to_pil(pixels: NDArray[Any]) -> Any:
    """A PIL image of pixels.

    Args:
        pixels: (height, width, channels), uint8 of gray, RGB or RGBA, or uint16 of gray.

    Raises:
        ConfigError: Pillow has no such images.
    """
    from PIL import Image

    channels = pixels.shape[2]
    is_gray_u16 = pixels.dtype == np.uint16 and channels == 1
    if pixels.dtype != np.uint8 and not is_gray_u16:
        raise ConfigError(
            f'images="pil": Pillow has no images of {channels} channels of {pixels.dtype}; '
            "expected uint8, which data.with_pixels(dtype=torch.uint8) gives"
        )
    if channels == 1:
        pixels = pixels[:, :, 0]
    return Image.fromarray(pixels)


def read_mask_numbers(
    data: bytes, name: str, *, max_pixels: int
) -> NDArray[Any] | None:
    """Reads the numbers of a mask from a GIF, BMP or TIFF.

    Returns:
        (height, width) uint8 or uint16: the indices of a palette, or gray samples. None if the
        picture has colours or loss, so that its pixels are no numbers.
    """
    if name not in ("GIF", "BMP", "TIFF"):
        return None
    with raise_as_image_errors(name):
        image = _plugin(name)(io.BytesIO(data))
        refuse_more_pixels(image.size, max_pixels)
        if name == "TIFF" and not is_lossless_tiff(image):
            return None
        if image.mode == "I;16":
            return np.asarray(image).astype(np.uint16)
        if image.mode in ("1", "L", "P"):
            return np.asarray(image).astype(np.uint8)
        return None


def open_by_plugin(data: bytes, name: str, max_pixels: int) -> OpenedImage:
    """Reads the header of a file of a format: see Note [Pillow's plugins].

    Raises:
        ImageError: it is over the limit, damaged, or not supported.
    """
    lossless = name in _LOSSLESS_FORMATS
    max_value = 255  # of a sample in the file
    if name == "WebP":
        refuse_more_pixels(read_webp_size(data), max_pixels)
        lossless = is_lossless_webp(data)
    elif name == "JPEG 2000":
        codestream = find_jpeg_2000_codestream(data)
        lossless = is_lossless_jpeg_2000(data, codestream)
        max_value = 2 ** read_jpeg_2000_bits(data, codestream) - 1
    elif name == "AVIF":
        lossless = is_lossless_avif(data)

    with raise_as_image_errors(name):
        image = _plugin(name)(io.BytesIO(data))
        refuse_more_pixels(image.size, max_pixels)
        check_mode(image.mode, name)
        decode = partial(decode_samples, image, name)
        if name == "TIFF":
            stored = check_tiff(image, data)
            decode = partial(decode, gray_bits=stored.bits, inverted=stored.is_inverted)
            lossless = is_lossless_tiff(image)
            max_value = 2**stored.bits - 1
        elif name == "PNG":
            max_value = 2 ** data[24] - 1
        elif name == "PPM" and isinstance(image.tile[0].args, tuple):
            max_value = image.tile[0].args[1]
        orientation = exif_orientation(image.info.get("exif") or b"")
        multi_frame = bool(getattr(image, "is_animated", False))

    form = find_packed_form(image, lossless=lossless)
    samples: Callable[[], NDArray[Any]] = decode
    if 255 < max_value <= _MAX_U16 and image.mode in ("RGB", "RGBA"):
        samples = partial(_decode_all_bits, data, max_value, decode)
        if lossless:
            form = form._replace(bits=16)
    return OpenedImage(image.size, samples, orientation, multi_frame, lossless, form)


def _plugin(name: str) -> Any:
    """Pillow's class for files of a format, imported with the first of them."""
    if name == "HEIC":
        try:
            return importlib.import_module("pillow_heif").HeifImageFile
        except ImportError as missing:
            raise ImageError(
                f"HEIC needs pillow-heif: {install_extra('heif')}, then pack again"
            ) from missing
    plugin_name = _PLUGIN_NAMES.get(name, name.capitalize())
    module = importlib.import_module(f"PIL.{plugin_name}ImagePlugin")
    return getattr(module, f"{plugin_name}ImageFile")


@contextlib.contextmanager
def raise_as_image_errors(name: str) -> Iterator[None]:
    """Turns an error of a plugin into an ImageError: damaged files raise errors of any kind.

    MemoryError stays, since the machine is at fault, not the file.
    """
    try:
        yield
    except (ImageError, MemoryError):
        raise
    except Exception as problem:
        reason = in_one_line(problem)
        if not isinstance(problem, (OSError, SyntaxError, ValueError)):
            reason = f"{type(problem).__name__} {reason}".strip()
        raise ImageError(
            f"{name} that Pillow cannot decode, damaged or of a rare kind: {reason}"
        ) from problem


def check_mode(mode: str, name: str) -> None:
    """Raises ImageError for samples whose scale nobody knows: of 32 bits, and floats."""
    is_known = mode in _MODES_OF_8_BITS or mode in _MODES_OF_16_BITS
    is_ppm_of_16_bits = mode == "I" and name == "PPM"  # Pillow scales it to 0 to 65,535
    if not is_known and not is_ppm_of_16_bits:
        raise ImageError(
            f"{name} with pixels of Pillow's mode {mode} is not supported; {SAVE_AS_PNG}"
        )


def decode_samples(
    image: Any, name: str, *, gray_bits: int = 16, inverted: bool = False
) -> NDArray[Any]:
    """Decodes an image that Pillow has opened: see OpenedImage.

    Args:
        image: of Pillow.
        name: of its format, for errors.
        gray_bits: of a gray sample with more than 8 bits.
        inverted: 0 is white, which Pillow turns round only in samples of 8 bits.
    """
    with raise_as_image_errors(name):
        image.load()
        if image.mode in _MODES_OF_8_BITS:
            mode = _shown_mode(image)
            if image.mode != mode:
                image = image.convert(mode)
            samples = np.asarray(image)
            if samples.ndim == 2:
                samples = samples[:, :, None]
            return samples
        gray: NDArray[Any] = np.asarray(image).astype(np.uint16)
    if gray_bits < 16:
        # The upper bits are repeated in the free lower bits, so that the greatest value becomes
        # 65,535.
        gray = gray << (16 - gray_bits) | gray >> (2 * gray_bits - 16)
    if inverted:
        gray = ~gray
    return gray[:, :, None]


def _decode_all_bits(
    data: bytes, max_value: int, decode_u8: Callable[[], NDArray[Any]]
) -> NDArray[Any]:
    """Decodes a file with samples of more than 8 bits by OpenCV.

    Args:
        data: the file.
        max_value: of a sample in it, which becomes 65,535.
        decode_u8: Pillow's decoder.

    Returns:
        uint16; or Pillow's uint8 where OpenCV shows another picture.
    """
    # Pillow comes first, since it refuses damaged files.
    by_pillow = decode_u8()
    cv2 = import_opencv()
    try:
        # IMREAD_UNCHANGED keeps the bits and the alpha, and applies no orientation.
        bgr = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error:
        return by_pillow  # the picture is over a limit of OpenCV
    channels = by_pillow.shape[2]
    # OpenCV cannot read some compressions of TIFF, and may drop channels or bits.
    if bgr is None or bgr.dtype != np.uint16 or bgr.ndim < 3 or bgr.shape[2] < channels:
        return by_pillow
    # OpenCV's order is blue, green, red, alpha.
    samples = np.ascontiguousarray(bgr[:, :, [2, 1, 0, 3][:channels]])
    if samples.shape != by_pillow.shape:
        return by_pillow
    if max_value < _MAX_U16:
        clipped = np.minimum(samples, max_value).astype(np.uint32)
        samples = ((clipped * _MAX_U16 + max_value // 2) // max_value).astype(np.uint16)
    # Both may round up or down, so a difference of -1 to 1 is allowed. It is computed in uint8,
    # where it wraps: Pillow's rounding of JPEG 2000 makes 0 of the brightest 128 values.
    difference_plus_1 = (samples >> 8).astype(np.uint8) - by_pillow + np.uint8(1)
    is_same_picture = bool((difference_plus_1 <= 2).all())
    return samples if is_same_picture else by_pillow


def _shown_mode(image: Any) -> str:
    """The mode in which an image of Pillow's of 8 bits is shown: L, LA, RGB or RGBA."""
    has_alpha = (
        "transparency" in image.info
        or getattr(image.palette, "mode", None) == "RGBA"
        or image.mode == "PA"
    )
    if has_alpha and image.mode in _SHOWN_MODES_WITH_ALPHA:
        return _SHOWN_MODES_WITH_ALPHA[image.mode]
    return _SHOWN_MODES.get(image.mode, "RGB")


def find_packed_form(image: Any, *, lossless: bool = True) -> PixelForm:
    """The form of the JPEG or PNG that an image of Pillow's is packed as."""
    channels = 1
    bits = 16
    if image.mode in _MODES_OF_8_BITS:
        channels = len(_shown_mode(image))
        bits = 8
    if not lossless:
        # It becomes a JPEG, of gray or of RGB.
        return PixelForm(1 if channels < 3 else 3)
    # An index has no form for gray and alpha: loaders get RGB and alpha.
    return PixelForm(4 if channels == 2 else channels, bits)
