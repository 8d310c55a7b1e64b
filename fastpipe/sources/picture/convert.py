"""The bytes of a source file -> the bytes that a shard holds.

A JPEG becomes a JPEG with the same coefficients, and a TIFF in JPEG tiles a KEY.tif with those of
its tiles. All else becomes a PNG with the same pixels, or a JPEG where the source has loss; in tiles,
if it is large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from fastpipe.dataset.format.layout import (
    COEFFICIENTS_STORAGE,
    JPEG_STORAGE,
    MAX_NARROW_SIDE,
    MAX_SAMPLE_BYTES,
)
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.dataset.format.sample_layout import Stored
from fastpipe.dataset.format.tiled_file import cut_into_tiles
from fastpipe.errors import ImageError
from fastpipe.native import _engine
from fastpipe.sources.jpeg_segments import (
    JpegHeader,
    Segment,
    read_header,
    select_segments,
)
from fastpipe.sources.picture.background import (
    blend_with_background,
    has_alpha,
    is_transparent,
)
from fastpipe.sources.picture.jpeg import (
    MAX_SIDE,
    encode_jpeg,
    shrink,
    turn_upright,
)
from fastpipe.sources.picture.open_image import open_image
from fastpipe.sources.picture.pillow import (
    OpenedImage,
    TooManyPixelsError,
    refuse_more_pixels,
    to_rgb,
)
from fastpipe.sources.picture.png import encode_png, has_strips
from fastpipe.sources.picture.probe import (
    COEFFICIENTS,
    engine_code,
    image_format,
    native,
    read_form,
)
from fastpipe.sources.picture.tiff_tiles import TiffTiles, find_tiles, store_tiles

MAX_PIXELS: int = _engine.MAX_PIXELS
# A progressive JPEG may have thousands of scans, each over all of its pixels: a bomb of time.
MAX_SCANS = 256
TILE = 32
# A PNG of so many pixels is stored in tiles: each of its strips is as wide as the picture, and a crop
# would inflate all that lies beside it.
TILED_PNG_PIXELS = 1 << 24
DAMAGED = ("reject", "decode")


@dataclass(frozen=True)
class EncodeOptions:
    """How a source becomes a packed picture: options that `fastpipe.pack` describes."""

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
    level: int = 0  # of a TIFF that has its picture in several sizes; 0: the largest
    # "#rrggbb", on which transparent pictures are put; None: they keep their alpha.
    background: str | None = None

    def as_png(self, *, lossless: bool) -> bool:
        """Whether a picture that has to be encoded becomes a PNG; `lossless`: its source is."""
        return self.lossless or (lossless and self.quality is None)


@dataclass(frozen=True)
class Packed:
    """One picture, ready for a shard."""

    # A baseline JPEG of one scan, its coefficients as a KEY.fpc, a PNG, or a KEY.tif.
    data: bytes
    width: int
    height: int
    # Why the pixels differ from the source's; None: they, or the coefficients, are the same.
    change: str | None
    png_of: str | None = None  # of a PNG, the format of its source; None: it is a JPEG
    # Bytes of the source that belong to no segment were left out.
    stray_bytes: bool = False
    # The source has more frames (animation, pages) than the first.
    multi_frame: bool = False
    # Width and height of the source, as it is stored.
    source_size: tuple[int, int] = (0, 0)
    # Of the source's EXIF, 1..8. TIFF has one of its own, which Pillow applies.
    orientation: int = 1
    # It has pixels that are not opaque, and no background: a loader of RGB drops the alpha.
    transparent: bool = False
    # Bits of the largest value of a picture that is stored with 16 bits a channel; else 0.
    deep_bits: int = 0
    values: tuple[Stored, ...] = ()
    # Values were moved as if they were of the picture as shown, by the rule of the format.
    assumed_shown: bool = False
    # Values stayed as of the picture as stored, by the size in the annotations alone.
    assumed_stored: bool = False
    # Boxes that did not lie inside the picture, or could not be read.
    cut_boxes: int = 0
    dropped_boxes: int = 0
    jpeg_bytes: int = 0  # its size as a JPEG, or as a PNG
    identity: int = 0  # of the source's picture: sample_layout.identity_of
    # None: it has no class, or one that is called after its label.
    class_name: str | None = None


WITHOUT_IMAGE = Packed(b"", 0, 0, None)  # of a sample that has fields only

# The width and height of a picture and its EXIF orientation -> the orientation to turn it by.
Turn = Callable[[tuple[int, int], int], int]


def _turn_by_exif(_: tuple[int, int], orientation: int) -> int:
    return orientation


def convert(
    data: bytes | OpenedImage,
    options: EncodeOptions,
    turn: Turn = _turn_by_exif,
    *,
    may_be_tiled: bool = True,
) -> Packed:
    """Packs a file, or pixels.

    Args:
        data: the file, or the pixels.
        options: how to pack it.
        turn: how to turn it.
        may_be_tiled: a TIFF in JPEG tiles stays in tiles, and what is large is cut into tiles.

    Raises:
        ImageError: the picture, or `turn`, refuses it.
    """
    if isinstance(data, OpenedImage):
        return _pack_opened(data, "pixels", options, turn, may_be_tiled=may_be_tiled)
    name = image_format(data)
    if options.level > 0 and name != "TIFF":
        raise ImageError(
            f"a {name} has its image in one size, and --level {options.level} was passed; pack "
            "pyramids apart from other images"
        )
    if name == "TIFF" and may_be_tiled:
        tiles = find_tiles(data, options.level)
        if tiles is not None and not _is_shrunk(tiles.size, options):
            return _pack_tiles(data, tiles, options)
        if tiles is not None and options.level > 0:
            # Decoders take the largest picture of a file. So the level becomes a file of its own.
            data = store_tiles(data, tiles, partial(_transcode_tile, options))
    if name == COEFFICIENTS:
        data = native(_engine.restore_jpeg, data)
    elif name != "JPEG":
        opened = open_image(data, name, max_pixels=options.max_pixels)
        ready_png = None
        if name == "PNG" and has_strips(data):
            ready_png = data
        return _pack_opened(
            opened, name, options, turn, ready_png, may_be_tiled=may_be_tiled
        )
    try:
        return _pack_jpeg(data, options, turn)
    except ImageError as problem:
        # A JPEG with too many scans is not damaged, and decoding it anyway would be the work that
        # the limit forbids.
        is_damaged = engine_code(problem) != _engine.Code.too_many_scans
        if options.damaged == "decode" and is_damaged:
            try:
                return _pack_damaged(data, options, turn)
            except ImageError:
                pass  # the first error says more
        raise


def read_stored_header(data: bytes) -> tuple[int, int, int, int]:
    """Width, height, channels and bits that `convert` would store, from the header alone.

    Raises:
        ImageError: as `convert`.
    """
    name = image_format(data)
    if name == COEFFICIENTS:
        width, height = native(_engine.picture_size, data, MAX_PIXELS)
        return width, height, *read_form(data)

    form = PixelForm()
    try:
        if name == "TIFF":
            tiles = find_tiles(data)
            if tiles is not None:
                _refuse_wide_index(tiles.size)
                return *tiles.size, *PixelForm(tiles.channels)
        if name == "JPEG":
            header = read_header(data)
            size = header.size
            # Inks become RGB.
            form = PixelForm(1 if header.components == 1 else 3)
        else:
            opened = open_image(data, name, max_pixels=MAX_PIXELS)
            size = opened.size
            form = opened.form
    except TooManyPixelsError as problem:
        size = problem.size  # a loader may allow more
    if name == "JPEG":
        _refuse_long_sides(size, is_png=False)
    _refuse_wide_index(size)
    return *size, *form


def _pack_jpeg(data: bytes, options: EncodeOptions, turn: Turn) -> Packed:
    header = read_header(data)
    packed = _begin(
        header.size, turn(header.size, header.orientation), options, is_png=False
    )
    segments = _segments_to_keep(header, packed, options)
    try:
        jpeg, info = _transcode(data, segments, options)
    except ImageError:
        # A sound JPEG may be of a kind that one baseline scan cannot hold. A damaged one raises
        # here again.
        jpeg, info = _transcode(data, segments, options, check_only=True)
    packed = replace(packed, stray_bytes=bool(info["stray_bytes"]))

    kind = None
    if info["precision"] == 12:
        kind = "12-bit"
    if jpeg is None:
        kind = "unusual JPEG structure"
        if info["components"] == 4:
            kind = "CMYK"
        opened = open_image(data, "JPEG", max_pixels=options.max_pixels)
        samples = to_rgb(opened.samples())
    elif packed.change is None:
        return replace(packed, data=jpeg, change=kind, jpeg_bytes=info["jpeg_bytes"])
    else:
        # The transcoded JPEG has the source's pixels, but no stray bytes and no 12-bit samples.
        samples = native(_engine.decode, jpeg, max_pixels=options.max_pixels)
    # The decoders repeat gray as RGB.
    if info["components"] == 1:
        samples = samples[:, :, :1]
    is_png = options.as_png(lossless=False)
    return _encode(samples, packed, options, kind, segments, is_png=is_png)


def _pack_tiles(data: bytes, tiles: TiffTiles, options: EncodeOptions) -> Packed:
    refuse_more_pixels(tiles.size, options.max_pixels)
    stored = store_tiles(data, tiles, partial(_transcode_tile, options))
    if len(stored) > MAX_SAMPLE_BYTES:
        raise ImageError(
            f"{len(stored):,} bytes to store; the index holds up to {MAX_SAMPLE_BYTES:,}. Of the "
            f"{tiles.num_levels} levels of this file, --level packs a smaller one"
        )
    return Packed(
        stored,
        *tiles.size,
        change=None,
        source_size=tiles.size,
        multi_frame=tiles.multi_frame,
        jpeg_bytes=len(stored),
    )


def _pack_damaged(data: bytes, options: EncodeOptions, turn: Turn) -> Packed:
    """Packs a damaged JPEG as Pillow shows it, with gray or shifted blocks.

    Raises:
        ImageError: the JPEG ends early, which Pillow refuses.
    """
    opened = open_image(data, "JPEG", max_pixels=options.max_pixels)
    packed = _begin(
        opened.size, turn(opened.size, opened.orientation), options, is_png=False
    )
    packed = replace(packed, change="damaged JPEG")
    segments: list[Segment] = []
    try:
        segments = _segments_to_keep(read_header(data), packed, options)
    except ImageError:
        pass  # Pillow can read this header and we cannot, so its metadata is lost
    is_png = options.as_png(lossless=False)
    return _encode(opened.samples(), packed, options, None, segments, is_png=is_png)


def _pack_opened(
    opened: OpenedImage,
    name: str,
    options: EncodeOptions,
    turn: Turn,
    ready_png: bytes | None = None,
    *,
    may_be_tiled: bool,
) -> Packed:
    """Packs a picture that is no JPEG.

    Args:
        opened: the picture.
        name: of its format.
        options: how to pack it.
        turn: how to turn it.
        ready_png: its file, if that is a PNG with strips, which is stored as it is.
        may_be_tiled: it becomes a KEY.tif, if it is large.
    """
    is_png = options.as_png(lossless=opened.lossless)
    packed = _begin(
        opened.size,
        turn(opened.size, opened.orientation),
        options,
        is_png=is_png,
        may_be_tiled=may_be_tiled,
    )
    packed = replace(packed, multi_frame=opened.multi_frame)
    samples = opened.samples()
    transparent = is_transparent(samples)
    if options.background is None:
        packed = replace(packed, transparent=transparent)
    elif has_alpha(samples):
        samples = blend_with_background(samples, options.background)
        # The file still has alpha.
        ready_png = None
        if transparent and packed.change is None:
            packed = replace(packed, change="put on the background")
    if is_png and samples.itemsize == 2:
        packed = replace(packed, deep_bits=int(samples.max()).bit_length())
    is_cut = may_be_tiled and _is_tiled(packed.width, packed.height, is_png=is_png)
    is_kept = is_png and packed.change is None and not is_cut
    if ready_png is not None and is_kept:
        return replace(packed, data=ready_png, png_of=name, jpeg_bytes=len(ready_png))
    return _encode(
        samples, packed, options, name, [], is_png=is_png, may_be_tiled=may_be_tiled
    )


def _begin(
    size: tuple[int, int],
    orientation: int,
    options: EncodeOptions,
    *,
    is_png: bool,
    may_be_tiled: bool = False,
) -> Packed:
    """The packed picture before it is decoded: without data, and of the source's size.

    Args:
        size: width and height of the source.
        orientation: to turn it by.
        options: how to pack it.
        is_png: it becomes a PNG.
        may_be_tiled: it becomes a KEY.tif, if it is large.

    Raises:
        ImageError: it is over a limit.
    """
    change = None
    refuse_more_pixels(size, options.max_pixels)
    # A picture that is shrunk may have longer sides than the format allows.
    if _is_shrunk(size, options):
        change = "shrunk"
    else:
        if not may_be_tiled:
            _refuse_long_sides(size, is_png=is_png)
        if options.apply_exif and orientation != 1:
            change = "turned upright"
    return Packed(b"", *size, change, source_size=size, orientation=orientation)


def _encode(
    samples: NDArray[Any],
    packed: Packed,
    options: EncodeOptions,
    kind: str | None,
    segments: list[Segment],
    *,
    is_png: bool,
    may_be_tiled: bool = False,
) -> Packed:
    """Turns, shrinks and encodes the samples of a source.

    Args:
        samples: (height, width, 1..4) uint8 or uint16.
        packed: from `_begin`.
        options: how to pack it.
        kind: what the source is, if it is no usual JPEG.
        segments: for a JPEG.
        is_png: make a PNG.
        may_be_tiled: make a KEY.tif of it, if it is large.
    """
    if options.apply_exif:
        samples = turn_upright(samples, packed.orientation)
    # Pixels that are encoded only because they were turned, or were no JPEG, lose as little as
    # possible. Shrinking loses more than a usual JPEG's quality and sampling do.
    quality = 95
    sampling = "444"
    longest_side = max(samples.shape[:2])
    if options.max_size is not None and longest_side > options.max_size:
        samples = shrink(samples, options.max_size)
        quality = 90
        sampling = "420"
    height, width, channels = samples.shape
    packed = replace(packed, width=width, height=height)
    is_tiled = may_be_tiled and _is_tiled(width, height, is_png=is_png)
    if is_png:
        if is_tiled:
            data = cut_into_tiles(samples, encode_png, is_png=True)
        else:
            data = encode_png(samples)
        _refuse_more_bytes(data)
        return replace(packed, data=data, png_of=kind or "JPEG", jpeg_bytes=len(data))

    if channels < 3:
        sampling = "gray"
    jpeg_quality = options.quality or quality
    if is_tiled:
        return _encode_in_jpegs(samples, packed, options, kind, jpeg_quality)
    encoded = encode_jpeg(to_rgb(samples), quality=jpeg_quality, sampling=sampling)
    jpeg, info = _transcode(encoded, segments, options)
    # Our encoder makes no JPEG that a baseline scan cannot hold.
    assert jpeg is not None
    return replace(
        packed, data=jpeg, change=packed.change or kind, jpeg_bytes=info["jpeg_bytes"]
    )


def _encode_in_jpegs(
    samples: NDArray[Any],
    packed: Packed,
    options: EncodeOptions,
    kind: str | None,
    quality: int,
) -> Packed:
    """Encodes samples as the JPEGs of tiles, for a picture that is too long for one."""
    is_gray = samples.shape[2] < 3
    sampling = "gray" if is_gray else "444"

    def encode(tile: NDArray[Any]) -> bytes:
        encoded = encode_jpeg(to_rgb(tile), quality=quality, sampling=sampling)
        return _transcode_tile(options, encoded)

    pixels = samples[:, :, :1] if is_gray else to_rgb(samples)
    data = cut_into_tiles(pixels, encode, is_png=False)
    _refuse_more_bytes(data)
    return replace(
        packed, data=data, change=packed.change or kind, jpeg_bytes=len(data)
    )


def _segments_to_keep(
    header: JpegHeader, packed: Packed, options: EncodeOptions
) -> list[Segment]:
    return select_segments(
        header.segments,
        keep_metadata=options.keep_metadata,
        upright=options.apply_exif and packed.orientation != 1,
        # A CMYK picture is stored as RGB, to which its profile does not apply.
        keep_icc=header.components != 4,
    )


def _transcode(
    data: bytes,
    segments: list[Segment],
    options: EncodeOptions,
    *,
    check_only: bool = False,
) -> tuple[bytes | None, dict[str, int]]:
    """Stores the coefficients of a JPEG again as one baseline scan.

    Loaders can decode parts of such a scan alone.

    Returns:
        The JPEG or KEY.fpc, None with `check_only`; and facts about the source.

    Raises:
        ImageError: the JPEG is damaged, over a limit, or, unless `check_only`, of a kind that a
            baseline scan cannot hold.
    """
    jpeg, info = native(
        _engine.transcode,
        data,
        segments,
        max_pixels=options.max_pixels,
        max_scans=options.max_scans,
        check_only=check_only,
        tile=options.tile,
        coefficients=options.storage == COEFFICIENTS_STORAGE,
    )
    if jpeg is not None:
        _refuse_more_bytes(jpeg)
    return jpeg, info


def _is_shrunk(size: tuple[int, int], options: EncodeOptions) -> bool:
    return options.max_size is not None and max(size) > options.max_size


def _is_tiled(width: int, height: int, *, is_png: bool) -> bool:
    """Whether a picture that is encoded becomes a KEY.tif."""
    if is_png:
        return (
            width * height >= TILED_PNG_PIXELS or max(width, height) > MAX_NARROW_SIDE
        )
    return max(width, height) > MAX_SIDE


def _refuse_long_sides(size: tuple[int, int], *, is_png: bool) -> None:
    limit = MAX_SIDE
    owner = "JPEG's"
    if is_png:
        limit = MAX_NARROW_SIDE
        owner = "a PNG's"
    if max(size) > limit:
        raise ImageError(
            f"{size[0]} x {size[1]} has a side over {owner} {limit:,} pixels; --max-size shrinks it"
        )


def _refuse_wide_index(size: tuple[int, int]) -> None:
    """Raises ImageError if the index of an unpacked source has no room for a size."""
    if max(size) > MAX_NARROW_SIDE:
        raise ImageError(
            f"{size[0]} x {size[1]} has a side over {MAX_NARROW_SIDE:,} pixels, and the source is "
            "not packed; pack it first: fastpipe pack SRC DST"
        )


def _transcode_tile(options: EncodeOptions, tile: bytes) -> bytes:
    """The stored JPEG of a tile; a KEY.tif has no coefficients in another form."""
    jpeg, _ = _transcode(tile, [], replace(options, storage=JPEG_STORAGE))
    # Without `check_only` there is a JPEG, or an error.
    assert jpeg is not None
    return jpeg


def _refuse_more_bytes(data: bytes) -> None:
    if len(data) > MAX_SAMPLE_BYTES:
        raise ImageError(
            f"{len(data):,} bytes to store; the index holds up to {MAX_SAMPLE_BYTES:,}"
        )
