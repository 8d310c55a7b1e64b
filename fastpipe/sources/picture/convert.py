"""A source file's bytes -> what a shard holds: a JPEG of the same coefficients, or a PNG of the same pixels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.format.layout import COEFFICIENTS_STORAGE, JPEG_STORAGE, MAX_SAMPLE_BYTES
from fastpipe.format.pixel_form import PixelForm
from fastpipe.format.sample_layout import Stored
from fastpipe.native import _engine
from fastpipe.sources.picture.background import is_transparent, on_background
from fastpipe.sources.picture.jpeg import MAX_SIDE, apply_orientation, encode_jpeg, shrink
from fastpipe.sources.picture.jpeg_segments import JpegHeader, Segment, kept_segments, read_header
from fastpipe.sources.picture.pillow import (
    OpenedImage,
    TooManyPixelsError,
    open_image,
    refuse_more_pixels,
    rgb_of,
)
from fastpipe.sources.picture.png import encode_png, is_ours
from fastpipe.sources.picture.probe import COEFFICIENTS, code_of, form_of, image_format, native

MAX_PIXELS: int = _engine.MAX_PIXELS
MAX_SCANS = 256
_MAX_PNG_SIDE = 65535  # the index's limit
_QUALITY, _SHRUNK_QUALITY = 95, 90
TILE = 32
DAMAGED = ("reject", "decode")


@dataclass(frozen=True)
class EncodeOptions:
    """How a source becomes a packed picture: options of `fastpipe.pack`, which says what they mean."""

    max_size: int | None = None
    quality: int | None = None
    lossless: bool = False
    apply_exif: bool = False  # exif="apply"
    keep_metadata: bool = False
    max_pixels: int = MAX_PIXELS
    max_scans: int = MAX_SCANS
    tile: int = TILE
    damaged: str = "reject"
    storage: str = JPEG_STORAGE
    background: str | None = (
        None  # "#rrggbb", on which transparent pictures are put; None: they keep their alpha
    )

    def as_png(self, *, lossless: bool) -> bool:
        """Whether a picture that cannot be stored as it came becomes a PNG; `lossless`: it came without loss."""
        return self.lossless or (lossless and self.quality is None)


@dataclass(frozen=True)
class Packed:
    """One picture, ready for a shard."""

    data: bytes  # what a shard holds: a baseline JPEG of one scan, its coefficients as a KEY.fpc, or a PNG
    width: int
    height: int
    change: (
        str | None
    )  # why the pixels are no longer the source's; None: they, or its coefficients, are
    png_of: str | None = None  # of a PNG, what it was made of; None: it is a JPEG
    stray_bytes: bool = False  # the source has bytes that belong to no segment; they were left out
    multi_frame: bool = False  # the source has more frames (animation, pages); the first was packed
    source_size: tuple[int, int] = (0, 0)  # width and height of the source, as it is stored
    orientation: int = (
        1  # the source's EXIF orientation, 1..8 (not TIFF's own, which Pillow applies)
    )
    transparent: bool = False  # it has pixels that are not opaque, and no background: a loader of RGB drops the alpha
    values: tuple[Stored, ...] = ()
    assumed_shown: bool = (
        False  # values were moved as of the picture as shown, which nothing but the format says
    )
    jpeg_bytes: int = 0  # how large it is as a JPEG, or as a PNG
    identity: int = 0  # of the source's picture: sample_layout.identity_of
    class_name: str | None = (
        None  # the name of its class; None: it has none, or is called after its label
    )


# The width and height of a picture and its EXIF orientation -> the orientation by which it is turned.
Turn = Callable[[tuple[int, int], int], int]


def _own(_: tuple[int, int], orientation: int) -> int:
    return orientation


def convert(data: bytes | OpenedImage, how: EncodeOptions, turn: Turn = _own) -> Packed:
    """Packs a file, or pixels. ImageError: it is refused, also by `turn`."""
    if isinstance(data, OpenedImage):
        return _pack_opened(data, "pixels", how, turn)
    name = image_format(data)
    if name == COEFFICIENTS:
        data = native(_engine.restore_jpeg, data)
    elif name != "JPEG":
        opened = open_image(data, name, max_pixels=how.max_pixels)
        return _pack_opened(
            opened, name, how, turn, data if name == "PNG" and is_ours(data) else None
        )
    try:
        return _pack_jpeg(data, how, turn)
    except ImageError as problem:
        # A limit on work is no damage; that on pixels holds there, too.
        if how.damaged == "decode" and code_of(problem) != _engine.Code.too_many_scans:
            with contextlib.suppress(ImageError):
                return _pack_damaged(data, how, turn)
        raise


def stored_header(data: bytes) -> tuple[int, int, int, int]:
    """Width, height, channels and bits that `convert` would store, from the header alone. ImageError: as `convert`."""
    name, lossless, form = image_format(data), False, PixelForm()
    if name == COEFFICIENTS:
        return *native(_engine.picture_size, data, MAX_PIXELS), *form_of(data)
    try:
        if name == "JPEG":
            header = read_header(data)
            size, form = header.size, PixelForm(1 if header.components == 1 else 3)
        else:
            opened = open_image(data, name, max_pixels=MAX_PIXELS)
            size, lossless, form = opened.size, opened.lossless, opened.form
    except TooManyPixelsError as large:
        size = large.size
    _refuse_long_sides(size, png=lossless)
    return *size, *form


def _pack_jpeg(data: bytes, how: EncodeOptions, turn: Turn) -> Packed:
    header = read_header(data)
    known = _known(header.size, turn(header.size, header.orientation), how)
    segments = _kept(header, known, how)
    try:
        jpeg, info = _transcode(data, segments, how)
    except ImageError:
        # Sound, but of a kind that one baseline scan cannot hold? Then its pixels are encoded again.
        jpeg, info = _transcode(data, segments, how, check_only=True)
    known = replace(known, stray_bytes=bool(info["stray_bytes"]))
    kind = "12-bit" if info["precision"] == 12 else None
    if jpeg is None:
        kind = "CMYK" if info["components"] == 4 else "unusual JPEG structure"
        rgb = rgb_of(open_image(data, "JPEG", max_pixels=how.max_pixels).samples())
    elif known.change is None:
        return replace(known, data=jpeg, change=kind, jpeg_bytes=info["jpeg_bytes"])
    else:  # the source's pixels, without stray bytes and 12-bit samples
        rgb = native(_engine.decode, jpeg, max_pixels=how.max_pixels)
    samples = rgb[:, :, :1] if info["components"] == 1 else rgb
    return _encoded(samples, known, how, kind, segments, png=how.as_png(lossless=False))


def _pack_damaged(data: bytes, how: EncodeOptions, turn: Turn) -> Packed:
    """Packs a damaged JPEG as Pillow shows it: with gray or shifted blocks. Pillow takes none that ends early."""
    opened = open_image(data, "JPEG", max_pixels=how.max_pixels)
    known = _known(opened.size, turn(opened.size, opened.orientation), how)
    segments: list[Segment] = []
    with contextlib.suppress(ImageError):
        segments = _kept(read_header(data), known, how)
    known = replace(known, change="damaged JPEG")
    return _encoded(opened.samples(), known, how, None, segments, png=how.as_png(lossless=False))


def _pack_opened(
    opened: OpenedImage, name: str, how: EncodeOptions, turn: Turn, ours: bytes | None = None
) -> Packed:
    """Packs what is no JPEG. `ours` has its bytes, if they are a PNG of ours."""
    png = how.as_png(lossless=opened.lossless)
    known = _known(opened.size, turn(opened.size, opened.orientation), how, png=png)
    known = replace(known, multi_frame=opened.multi_frame)
    samples = opened.samples()
    transparent = is_transparent(samples)
    if how.background is None:
        known = replace(known, transparent=transparent)
    elif samples.shape[2] % 2 == 0:
        samples, ours = on_background(samples, how.background), None
        known = replace(
            known, change=known.change or ("put on the background" if transparent else None)
        )
    if ours is not None and png and known.change is None:
        return replace(known, data=ours, png_of=name, jpeg_bytes=len(ours))
    return _encoded(samples, known, how, name, [], png=png)


def _known(
    size: tuple[int, int], orientation: int, how: EncodeOptions, *, png: bool = False
) -> Packed:
    """What is known of a picture before it is decoded. `png`: it becomes one. ImageError: it is over a limit."""
    change = None
    refuse_more_pixels(size, how.max_pixels)
    if how.max_size is not None and max(size) > how.max_size:
        change = "shrunk"
    else:
        _refuse_long_sides(size, png=png)
        if how.apply_exif and orientation != 1:
            change = "turned upright"
    return Packed(b"", *size, change, source_size=size, orientation=orientation)


def _encoded(
    samples: NDArray[Any],
    known: Packed,
    how: EncodeOptions,
    kind: str | None,
    segments: list[Segment],
    *,
    png: bool,
) -> Packed:
    """A picture of the source's samples. `kind` says what it is, if it is no usual JPEG; `segments` are for a JPEG."""
    if how.apply_exif:
        samples = apply_orientation(samples, known.orientation)
    quality, sampling = _QUALITY, "444"
    if how.max_size is not None and max(samples.shape[:2]) > how.max_size:
        samples, quality, sampling = shrink(samples, how.max_size), _SHRUNK_QUALITY, "420"
    known = replace(known, width=samples.shape[1], height=samples.shape[0])
    if png:
        data = _within_limit(encode_png(samples))
        return replace(known, data=data, png_of=kind or "JPEG", jpeg_bytes=len(data))
    sampling = "gray" if samples.shape[2] < 3 else sampling
    encoded = encode_jpeg(rgb_of(samples), quality=how.quality or quality, sampling=sampling)
    jpeg, info = _transcode(encoded, segments, how)
    assert jpeg is not None  # it was asked for, and the encoder makes one or three components
    return replace(known, data=jpeg, change=known.change or kind, jpeg_bytes=info["jpeg_bytes"])


