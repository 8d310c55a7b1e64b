"""A form of the stall benchmark -> its photos, real ones or synthetic ones with slow ones among them, and packed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from bench import datasets
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions

_DISTINCT = 40
_USUAL, _LARGE = (500, 375), (6000, 4000)  # pixels
_SLOW_EVERY = 100


@dataclass(frozen=True)
class Form:
    """One comparison.

    Attributes:
        title: what is special about it, in words.
        rate_per_worker: images/s that the training takes, for each worker: about what workers can give on average.
        heavy: whether a heavy Python transform follows the resize.
    """

    title: str
    rate_per_worker: float
    heavy: bool = False


FORMS = {
    "large": Form("synthetic photos of 500 x 375 pixels, 1 % of them of 6000 x 4000", 300),
    "transform": Form(
        "synthetic photos and a heavy transform, 75 times as heavy for 1 % of them", 110, heavy=True
    ),
    "photos": Form("real photos", 500),
}


def make(
    form: str, photos: Path | None, work: Path, samples: int, workers: int
) -> tuple[Path, Path]:
    """The files of a form and the dataset that fastpipe packed of them."""
    folder = work / form
    folder.mkdir(parents=True, exist_ok=True)
    if form == "photos":
        assert photos is not None
        datasets.gather(photos.resolve(), folder, samples)
        files = folder / datasets.PHOTOS
    else:
        files = folder / "files"
        _synthetic(files, samples, large=form == "large")
    pack(files, folder / "packed", PackOptions(workers=workers, overwrite=True))
    datasets.warm(folder)
    return files, folder / "packed"


def _synthetic(files: Path, samples: int, *, large: bool) -> None:
    """Two folders of photos; with `large`, every hundredth is one."""
    usual = [_jpeg(_USUAL, seed) for seed in range(_DISTINCT)]
    slow = functools.cache(
        lambda: _jpeg(_LARGE, _DISTINCT)
    )  # a second's work, for those who need it
    for stale in files.glob("*/*"):
        stale.unlink()
    for number in range(samples):
        folder = files / f"class-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        is_slow = large and number % _SLOW_EVERY == _SLOW_EVERY // 2
        (folder / f"{number:06d}.jpg").write_bytes(slow() if is_slow else usual[number % _DISTINCT])


def _jpeg(size: tuple[int, int], seed: int) -> bytes:
    """A picture with as many bytes a pixel as photos have: shapes, edges and grain."""
    rng = np.random.default_rng(seed)
    width, height = size
    coarse = rng.integers(0, 256, (height // 25 + 2, width // 25 + 2, 3), dtype=np.uint8)
    picture: NDArray[np.uint8] = cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC)
    grain = rng.integers(0, 24, (height, width, 1), dtype=np.uint8)
    _, encoded = cv2.imencode(
        ".jpg", cv2.add(picture, np.repeat(grain, 3, axis=2)), [cv2.IMWRITE_JPEG_QUALITY, 90]
    )
    return encoded.tobytes()
