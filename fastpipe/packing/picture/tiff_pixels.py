"""Turns a TIFF into 8-bit RGB as stored, through OpenCV, with OpenCV's surprises removed.

Note [TIFF through OpenCV], all found by comparing with Pillow:

- It applies the orientation tag even when told to ignore it. The tag is set to 1 in a copy.
- It multiplies 8-bit RGB by its plain alpha. The tag that says "plain alpha" is changed in a copy.
- It accepts damaged compressed data in 8-bit files. See tiff_segments.py.
- 16-bit files must be read unchanged, where it neither inverts "white is zero" nor undoes alpha, and
  mixes up separate planes. The first two are done here, the last is refused.
- Signed, 2- and 4-bit gray, Lab and other rare layouts give wrong pixels or none. Only the layouts in
  `_LAYOUTS` are read, which are those that agree with Pillow.
"""

from __future__ import annotations

import struct

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.packing.picture.opencv import decode_bgr, decode_unchanged
from fastpipe.packing.picture.tiff import RAW, TiffPage, read_tiff
from fastpipe.packing.picture.tiff_segments import COMPRESSIONS, check_segments

__all__ = ["decode_tiff_rgb"]

_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _CMYK, _YCBCR = 0, 1, 2, 3, 5, 6
_JPEG = 7
_MULTIPLIED_ALPHA, _PLAIN_ALPHA = 1, 2
_SHORT = 3
_CCITT = (2, 3, 4)

# (photometric, bits a sample, samples a pixel)
_LAYOUTS = frozenset(
    [
        (_WHITE_IS_ZERO, 1, 1),
        (_BLACK_IS_ZERO, 1, 1),
        (_WHITE_IS_ZERO, 8, 1),
        (_BLACK_IS_ZERO, 8, 1),
        (_BLACK_IS_ZERO, 8, 2),
        (_WHITE_IS_ZERO, 16, 1),
        (_BLACK_IS_ZERO, 16, 1),
        (_RGB, 8, 3),
        (_RGB, 8, 4),
        (_RGB, 16, 3),
        (_RGB, 16, 4),
        (_PALETTE, 1, 1),
        (_PALETTE, 4, 1),
        (_PALETTE, 8, 1),
        (_CMYK, 8, 4),
        (_YCBCR, 8, 3),
    ]
)
_COLORS = {0: "gray", 1: "gray", 2: "RGB", 3: "palette", 5: "CMYK", 6: "YCbCr", 8: "Lab"}
_SAVE_AS = "save it as 8-bit RGB TIFF or PNG"


def decode_tiff_rgb(data: bytes) -> NDArray[np.uint8]:
    """Decode the first picture of a TIFF. See Note [TIFF through OpenCV].

    Args:
        data: the whole file, which `probe` has accepted.

    Returns:
        (height, width, 3) uint8 RGB as stored; the high byte of 16-bit samples; alpha dropped, and undone
        where it was multiplied in; CMYK without a color profile, within 1 of Pillow.

    Raises:
        ImageError: a strip is damaged, or the layout is not supported.
    """
    page = read_tiff(data)
    _refuse_unsupported(page)
    check_segments(data, page)
    neutral = _neutral_copy(data, page)
    if page.bits[0] == 16:
        return _rgb_from_16_bit(decode_unchanged(neutral), page)
    bgr: NDArray[np.uint8]
    if page.photometric == _RGB and _MULTIPLIED_ALPHA in page.extra_samples:
        bgra = decode_unchanged(neutral)
        if bgra.dtype != np.uint8 or bgra.ndim != 3 or bgra.shape[2] != 4:
            raise ImageError(f"TIFF with alpha decoded to {bgra.shape} {bgra.dtype}; {_SAVE_AS}")
        bgr = _unmultiplied(bgra.astype(np.uint8, copy=False))
    else:
        bgr = decode_bgr(neutral)
    cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB, dst=bgr)
    return bgr


def _refuse_unsupported(page: TiffPage) -> None:
    bits = page.bits[0]
    color = _COLORS.get(page.photometric, f"photometric {page.photometric}")
    what = None
    if page.compression not in COMPRESSIONS:
        what = f"compression {page.compression}"
    elif page.sample_format not in (1, 4):  # unsigned, or "undefined", which is read as unsigned
        what = f"signed or float {bits}-bit samples"
    elif len(set(page.bits)) > 1 or (page.photometric, bits, page.samples) not in _LAYOUTS:
        what = f"{page.samples} samples of {bits} bits as {color}"
    elif page.planar and (bits != 8 or page.photometric != _RGB):
        what = f"{bits}-bit {color} in separate planes"
    elif len(page.extra_samples) > 1 or (page.samples == 2 and page.extra_samples == (_MULTIPLIED_ALPHA,)):
        what = f"extra samples {page.extra_samples}"
    elif page.photometric == _YCBCR and page.compression != _JPEG and page.chroma_subsampling != (1, 1):
        what = "subsampled YCbCr outside JPEG"
    elif page.fill_order != 1 and page.compression not in (RAW, *_CCITT):
        what = "reversed bits in compressed data"
    if what is not None:
        raise ImageError(f"TIFF with {what} is not supported; {_SAVE_AS}")


def _neutral_copy(data: bytes, page: TiffPage) -> bytes | bytearray:
    """The file without the two tags that OpenCV would act on; itself where it has neither."""
    edits = []
    if page.orientation_entry is not None:
        edits.append((page.orientation_entry, 1))
    if page.photometric == _RGB and page.extra_samples == (_PLAIN_ALPHA,) and page.extra_samples_entry:
        edits.append((page.extra_samples_entry, _MULTIPLIED_ALPHA))
    if not edits:
        return data
    copy = bytearray(data)
    # Type, count and value of the entry, as one SHORT.
    layout = page.endian + ("HQH" if page.big else "HIH")
    for entry, value in edits:
        struct.pack_into(layout, copy, entry + 2, _SHORT, 1, value)
    return copy


def _rgb_from_16_bit(pixels: NDArray[np.generic], page: TiffPage) -> NDArray[np.uint8]:
    if pixels.dtype != np.uint16 or (1 if pixels.ndim == 2 else pixels.shape[2]) != page.samples:
        raise ImageError(f"16-bit TIFF decoded to {pixels.shape} {pixels.dtype}; {_SAVE_AS}")
    high = np.right_shift(pixels, 8, dtype=np.uint16).astype(np.uint8)
    if page.photometric == _WHITE_IS_ZERO:
        high = 255 - high
    if high.ndim == 2:
        return np.repeat(high[:, :, None], 3, axis=2)
    if page.samples == 4 and _MULTIPLIED_ALPHA in page.extra_samples:
        high = _unmultiplied(high)
    return np.ascontiguousarray(high[:, :, 2::-1])


def _unmultiplied(bgra: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Divide alpha out of the colors as Pillow does: floor(255 * color / alpha), black where alpha is 0."""
    colors = bgra[:, :, :3]
    alpha = bgra[:, :, 3:].astype(np.uint32)
    divided = np.minimum(colors.astype(np.uint32) * 255 // np.maximum(alpha, 1), 255)
    return (divided * (alpha > 0)).astype(np.uint8)