def _refuse_long_sides(size: tuple[int, int], *, png: bool) -> None:
    most, of = (_MAX_PNG_SIDE, "the index's") if png else (MAX_SIDE, "JPEG's")
    if max(size) > most:
        raise ImageError(
            f"{size[0]} x {size[1]} has a side over {of} {most:,} pixels; --max-size shrinks it"
        )


def _kept(header: JpegHeader, known: Packed, how: EncodeOptions) -> list[Segment]:
    """The segments to write. A profile of CMYK speaks of other pixels than those that are stored."""
    upright = how.apply_exif and known.orientation != 1
    return kept_segments(
        header.segments,
        keep_metadata=how.keep_metadata,
        upright=upright,
        icc=header.components != 4,
    )


def _transcode(
    data: bytes, segments: list[Segment], how: EncodeOptions, *, check_only: bool = False
) -> tuple[bytes | None, dict[str, int]]:
    jpeg, info = native(
        _engine.transcode,
        data,
        segments,
        max_pixels=how.max_pixels,
        max_scans=how.max_scans,
        check_only=check_only,
        tile=how.tile,
        coefficients=how.storage == COEFFICIENTS_STORAGE,
    )
    return jpeg if jpeg is None else _within_limit(jpeg), info


def _within_limit(data: bytes) -> bytes:
    if len(data) > MAX_SAMPLE_BYTES:
        raise ImageError(
            f"{len(data):,} bytes to store; the index holds up to {MAX_SAMPLE_BYTES:,}"
        )
    return data
