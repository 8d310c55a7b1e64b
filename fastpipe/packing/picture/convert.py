"""One source file's bytes -> the baseline JPEG that a shard holds, its pixels untouched wherever that is possible."""

from __future__ import annotations

from dataclasses import dataclass

from fastpipe import _engine
from fastpipe.errors import ImageError
from fastpipe.format.layout import MAX_SAMPLE_BYTES
from fastpipe.packing.picture.jpeg_segments import Segment, is_icc, kept_segments
from fastpipe.packing.picture.pixels import apply_orientation, decode_rgb, encode_jpeg, shrink
from fastpipe.packing.picture.probe import Probe, probe

MAX_PIXELS: int = _engine.MAX_PIXELS
MAX_SCANS = 256
MAX_SIDE = 65500  # libjpeg's limit; the format's own is 65,535
REENCODE_QUALITY = 95
TILE = 32

_FORMAT_NAMES = {"png": "PNG", "webp": "WebP", "bmp": "BMP", "tiff": "TIFF"}


@dataclass(frozen=True)
class Conversion:
    """How sources become packed JPEGs.

    Attributes:
        max_size: longest side in pixels; larger pictures are shrunk and encoded anew; None: no limit.
        quality: JPEG quality, 1 to 100, of shrunk pictures.
        apply_exif: turn pictures upright by their EXIF orientation.
        keep_metadata: keep all metadata segments of JPEGs; else only the ICC profile.
        max_pixels: refuse larger pictures.
        max_scans: refuse progressive JPEGs with more scans.
        tile: pixels between restart markers, about: what lies between can be decoded alone. 0: no markers.
    """

    max_size: int | None = None
    quality: int = 90
    apply_exif: bool = False
    keep_metadata: bool = False
    max_pixels: int = MAX_PIXELS
    max_scans: int = MAX_SCANS
    tile: int = TILE


@dataclass(frozen=True)
class Packed:
    """One picture, ready for a shard.

    Attributes:
        jpeg: baseline JPEG of one scan.
        width, height: in pixels.
        change: why the picture had to be encoded anew; None: its coefficients are the source's.
        oriented: the source carries an EXIF orientation other than upright (not counting TIFF's own).
        stray_bytes: the source has bytes that belong to no segment; they were left out.
    """

    jpeg: bytes
    width: int
    height: int
    change: str | None
    oriented: bool
    stray_bytes: bool


def convert(data: bytes, how: Conversion) -> Packed:
    """Packs one image. Reads all of it: what is damaged anywhere is refused.

    Args:
        data: the whole source file.
        how: what to do with it.

    Raises:
        ImageError: not an image, damaged, or over a limit; the message is the reason.
    """
    source = probe(data)
    if source.width * source.height > how.max_pixels:
        raise ImageError(
            f"{source.width} x {source.height} is over the limit of {how.max_pixels:,} pixels (--max-pixels)"
        )
    shrinks = how.max_size is not None and max(source.width, source.height) > how.max_size
    if max(source.width, source.height) > MAX_SIDE and not shrinks:
        raise ImageError(
            f"{source.width} x {source.height} has a side over JPEG's {MAX_SIDE:,} pixels; --max-size shrinks it"
        )
    # A TIFF's orientation is part of the format, and Pillow turns it when it loads one.
    oriented = source.orientation != 1 and source.format != "tiff"
    turns = source.orientation != 1 and (how.apply_exif or source.format == "tiff")

    change: str | None = "shrunk" if shrinks else "turned upright" if turns and oriented else None
    segments: list[Segment] = []
    stray_bytes = gray = False
    if source.format == "jpeg":
        segments = kept_segments(data, keep_metadata=how.keep_metadata, upright=turns)
        jpeg, info, kind = _transcode_source(data, segments, how, check_only=change is not None)
        stray_bytes = bool(info["stray_bytes"])
        if jpeg is not None and change is None:
            return Packed(jpeg, source.width, source.height, kind, oriented, stray_bytes)
        data = jpeg or data
        gray = info["components"] == 1
        if info["components"] == 4:
            segments = [segment for segment in segments if not is_icc(segment)]  # it speaks of CMYK
        change = change or kind
    else:
        change = change or _FORMAT_NAMES[source.format]

    return _reencode(data, source, segments, how, turns, change, gray, oriented, stray_bytes)


def _reencode(
    data: bytes,
    source: Probe,
    segments: list[Segment],
    how: Conversion,
    turns: bool,
    change: str | None,
    gray: bool,
    oriented: bool,
    stray_bytes: bool,
) -> Packed:
    image = decode_rgb(data, source, max_pixels=how.max_pixels)
    if turns:
        image = apply_orientation(image, source.orientation)
    if how.max_size is not None and change == "shrunk":
        image = shrink(image, how.max_size)
        encoded = encode_jpeg(image, quality=how.quality, subsampling="gray" if gray else "420")
    else:
        encoded = encode_jpeg(image, quality=REENCODE_QUALITY, subsampling="gray" if gray else "444")
    jpeg, _ = _transcode(encoded, segments, how, check_only=False)
    assert jpeg is not None  # it was asked for, and the encoder makes one or three components
    height, width = image.shape[:2]
    return Packed(jpeg, width, height, change, oriented, stray_bytes)


def _transcode_source(
    data: bytes, segments: list[Segment], how: Conversion, *, check_only: bool
) -> tuple[bytes | None, dict[str, int], str | None]:
    """Validates a source JPEG and, if that is wanted and possible, transcodes it.

    Returns:
        The JPEG or None, what it is, and the kind that keeps it from being packed as it is.
    """
    try:
        jpeg, info = _transcode(data, segments, how, check_only=check_only)
    except ImageError:
        if check_only:
            raise
        # Sound, but of a kind that one baseline scan cannot hold? Then its pixels are encoded anew.
        _, info = _transcode(data, segments, how, check_only=True)
        return None, info, "unusual JPEG structure"
    if info["components"] == 4:
        return None, info, "CMYK"
    kind = "12-bit" if info["precision"] == 12 else None
    if jpeg is None and (kind is not None or info["stray_bytes"]):
        # Decoders that take no 12-bit JPEG or no stray bytes are given the clean transcode.
        jpeg, info = _transcode(data, segments, how, check_only=False)
    return jpeg, info, kind


def _transcode(
    data: bytes, segments: list[Segment], how: Conversion, *, check_only: bool
) -> tuple[bytes | None, dict[str, int]]:
    try:
        jpeg, info = _engine.transcode(
            data,
            segments,
            max_pixels=how.max_pixels,
            max_scans=how.max_scans,
            check_only=check_only,
            tile=how.tile,
        )
    except ValueError as problem:
        raise ImageError(str(problem)) from problem
    if jpeg is not None and len(jpeg) > MAX_SAMPLE_BYTES:
        raise ImageError(f"{len(jpeg):,} bytes as a JPEG; the index holds up to {MAX_SAMPLE_BYTES:,}")
    return jpeg, info
