"""Samples, or the bytes of pictures -> uint8 rows, by the loader's crops, decoder and resize.

The draws are named by (seed, epoch, key): Note [draws of single samples] in dataset/cropping.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fastpipe.arrays import Uint8s
from fastpipe.dataset.cropping import Cropping, Draws
from fastpipe.dataset.format.picture_names import PICTURES
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.dataset.format.sample_layout import FPC_MAGIC, PNG_MAGIC
from fastpipe.errors import ConfigError, ImageError, SampleError, flag, readable, whole
from fastpipe.native import _engine
from fastpipe.plan.crops import Crop
from fastpipe.sources.picture.background import (
    blend_with_background,
    is_transparent,
    parse_background,
)
from fastpipe.sources.picture.probe import image_format
from fastpipe.wds.transparency import is_png_with_alpha, warn_of_dropped_alpha

Handler = Callable[[Exception], bool]
_Value = TypeVar("_Value")
_Result = TypeVar("_Result")
_FILMS = frozenset(["mjpeg", "mjpg"])  # members that begin as a JPEG does, and are none
_JPEG = b"\xff\xd8\xff"
_DECODED_BY_ENGINE = (_JPEG, FPC_MAGIC, PNG_MAGIC)


class Picture(NamedTuple):
    """A picture whose header has been read: its bytes, or its pixels if the engine refuses them."""

    width: int
    height: int
    data: bytes | None = None  # for the engine
    rgb: Uint8s | None = None  # (height, width, 3)


class PipelineCropping(Cropping):
    """The common part of crop and batch_crop: options, the epoch, and the making of rows."""

    _NOT_PUBLIC = frozenset(["images", "named_draws", "rows"])  # the stages use them

    def __init__(
        self,
        size: Any,
        *,
        train: bool,
        crop: Crop | None,
        max_pixels: int,
        background: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(crop, size, train=flag("train", train), **options)
        self._background = parse_background(background)
        self._max_pixels = whole("max_pixels", max_pixels, least=1, most=2**60)
        if self.crop.rows > 1:
            raise ConfigError(
                f"crop: fastpipe.wds gives one crop of each image, and {type(self.crop).__name__} has "
                f"{self.crop.rows}; use fastpipe.loader, or fastpipe.open(...).cropped(...)"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"

    def images(
        self,
        samples: Sequence[dict[str, Any]],
        handler: Handler | None = None,
        threads: int = 1,
        planar: bool = False,
    ) -> tuple[dict[str, Uint8s], list[int]]:
        """Crops the pictures of samples.

        Samples whose picture extensions differ from those of most, and samples with a damaged
        picture, are left out if the handler returns True for them.

        Args:
            samples: as webdataset has them.
            handler: gets the error of a sample; None: it is raised.
            threads, planar: as of `rows`.

        Returns:
            By extension, the rows of the pictures, as `rows` returns them; and the numbers of the
            samples that are in them.

        Raises:
            SampleError: a sample is bad, and the handler does not leave it out.
            ConfigError: it is not certain which picture is meant. The handler does not get this.
        """
        pictures = [pictures_of(sample) for sample in samples]
        names = _most_common_names(pictures)
        errors: dict[int, SampleError] = {}  # by number of the sample
        good: list[int] = []  # numbers of samples that have the pictures that most have
        for number, sample in enumerate(samples):
            actual_names = pictures[number].keys()
            if actual_names == set(names):
                good.append(number)
            else:
                errors[number] = _other_pictures_error(sample, actual_names, names)

        # All pictures of a sample have the same random draws, and so the same crop and flip if they
        # have one size. Samples that are left out take part in the draws, so that those of the
        # others do not depend on them.
        keys = []
        for sample in samples:
            key = str(sample.get("__key__", ""))
            keys.append(key.encode(errors="surrogateescape"))
        epoch, draw_numbers = self.named_draws(keys)
        draws = Draws(epoch, draw_numbers[good])
        rows_by_name: dict[str, Uint8s] = {}
        for name in names:
            data = [pictures[number][name] for number in good]
            rows, reasons = self.rows(data, draws, threads=threads, planar=planar)
            rows_by_name[name] = rows
            for row, reason in reasons.items():
                number = good[row]
                error = _sample_error(samples[number], reason, name)
                errors.setdefault(number, error)

        # webdataset's handlers return True to go on, or raise.
        for number in sorted(errors):
            if handler is None or not handler(errors[number]):
                raise errors[number]
        kept = [number for number in good if number not in errors]
        if len(kept) < len(good):
            is_kept = np.isin(good, kept)
            for name in names:
                rows = rows_by_name[name]
                rows_by_name[name] = rows[is_kept]
        return rows_by_name, kept

    def named_draws(self, names: Sequence[bytes]) -> Draws:
        """The draws of samples, each named by its key; or by its bytes, if it has no key here."""
        hashes = np.zeros(len(names), dtype=np.uint64)
        # Before set_epoch torch's generator draws, so the names are of no use.
        if self.knows_epoch:
            hashes[:] = list(map(_engine.xxh3_64, names))
        return self.name_draws(hashes.view(np.int64))

    def rows(
        self,
        pictures: Sequence[bytes],
        draws: Draws,
        *,
        threads: int = 1,
        planar: bool = False,
    ) -> tuple[Uint8s, dict[int, str]]:
        """Decodes, crops and resizes pictures.

        Args:
            pictures: the bytes of n files.
            draws: (n,) their draws.
            threads: at most so many decode; they end before this returns.
            planar: the layout of the rows.

        Returns:
            (n, height, width, 3) uint8, or planar (n, 3, height, width); and by row, why it could
            not be made.
        """
        # Nearly all pictures of a pipeline are baseline JPEGs and PNGs, which the engine decodes
        # from memory as they are.
        if planar:
            shape = (3, *self.size)
        else:
            shape = (*self.size, 3)
        out = np.empty((len(pictures), *shape), dtype=np.uint8)
        opened: dict[int, Picture] = {}  # by row
        for row, data in enumerate(pictures):
            picture = self._read_header(data)
            if picture is not None:
                opened[row] = picture
        failed = self._fill_rows(out, opened, draws, threads, planar)

        # Convert those that the engine does not decode, or refuses, and try again.
        rest: list[int] = []
        for row in range(len(pictures)):
            if row not in opened or row in failed:
                rest.append(row)
        if not rest:
            return out, {}
        convert = partial(
            _convert, max_pixels=self._max_pixels, background=self._background
        )
        pictures_of_rest = [pictures[row] for row in rest]
        results = _map_in_threads(convert, pictures_of_rest, threads)
        converted: dict[int, Picture] = {}
        failed = {}
        for row, result in zip(rest, results, strict=True):
            if isinstance(result, str):
                failed[row] = result
            else:
                converted[row] = result
        failed |= self._fill_rows(out, converted, draws, threads, planar)
        return out, failed

    def _read_header(self, data: bytes) -> Picture | None:
        """As the function `_read_header`; None also if the picture gets a background."""
        if is_png_with_alpha(data):
            if self._background is not None:
                return None
            warn_of_dropped_alpha()
        return _read_header(data, max_pixels=self._max_pixels)

    def _fill_rows(
        self,
        out: Uint8s,
        pictures: dict[int, Picture],
        draws: Draws,
        threads: int,
        planar: bool,
    ) -> dict[int, str]:
        """Fills the rows of `out` that `pictures` has a picture for.

        Args:
            out: (n, height, width, 3) uint8, or planar (n, 3, height, width).
            pictures: by row.
            draws: (n,) of all rows.
            threads: at most so many decode.
            planar: the layout of `out`.

        Returns:
            By row, why its picture is refused.
        """
        if not pictures:
            return {}
        rows = np.array(list(pictures), dtype=np.int64)
        # (rows, 2) width and height
        sizes = np.empty((len(rows), 2), dtype=np.int64)
        is_for_engine = np.zeros(len(rows), dtype=np.bool_)
        data: list[bytes] = []
        for position, picture in enumerate(pictures.values()):
            sizes[position] = (picture.width, picture.height)
            if picture.data is not None:
                is_for_engine[position] = True
                data.append(picture.data)
        widths = sizes[:, 0]
        heights = sizes[:, 1]

        # The engine's tasks: a record for each row, with its crop and the size of its bytes.
        draws_of_rows = Draws(draws.epoch, draws.numbers[rows])
        crops, flips = self.plan_rows(widths, heights, draws_of_rows)
        rendering = crops.rendering.keywords(PixelForm())
        tasks = np.zeros(len(rows), dtype=_engine.TASK_DTYPE)
        tasks["box"] = crops.boxes
        tasks["bounds"] = crops.bounds
        tasks["flip"] = flips
        tasks["out_row"] = rows
        tasks["width"] = widths
        tasks["height"] = heights
        tasks["size"][is_for_engine] = list(map(len, data))

        # Pixels that Pillow has decoded need no decoder, only the engine's resize.
        def resize_decoded(position: int) -> None:
            row = int(rows[position])
            rgb = pictures[row].rgb
            assert rgb is not None
            box = tuple(crops.boxes[position].tolist())
            bounds = tuple(crops.bounds[position].tolist())
            flip = bool(flips[position])
            resized = _engine.resize(rgb, *self.size, box, bounds, flip, **rendering)
            if planar:
                resized = resized.transpose(2, 0, 1)
            out[row] = resized

        decoded_positions = np.flatnonzero(~is_for_engine).tolist()
        _map_in_threads(resize_decoded, decoded_positions, threads)

        # The rest is decoded from its bytes. The engine numbers what it refuses among its tasks.
        refused = _engine.fill_rows(
            data, tasks[is_for_engine], out, self.exact, threads, planar, **rendering
        )
        engine_rows = rows[is_for_engine]
        reasons: dict[int, str] = {}
        for task_number, reason in refused:  # a Reason is a text with the engine's code
            # A lack of memory is no fault of the sample, which must not be left out for it.
            if reason.code == _engine.Code.out_of_memory:
                raise MemoryError(reason)
            reasons[int(engine_rows[task_number])] = reason
        return reasons


def _read_header(data: bytes, *, max_pixels: int) -> Picture | None:
    """Reads the header of a JPEG, KEY.fpc or PNG. None: the engine does not decode it."""
    if not data.startswith(_DECODED_BY_ENGINE):
        return None
    try:
        width, height = _engine.picture_size(data, max_pixels)
    except ValueError:
        return None
    return Picture(width, height, data)


def _convert(data: bytes, *, max_pixels: int, background: str | None) -> Picture | str:
    """A picture that the engine refuses; or why it cannot be converted.

    JPEGs and PNGs become as `pack` stores them (without loss, if progressive). Others are decoded
    by Pillow.
    """
    try:
        if data.startswith(_DECODED_BY_ENGINE):
            return _convert_for_engine(data, max_pixels, background)
        return _decode_by_pillow(data, max_pixels, background)
    except ImageError as problem:
        return str(problem)


def _convert_for_engine(
    data: bytes, max_pixels: int, background: str | None
) -> Picture:
    # It imports OpenCV and PyTurboJPEG, which few pipelines need.
    from fastpipe.sources.picture.convert import EncodeOptions, convert

    options = EncodeOptions(max_pixels=max_pixels, tile=0, background=background)
    packed = convert(data, options)
    return Picture(packed.width, packed.height, data=packed.data)


def _decode_by_pillow(data: bytes, max_pixels: int, background: str | None) -> Picture:
    from fastpipe.sources.picture.open_image import open_image
    from fastpipe.sources.picture.pillow import to_rgb

    image = open_image(data, image_format(data), max_pixels=max_pixels)
    samples = image.samples()
    if is_transparent(samples):
        if background is None:
            warn_of_dropped_alpha()
        else:
            samples = blend_with_background(samples, background)
    rgb = to_rgb(samples)
    height, width, _ = rgb.shape
    return Picture(width, height, rgb=rgb)


def _map_in_threads(
    function: Callable[[_Value], _Result], values: Sequence[_Value], threads: int
) -> list[_Result]:
    """The results for each value, by threads that end before this returns."""
    if threads == 1 or len(values) < 2:
        return list(map(function, values))
    # Threads that stayed would be lost in a forked worker.
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, values))


def is_picture(extension: str, data: object) -> bool:
    """Whether a member is to be cropped.

    Those are members of a picture's extension (`jpg`, `png`), and JPEGs of any other (`left.jpg`,
    `bin`). A PNG of another extension (`seg.png`) may be a mask, whose ids must not be mixed: it is
    left alone.
    """
    extension = extension.lower()
    if extension in PICTURES:
        return True
    is_jpeg = isinstance(data, bytes) and data.startswith(_JPEG)
    return is_jpeg and extension.rpartition(".")[2] not in _FILMS


def pictures_of(sample: dict[str, Any]) -> dict[str, bytes]:
    """A sample's pictures, by extension.

    Raises:
        ConfigError: one has been decoded already, or it is not certain which one is meant.
    """
    pictures = {}
    for extension, data in sample.items():
        if extension.startswith("__") or not is_picture(extension, data):
            continue
        if not isinstance(data, bytes):
            raise ConfigError(
                f"fastpipe.wds: expected the bytes of the member {extension!r}, got "
                f"{type(data).__name__}; crop before other stages decode or change the image"
            )
        pictures[extension] = data
    plain_names = sorted(pictures.keys() & PICTURES)
    if len(plain_names) > 1:
        raise ConfigError(
            f"fastpipe.wds: expected one image in the sample {sample.get('__key__')!r}, got "
            f"{' and '.join(plain_names)}. A resize would mix a mask's ids: rename a mask before, "
            ".rename(**{'mask.png': 'png'}), or crop one member only, "
            ".map_dict(jpg=fastpipe.wds.crop(...))"
        )
    return pictures


def _most_common_names(pictures: Sequence[Mapping[str, bytes]]) -> tuple[str, ...]:
    """The extensions of pictures that most samples have; none if no sample has a picture."""
    counts: Counter[tuple[str, ...]] = Counter()
    # Samples without pictures do not count: a batch may have some, and needs a picture's name.
    for sample_pictures in pictures:
        if sample_pictures:
            counts[tuple(sorted(sample_pictures))] += 1
    if not counts:
        return ()
    [(names, _)] = counts.most_common(1)
    return names


def _sample_error(
    sample: dict[str, Any], reason: str, member: str | None = None, advice: str = ""
) -> SampleError:
    """Names the sample, or a member of it, its tar, and the reason."""
    key = readable(sample.get("__key__", ""))
    url = readable(sample.get("__url__", ""))
    problem = f"the sample {key!r} cannot be cropped"
    if member is not None:
        problem = f"the member {member!r} of the sample {key!r} cannot be decoded"
    return SampleError(
        f"{problem}: {reason}\n"
        f"  in {url or 'an unknown tar'}\n"
        f"  {advice}to train without such samples, pass handler=webdataset.warn_and_continue to "
        "this stage",
        shard=url,
        key=key,
        reason=reason,
    )


def _other_pictures_error(
    sample: dict[str, Any], pictures: Collection[str], names: Collection[str]
) -> SampleError:
    """The error for a sample that cannot be in a batch with the others."""
    if pictures:
        actual = f"the images {sorted(pictures)}"
    else:
        actual = "no image"
    reason = (
        f"it has {actual}; expected {sorted(names)}, as most samples of its batch have"
    )
    advice = "if the extensions differ, rename them before: .rename(jpg='jpg;jpeg;png;webp'); "
    return _sample_error(sample, reason, advice=advice)
