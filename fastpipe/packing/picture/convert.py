"""One source file's bytes -> the baseline JPEG that a shard holds, its pixels untouched wherever that is possible."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastpipe.engine.engine import lacks_memory
from fastpipe.errors import ImageError
from fastpipe.format.layout import COEFFICIENTS_STORAGE, JPEG_STORAGE, MAX_SAMPLE_BYTES
from fastpipe.format.sample_layout import Stored
from fastpipe.native import _engine
from fastpipe.packing.picture.jpeg import MAX_SIDE, encode_jpeg
from fastpipe.packing.picture.jpeg_segments import JpegHeader, Segment, is_icc, kept_segments, read_header
from fastpipe.packing.picture.pillow import TooManyPixelsError, open_image, refuse_more_pixels
from fastpipe.packing.picture.pixels import apply_orientation, shrink
from fastpipe.packing.picture.probe import COEFFICIENTS, image_format

MAX_PIXELS: int = _engine.MAX_PIXELS
MAX_SCANS = 256
REENCODE_QUALITY = 95
_TINY_PIXELS = 32 * 32  # of so few pixels each block counts, and its bytes do not
TILE = 32
DAMAGED = ("reject", "decode")


@dataclass(frozen=True)
class EncodeOptions:
    """How a source becomes a packed JPEG.

    Attributes:
        max_size: longest side in pixels; larger pictures are shrunk and encoded again; None: no limit.
        quality: JPEG quality, 1 to 100, of shrunk pictures.
        apply_exif: turn pictures upright by their EXIF orientation.
        keep_metadata: keep all metadata segments of JPEGs; else only the ICC profile.
        max_pixels: refuse larger pictures.
        max_scans: refuse progressive JPEGs with more scans.
        tile: pixels between restart markers, about: what lies between can be decoded alone. 0: no markers.
        damaged: "reject" refuses every damaged JPEG; "decode" takes those that Pillow, and so torchvision's
            ImageFolder, still loads, as Pillow shows them.
        storage: "jpeg", or "coefficients": the same coefficients in a form that is quicker to decode, and larger.
    """

    max_size: int | None = None
    quality: int = 90
    apply_exif: bool = False
    keep_metadata: bool = False
    max_pixels: int = MAX_PIXELS
    max_scans: int = MAX_SCANS
    tile: int = TILE
    damaged: str = "reject"
    storage: str = JPEG_STORAGE


@dataclass(frozen=True)
class Packed:
    """One picture, ready for a shard.

    Attributes:
        jpeg: what a shard holds: a baseline JPEG of one scan, or its coefficients as a KEY.fpc.
        width, height: in pixels.
        change: why the picture had to be encoded again; None: its coefficients are the source's.
        oriented: the source carries an EXIF orientation other than upright (not counting TIFF's own).
        stray_bytes: the source has bytes that belong to no segment; they were left out.
        multi_frame: the source has more frames (animation, pages); the first was packed.
        source_size: width and height of the source, as it is stored.
        orientation: the source's EXIF orientation, 1..8.
        values: of the sample's fields, one a field.
        jpeg_bytes: how large it is as a JPEG.
        identity: of the source's picture: identity.py.
        class_name: the name of its class; None: it has none, or is called after its label.
    """

    jpeg: bytes
    width: int
    height: int
    change: str | None
    oriented: bool
    stray_bytes: bool = False
    multi_frame: bool = False
    source_size: tuple[int, int] = (0, 0)
    orientation: int = 1
    values: tuple[Stored, ...] = ()
    jpeg_bytes: int = 0
    identity: int = 0
    class_name: str | None = None


def convert(data: bytes, how: EncodeOptions, orientation: int | None = None) -> Packed:
    """Packs one image. Reads all of it, or of its first frame: what is damaged anywhere is refused.

    Args:
        data: the whole source file.
        how: what to do with it.
        orientation: the EXIF orientation that counts, 1..8; None: the file's own.

    Raises:
        ImageError: not an image, damaged, or over a limit; the message is the reason.
    """
    name = image_format(data)
    if name == COEFFICIENTS:
        with _native_errors():
            data = _engine.restore_jpeg(data)
    elif name != "JPEG":
        opened = open_image(data, name, max_pixels=how.max_pixels)
        _refuse_long_sides(opened.width, opened.height, how)
        turn = orientation or opened.orientation
        change = _change(opened.width, opened.height, turn, how) or name
        return _reencode(opened.rgb(), how, change, turn, [], multi_frame=opened.multi_frame)
    try:
        return _pack_jpeg(data, how, orientation)
    except ImageError as problem:
        # A limit on work is no damage; that on pixels holds there, too.
        if how.damaged == "reject" or str(problem).startswith(_engine.TOO_MANY_SCANS):
            raise
        try:
            return _pack_damaged_jpeg(data, how, orientation)
        except ImageError:
            raise problem from None


def stored_size(data: bytes, how: EncodeOptions) -> tuple[int, int]:
    """Width and height that `convert` would store, from the header alone; options that change the size count not.

    Args:
        data: the whole source file.
        how: the limits. A picture with more pixels is not refused here: its size tells.

    Raises:
        ImageError: the header says that `convert` would refuse it.
    """
    name = image_format(data)
    if name == COEFFICIENTS:
        with _native_errors():
            return _engine.jpeg_size(data, how.max_pixels)
    try:
        header = read_header(data) if name == "JPEG" else open_image(data, name, max_pixels=how.max_pixels)
        width, height = header.width, header.height
    except TooManyPixelsError as large:
        width, height = large.width, large.height
    _refuse_long_sides(width, height, how)
    return width, height


def convert_pixels(rgb: NDArray[np.uint8], how: EncodeOptions, orientation: int = 1) -> Packed:
    """Packs (height, width, 3) uint8 RGB, which the EXIF orientation would turn upright.

    Raises:
        ImageError: over a limit.
    """
    height, width = rgb.shape[:2]
    refuse_more_pixels(width, height, how.max_pixels)
    _refuse_long_sides(width, height, how)
    return _reencode(rgb, how, _change(width, height, orientation, how) or "pixels", orientation, [])


def _pack_jpeg(data: bytes, how: EncodeOptions, orientation: int | None) -> Packed:
    header = read_header(data)
    if orientation is not None:
        header = replace(header, orientation=orientation)
    refuse_more_pixels(header.width, header.height, how.max_pixels)
    _refuse_long_sides(header.width, header.height, how)
    change = _change(header.width, header.height, header.orientation, how)
    segments = _kept(header, how)
    try:
        jpeg, info = _transcode(data, segments, how)
        kind = {4: "CMYK"}.get(info["components"], "12-bit" if info["precision"] == 12 else None)
    except ImageError:
        # Sound, but of a kind that one baseline scan cannot hold? Then its pixels are encoded again.
        jpeg, info = _transcode(data, segments, how, check_only=True)
        kind = "CMYK" if info["components"] == 4 else "unusual JPEG structure"
    stray_bytes = bool(info["stray_bytes"])
    if jpeg is not None and change is None:
        size = header.width, header.height
        turn = header.orientation
        return Packed(
            *(jpeg, *size, kind, turn != 1, stray_bytes),
            source_size=size,
            orientation=turn,
            jpeg_bytes=info["jpeg_bytes"],
        )
    if info["components"] == 4:
        segments = [segment for segment in segments if not is_icc(segment)]  # it speaks of CMYK
    if jpeg is None:
        rgb = open_image(data, "JPEG", max_pixels=how.max_pixels).rgb()
    else:  # the source's pixels, without stray bytes and 12-bit samples
        with _native_errors():
            rgb = _engine.decode(jpeg, max_pixels=how.max_pixels)
    gray, reason = info["components"] == 1, change or kind
    assert reason is not None  # without one the transcode has been returned
    return _reencode(rgb, how, reason, header.orientation, segments, gray=gray, stray_bytes=stray_bytes)


def _pack_damaged_jpeg(data: bytes, how: EncodeOptions, orientation: int | None) -> Packed:
    """Packs what Pillow makes of a JPEG that is refused otherwise.

    Pillow takes no JPEG that ends early, but passes over whatever libjpeg only warns of: gray or shifted blocks where
    the data are damaged, or missing before an end marker.
    """
    opened = open_image(data, "JPEG", max_pixels=how.max_pixels)
    _refuse_long_sides(opened.width, opened.height, how)
    try:
        segments = [one for one in _kept(read_header(data), how) if opened.image.mode != "CMYK" or not is_icc(one)]
    except ImageError:
        segments = []
    gray = opened.image.mode == "L"
    return _reencode(opened.rgb(), how, "damaged JPEG", orientation or opened.orientation, segments, gray=gray)


def _reencode(
    rgb: NDArray[np.uint8],
    how: EncodeOptions,
    change: str,
    orientation: int,
    segments: list[Segment],
    *,
    gray: bool = False,
    stray_bytes: bool = False,
    multi_frame: bool = False,
) -> Packed:
    source_size = rgb.shape[1], rgb.shape[0]
    if how.apply_exif:
        rgb = apply_orientation(rgb, orientation)
    height, width = rgb.shape[:2]
    if _shrinks(width, height, how):
        assert how.max_size is not None  # _shrinks has looked
        rgb = shrink(rgb, how.max_size)
        encoded = encode_jpeg(rgb, quality=how.quality, subsampling="gray" if gray else "420")
    else:
        quality = 100 if width * height <= _TINY_PIXELS else REENCODE_QUALITY
        encoded = encode_jpeg(rgb, quality=quality, subsampling="gray" if gray else "444")
    jpeg, info = _transcode(encoded, segments, how)
    assert jpeg is not None  # it was asked for, and the encoder makes one or three components
    height, width = rgb.shape[:2]
    oriented = orientation != 1
    return Packed(
        *(jpeg, width, height, change, oriented, stray_bytes, multi_frame, source_size, orientation),
        jpeg_bytes=info["jpeg_bytes"],
    )


def _shrinks(width: int, height: int, how: EncodeOptions) -> bool:
    return how.max_size is not None and max(width, height) > how.max_size


def _change(width: int, height: int, orientation: int, how: EncodeOptions) -> str | None:
    """Why the options want the pixels to change, if they do."""
    if _shrinks(width, height, how):
        return "shrunk"
    return "turned upright" if how.apply_exif and orientation != 1 else None


def _refuse_long_sides(width: int, height: int, how: EncodeOptions) -> None:
    if max(width, height) > MAX_SIDE and not _shrinks(width, height, how):
        raise ImageError(f"{width} x {height} has a side over JPEG's {MAX_SIDE:,} pixels; --max-size shrinks it")


def _kept(header: JpegHeader, how: EncodeOptions) -> list[Segment]:
    turns = how.apply_exif and header.orientation != 1
    return kept_segments(header.segments, keep_metadata=how.keep_metadata, upright=turns)


@contextlib.contextmanager
def _native_errors() -> Iterator[None]:
    try:
        yield
    except ValueError as problem:
        if lacks_memory(str(problem)):
            raise MemoryError(str(problem)) from problem
        raise ImageError(str(problem)) from problem


def _transcode(
    data: bytes, segments: list[Segment], how: EncodeOptions, *, check_only: bool = False
) -> tuple[bytes | None, dict[str, int]]:
    with _native_errors():
        jpeg, info = _engine.transcode(
            data,
            segments,
            max_pixels=how.max_pixels,
            max_scans=how.max_scans,
            check_only=check_only,
            tile=how.tile,
            coefficients=how.storage == COEFFICIENTS_STORAGE,
        )
    if jpeg is not None and len(jpeg) > MAX_SAMPLE_BYTES:
        raise ImageError(f"{len(jpeg):,} bytes to store; the index holds up to {MAX_SAMPLE_BYTES:,}")
    return jpeg, info
