"""Samples, or the bytes of pictures -> uint8 rows, by the loader's crops, decoder and resize.

The draws are named by (seed, epoch, key): Note [draws of single samples] in samples/single.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError, ImageError, SampleError, flag, readable, whole
from fastpipe.format.pixel_form import PixelForm
from fastpipe.format.sample_layout import FPC_MAGIC, PNG_MAGIC
from fastpipe.native import _engine
from fastpipe.plan.crops import Crop
from fastpipe.samples.single import Cropping, Draws
from fastpipe.sources.options import PICTURES
from fastpipe.sources.picture.background import background_color, is_transparent, on_background
from fastpipe.sources.picture.probe import image_format
from fastpipe.wds.transparency import has_alpha, tell_dropped

Handler = Callable[[Exception], bool]
_Value = TypeVar("_Value")
_Result = TypeVar("_Result")
_FILMS = frozenset(["mjpeg", "mjpg"])  # which begin as a JPEG does
_JPEG = b"\xff\xd8\xff"
_DECODED = (_JPEG, FPC_MAGIC, PNG_MAGIC)  # by the engine


class Opened(NamedTuple):
    """A picture whose header has been read: what the engine decodes, or (height, width, 3) uint8."""

    width: int
    height: int
    data: bytes | None = None
    rgb: NDArray[np.uint8] | None = None


class PipelineCropping(Cropping):
    """What crop and batch_crop share: the checked options, the epoch, and how rows are made."""

    def __init__(
        self, size: Any, *, train: bool, crop: Crop | None, max_pixels: int, background: Any = None, **options: Any
    ) -> None:
        super().__init__(crop, size, train=flag("train", train), **options)
        self._background = background_color(background)
        self._max_pixels = whole("max_pixels", max_pixels, least=1, most=65535 * 65535)
        if self.crop.rows > 1:
            raise ConfigError(
                f"crop: fastpipe.wds gives one crop a picture, and {type(self.crop).__name__} has {self.crop.rows}; "
                "use fastpipe.loader, or fastpipe.open(...).cropped(...)"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"

    def images(
        self, samples: Sequence[dict[str, Any]], handler: Handler | None = None, threads: int = 1, planar: bool = False
    ) -> tuple[dict[str, NDArray[np.uint8]], list[int]]:
        """By extension, the rows of samples' pictures, as of `rows`; and the samples that are in them: those with other
        pictures than most, or damaged ones, are left out if the handler says so, or their error is raised.
        """
        pictures = [pictures_of(sample) for sample in samples]
        counted = Counter(tuple(sorted(found)) for found in pictures if found)
        names = counted.most_common(1)[0][0] if counted else ()  # of the pictures that most samples have
        bad = {
            row: _unlike(samples[row], found, names) for row, found in enumerate(pictures) if found.keys() != set(names)
        }
        fitting = [row for row in range(len(samples)) if row not in bad]
        keys = [str(sample.get("__key__", "")).encode(errors="surrogateescape") for sample in samples]
        epoch, numbers = self.named_draws(keys)
        made = {}
        for name in names:
            data = [pictures[row][name] for row in fitting]
            made[name], failed = self.rows(data, Draws(epoch, numbers[fitting]), threads=threads, planar=planar)
            for place, reason in failed.items():
                row = fitting[place]
                bad.setdefault(row, _sample_error(samples[row], reason, name))
        for row in sorted(bad):
            if handler is None or not handler(bad[row]):
                raise bad[row]
        kept = [place for place, row in enumerate(fitting) if row not in bad]
        found = {name: rows if len(kept) == len(rows) else rows[kept] for name, rows in made.items()}
        return found, [fitting[place] for place in kept]

    def named_draws(self, names: Sequence[bytes]) -> Draws:
        """Those of some samples, each named by its key, or by its bytes where the key is not known."""
        hashes = [_engine.xxh3_64(name) if self.knows_epoch else 0 for name in names]
        return self.draws(np.array(hashes, dtype=np.uint64).view(np.int64))

    def rows(
        self, pictures: Sequence[bytes], draws: Draws, *, threads: int = 1, planar: bool = False
    ) -> tuple[NDArray[np.uint8], dict[int, str]]:
        """Decodes, crops and resizes the bytes of n files, by at most so many threads, which end before this returns:
        (n, height, width, 3) uint8, or planar: (n, 3, height, width); and of the rows that could not be made: why.
        """
        shape = (3, *self.size) if planar else (*self.size, 3)
        out = np.empty((len(pictures), *shape), dtype=np.uint8)
        headers = {row: self._header(data) for row, data in enumerate(pictures)}
        failed = self._fill(out, {row: one for row, one in headers.items() if one}, draws, threads, planar)
        others = [row for row, one in headers.items() if one is None or row in failed]
        if others:
            convert = partial(_converted, max_pixels=self._max_pixels, background=self._background)
            found = dict(zip(others, _each(convert, [pictures[row] for row in others], threads), strict=True))
            failed = {row: one for row, one in found.items() if isinstance(one, str)}
            opened = {row: one for row, one in found.items() if isinstance(one, Opened)}
            failed |= self._fill(out, opened, draws, threads, planar)
        return out, failed

    def _header(self, data: bytes) -> Opened | None:
        """As `_plain`; None also where the picture is to be put on the background."""
        if has_alpha(data):
            if self._background is not None:
                return None
            tell_dropped()
        return _plain(data, max_pixels=self._max_pixels)

    def _fill(
        self, out: NDArray[np.uint8], opened: dict[int, Opened], draws: Draws, threads: int, planar: bool
    ) -> dict[int, str]:
        """Fills these rows; returns those whose picture is refused, with the reason."""
        rows = np.array(list(opened), dtype=np.int64)
        if not len(rows):
            return {}
        width, height = (np.array([one[side] for one in opened.values()], dtype=np.int64) for side in (0, 1))
        crops, flips = self.crops_of(width, height, Draws(draws.epoch, draws.numbers[rows]))
        rendering = crops.rendering.keywords(PixelForm())
        tasks = np.zeros(len(rows), dtype=_engine.TASK_DTYPE)
        tasks["box"], tasks["bounds"], tasks["flip"], tasks["out_row"] = crops.boxes, crops.bounds, flips, rows
        tasks["width"], tasks["height"] = width, height
        plain = [one.data for one in opened.values() if one.data is not None]
        ours = np.array([one.data is not None for one in opened.values()])
        tasks["size"][ours] = [len(data) for data in plain]

        def resize(place: int) -> None:
            box, bounds = tuple(crops.boxes[place].tolist()), tuple(crops.bounds[place].tolist())
            pixels = opened[int(rows[place])].rgb
            assert pixels is not None
            row = _engine.resize(pixels, *self.size, box, bounds, bool(flips[place]), **rendering)
            out[rows[place]] = row.transpose(2, 0, 1) if planar else row

        _each(resize, np.flatnonzero(~ours).tolist(), threads)
        refused = _engine.fill_rows(plain, tasks[ours], out, self.exact, threads, planar, **rendering)
        if lacking := [reason for _, reason in refused if reason.code == _engine.Code.out_of_memory]:
            raise MemoryError(lacking[0])
        return {int(rows[ours][number]): reason for number, reason in refused}


def _plain(data: bytes, *, max_pixels: int) -> Opened | None:
    """Reads the header of a JPEG, KEY.fpc or PNG; None if it is none that the engine decodes."""
    if not data.startswith(_DECODED):
        return None
    try:
        return Opened(*_engine.picture_size(data, max_pixels), data)
    except ValueError:
        return None


def _converted(data: bytes, *, max_pixels: int, background: str | None) -> Opened | str:
    """What the engine refuses: JPEGs and PNGs as `pack` stores them (without loss, if progressive); others by Pillow.
    Why not: it is no picture, damaged, or over the limit.
    """
    try:
        if data.startswith(_DECODED):
            from fastpipe.sources.picture.convert import EncodeOptions, convert  # OpenCV and PyTurboJPEG: few need them

            packed = convert(data, EncodeOptions(max_pixels=max_pixels, tile=0, background=background))
            return Opened(packed.width, packed.height, data=packed.data)
        from fastpipe.sources.picture.pillow import open_image, rgb_of

        samples = open_image(data, image_format(data), max_pixels=max_pixels).samples()
        if is_transparent(samples):
            if background is None:
                tell_dropped()
            else:
                samples = on_background(samples, background)
        rgb = rgb_of(samples)
        return Opened(rgb.shape[1], rgb.shape[0], rgb=rgb)
    except ImageError as problem:
        return str(problem)


def _each(function: Callable[[_Value], _Result], values: Sequence[_Value], threads: int) -> list[_Result]:
    """The results for each value, on threads that end before this returns."""
    if threads == 1 or len(values) < 2:
        return [function(value) for value in values]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, values))


def is_picture(extension: str, data: object) -> bool:
    """Whether a member is to be cropped.

    Those are members of a picture's extension (`jpg`, `png`), and JPEGs of any other (`left.jpg`, `bin`). A PNG of
    another extension (`seg.png`) may be a mask, whose ids must not be mixed: it is left alone.
    """
    extension = extension.lower()
    if extension in PICTURES:
        return True
    jpeg = isinstance(data, bytes) and data.startswith(_JPEG)
    return jpeg and extension.rpartition(".")[2] not in _FILMS


def pictures_of(sample: dict[str, Any]) -> dict[str, bytes]:
    """A sample's pictures, by extension.

    Raises:
        ConfigError: one has been decoded already, or it is not certain which one is meant.
    """
    found = {}
    for extension, data in sample.items():
        if extension.startswith("__") or not is_picture(extension, data):
            continue
        if not isinstance(data, bytes):
            raise ConfigError(
                f"fastpipe.wds: expected the bytes of the member {extension!r}, got {type(data).__name__}; crop before "
                "other stages decode or change the picture"
            )
        found[extension] = data
    if len(plain := sorted(found.keys() & PICTURES)) > 1:
        raise ConfigError(
            f"fastpipe.wds: expected one picture in the sample {sample.get('__key__')!r}, got {' and '.join(plain)}. A "
            "resize would mix a mask's ids: rename a mask before, .rename(**{'mask.png': 'png'}), or crop one member "
            "only, .map_dict(jpg=fastpipe.wds.crop(...))"
        )
    return found


def _sample_error(sample: dict[str, Any], reason: str, member: str | None = None, advice: str = "") -> SampleError:
    """Names the sample, or a member of it, its tar, and the reason."""
    key, url = readable(str(sample.get("__key__", ""))), readable(str(sample.get("__url__", "")))
    what = f"the sample {key!r} cannot be cropped"
    if member is not None:
        what = f"the member {member!r} of the sample {key!r} cannot be decoded"
    return SampleError(
        f"{what}: {reason}\n"
        f"  in {url or 'an unknown tar'}\n"
        f"  {advice}to train without such samples, pass handler=webdataset.warn_and_continue to this stage",
        shard=url,
        key=key,
        reason=reason,
    )


def _unlike(sample: dict[str, Any], found: Collection[str], names: Collection[str]) -> SampleError:
    """The error for a sample that cannot be in a batch with the others."""
    has = f"the pictures {sorted(found)}" if found else "no picture"
    reason = f"it has {has}; expected {sorted(names)}, as most samples of its batch have"
    advice = "if the extensions differ, rename them before: .rename(jpg='jpg;jpeg;png;webp'); "
    return _sample_error(sample, reason, advice=advice)
