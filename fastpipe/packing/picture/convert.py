"""One source file's bytes -> the baseline JPEG that a shard holds, its pixels untouched wherever that is possible."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastpipe.engine.engine import lacks_memory
from fastpipe.errors import ImageError
from fastpipe.format.layout import COEFFICIENTS_STORAGE, JPEG_STORAGE, MAX_SAMPLE_BYTES
from fastpipe.format.sample_layout import Stored
from fastpipe.native import _engine
from fastpipe.packing.picture.jpeg import MAX_SIDE, apply_orientation, encode_jpeg, shrink
from fastpipe.packing.picture.jpeg_segments import JpegHeader, Segment, kept_segments, read_header
from fastpipe.packing.picture.pillow import TooManyPixelsError, open_image, refuse_more_pixels
from fastpipe.packing.picture.probe import COEFFICIENTS, image_format

MAX_PIXELS: int = _engine.MAX_PIXELS
MAX_SCANS = 256
_TINY_PIXELS = 32 * 32  # of so few pixels each block counts, and its bytes do not
TILE = 32
DAMAGED = ("reject", "decode")

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class EncodeOptions:
    """How a source becomes a packed JPEG.

    Attributes:
        max_size: longest side in pixels; larger pictures are shrunk and encoded again; None: no limit.
        quality: JPEG quality, 1 to 100, of shrunk pictures.
        keep_metadata: keep all metadata segments of JPEGs; else only the ICC profile.
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
        data: what a shard holds: a baseline JPEG of one scan, or its coefficients as a KEY.fpc.
        change: why the picture had to be encoded again; None: its coefficients are the source's.
        stray_bytes: the source has bytes that belong to no segment; they were left out.
        multi_frame: the source has more frames (animation, pages); the first was packed.
        source_size: width and height of the source, as it is stored.
        orientation: the source's EXIF orientation, 1..8 (not TIFF's own, which Pillow applies).
        jpeg_bytes: how large it is as a JPEG.
        identity: of the source's picture: sample_layout.identity_of.
        class_name: the name of its class; None: it has none, or is called after its label.
    """

    data: bytes
    width: int
    height: int
    change: str | None
    stray_bytes: bool = False
    multi_frame: bool = False
    source_size: tuple[int, int] = (0, 0)
    orientation: int = 1
    values: tuple[Stored, ...] = ()
    jpeg_bytes: int = 0
    identity: int = 0
    class_name: str | None = None

    @property
    def oriented(self) -> bool:
        """The source carries an EXIF orientation other than upright."""
        return self.orientation != 1


def convert(data: bytes | NDArray[np.uint8], how: EncodeOptions, orientation: int | None = None) -> Packed:
    """Packs a whole file, or (height, width, 3) uint8 RGB, whose EXIF orientation is 1..8; None: the file's own.

    Reads all of it, or of its first frame: what is damaged anywhere is refused.

    Raises:
        ImageError: not an image, damaged, or over a limit; the message is the reason.
    """
    if not isinstance(data, bytes):
        height, width = data.shape[:2]
        return _encoded(data, _known((width, height), orientation or 1, how, "pixels"), how, [])
    name = image_format(data)
    if name == COEFFICIENTS:
        data = _native(_engine.restore_jpeg, data)
    elif name != "JPEG":
        return _pack_decoded(data, name, how, orientation)
    try:
        return _pack_jpeg(data, how, orientation)
    except ImageError as problem:
        # A limit on work is no damage; that on pixels holds there, too.
        if how.damaged == "decode" and not str(problem).startswith(_engine.TOO_MANY_SCANS):
            with contextlib.suppress(ImageError):
                return _pack_decoded(data, "JPEG", how, orientation)
        raise


def stored_size(data: bytes) -> tuple[int, int]:
    """Width and height that `convert` would store, from the header alone. How many pixels they make is not limited.

    Raises:
        ImageError: the header says that `convert` would refuse it.
    """
    name = image_format(data)
    if name == COEFFICIENTS:
        return _native(_engine.picture_size, data, MAX_PIXELS)
    try:
        size = (read_header(data) if name == "JPEG" else open_image(data, name, max_pixels=MAX_PIXELS)).size
    except TooManyPixelsError as large:
        size = large.size
    _refuse_long_sides(size)
    return size


def _pack_jpeg(data: bytes, how: EncodeOptions, orientation: int | None) -> Packed:
    header = read_header(data)
    known = _known(header.size, orientation or header.orientation, how)
    segments = _kept(header, known, how)
    try:
        jpeg, info = _transcode(data, segments, how)
    except ImageError:
        # Sound, but of a kind that one baseline scan cannot hold? Then its pixels are encoded again.
        jpeg, info = _transcode(data, segments, how, check_only=True)
    kind = "12-bit" if info["precision"] == 12 else None
    if jpeg is None:
        kind = "CMYK" if info["components"] == 4 else "unusual JPEG structure"
    packed = replace(known, change=known.change or kind, stray_bytes=bool(info["stray_bytes"]))
    if jpeg is not None and known.change is None:
        return replace(packed, data=jpeg, jpeg_bytes=info["jpeg_bytes"])
    if jpeg is None:
        rgb = open_image(data, "JPEG", max_pixels=how.max_pixels).rgb()
    else:  # the source's pixels, without stray bytes and 12-bit samples
        rgb = _native(_engine.decode, jpeg, max_pixels=how.max_pixels)
    segments = _kept(header, known, how, cmyk=info["components"] == 4)
    return _encoded(rgb, packed, how, segments, gray=info["components"] == 1)


def _pack_decoded(data: bytes, name: str, how: EncodeOptions, orientation: int | None) -> Packed:
    """Packs what Pillow makes of another format, or of a JPEG that is refused otherwise.

    Pillow takes no JPEG that ends early, but passes over whatever libjpeg only warns of: gray or shifted blocks where
    the data are damaged, or missing before an end marker.
    """
    opened = open_image(data, name, max_pixels=how.max_pixels)
    known = _known(opened.size, orientation or opened.orientation, how, name)
    known = replace(known, multi_frame=opened.multi_frame)
    segments: list[Segment] = []
    if name == "JPEG":
        known = replace(known, change="damaged JPEG")
        with contextlib.suppress(ImageError):
            segments = _kept(read_header(data), known, how, cmyk=opened.image.mode == "CMYK")
    return _encoded(opened.rgb(), known, how, segments, gray=(name, opened.image.mode) == ("JPEG", "L"))


def _known(size: tuple[int, int], orientation: int, how: EncodeOptions, change: str | None = None) -> Packed:
    """What is known of a picture before it is decoded. `change`: why it is encoded again if no option wants that.

    Raises:
        ImageError: it is over a limit.
    """
    refuse_more_pixels(size, how.max_pixels)
    if how.max_size is not None and max(size) > how.max_size:
        change = "shrunk"
    else:
        _refuse_long_sides(size)
        if how.apply_exif and orientation != 1:
            change = "turned upright"
    return Packed(b"", *size, change, source_size=size, orientation=orientation)


def _encoded(
    rgb: NDArray[np.uint8], known: Packed, how: EncodeOptions, segments: list[Segment], *, gray: bool = False
) -> Packed:
    """A picture of which these are the pixels, as they are stored in the source."""
    if how.apply_exif:
        rgb = apply_orientation(rgb, known.orientation)
    if how.max_size is not None and max(rgb.shape[:2]) > how.max_size:
        rgb, quality, sampling = shrink(rgb, how.max_size), how.quality, "420"
    else:
        quality, sampling = 100 if rgb.size <= 3 * _TINY_PIXELS else 95, "444"
    encoded = encode_jpeg(rgb, quality=quality, sampling="gray" if gray else sampling)
    jpeg, info = _transcode(encoded, segments, how)
    assert jpeg is not None  # it was asked for, and the encoder makes one or three components
    return replace(known, data=jpeg, width=rgb.shape[1], height=rgb.shape[0], jpeg_bytes=info["jpeg_bytes"])


def _refuse_long_sides(size: tuple[int, int]) -> None:
    if max(size) > MAX_SIDE:
        raise ImageError(f"{size[0]} x {size[1]} has a side over JPEG's {MAX_SIDE:,} pixels; --max-size shrinks it")


def _kept(header: JpegHeader, known: Packed, how: EncodeOptions, *, cmyk: bool = False) -> list[Segment]:
    """The segments to write. A profile of CMYK speaks of other pixels than those that are stored."""
    upright = how.apply_exif and known.oriented
    return kept_segments(header.segments, keep_metadata=how.keep_metadata, upright=upright, icc=not cmyk)


def _native(call: Callable[_Given, _Found], *args: _Given.args, **options: _Given.kwargs) -> _Found:
    """Calls the extension, whose complaints about a picture are ImageErrors."""
    try:
        return call(*args, **options)
    except ValueError as problem:
        if lacks_memory(str(problem)):
            raise MemoryError(str(problem)) from problem
        raise ImageError(str(problem)) from problem


def _transcode(
    data: bytes, segments: list[Segment], how: EncodeOptions, *, check_only: bool = False
) -> tuple[bytes | None, dict[str, int]]:
    jpeg, info = _native(
        _engine.transcode,
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
