"""Small datasets that many tests read, drawn and packed once a session: fixtures of conftest.py."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.checkout import PHOTOS
from support.datasets.field_columns import add_fields, values_of
from support.pictures.drawn import FLAT_CLASSES, FLAT_IMAGES, flat_colour, smooth_noise

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions


def _pack(source: Path, options: PackOptions | None = None) -> Path:
    destination = source.parent / "packed"
    pack(source, destination, options or PackOptions(workers=1))
    return destination


@pytest.fixture(scope="session")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """37 pictures of one colour each, 3 classes: a row of a batch tells which sample it is of."""
    source = tmp_path_factory.mktemp("flat") / "source"
    for number in range(FLAT_IMAGES):
        folder = source / FLAT_CLASSES[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        size = (24 + number, 60 - number)
        Image.new("RGB", size, flat_colour(number)).save(
            folder / f"{number:02d}.jpg", quality=95, subsampling=0
        )
    return _pack(source)


@pytest.fixture(scope="session")
def textured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 detailed pictures of many sizes and subsamplings, 2 classes."""
    source = tmp_path_factory.mktemp("textured") / "source"
    for number in range(23):
        folder = source / f"class-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        picture = smooth_noise(40 + 17 * number % 97, 33 + 29 * number % 83, seed=number)
        picture.save(folder / f"{number}.jpg", quality=90, subsampling=number % 3)
    return _pack(source)


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6 pictures of several hundred pixels a side, lying, standing and long."""
    source = tmp_path_factory.mktemp("large") / "source"
    sizes = [(640, 480), (480, 640), (500, 375), (300, 300), (900, 280), (231, 517)]
    for number, (width, height) in enumerate(sizes):
        folder = source / f"class-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        smooth_noise(width, height, seed=number, cell=40).save(folder / f"{number}.jpg", quality=92)
    return _pack(source)


@pytest.fixture(scope="session")
def many_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 pictures of 40 to 60 kB in a dozen shards of at most 100 kB."""
    source = tmp_path_factory.mktemp("many") / "source"
    (source / "only").mkdir(parents=True)
    rng = np.random.default_rng(5)
    for number in range(24):
        pixels = rng.integers(0, 256, (128, 140, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(source / "only" / f"{number}.jpg", quality=95, subsampling=0)
    packed = _pack(source, PackOptions(workers=1, shard_size=100_000))
    assert len(PackedIndex(packed).shards) >= 8
    return packed


@pytest.fixture(scope="session")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 small pictures, of which 100 are there twice, under other names and in another class."""
    root = tmp_path_factory.mktemp("thousand")
    rng = np.random.default_rng(0)
    for number in range(900):
        folder = root / "source" / ("rare" if number % 10 == 0 else "common")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{number}.jpg"
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
        if number < 100:
            other = root / "source" / "again"
            other.mkdir(exist_ok=True)
            shutil.copy(path, other / f"copy-{number}.jpg")
    pack(root / "source", root / "packed", PackOptions(workers=1))
    return root / "packed"


@pytest.fixture(scope="session")
def fielded(flat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flat pictures with a field of each kind that a column holds."""
    copy = Path(shutil.copytree(flat, tmp_path_factory.mktemp("fielded") / "packed"))
    return add_fields(copy, values_of(PackedIndex(copy)))


@pytest.fixture(scope="session")
def values(fielded: Path) -> dict[str, list[Any]]:
    """By field: the value of each sample of `fielded`."""
    return {field.name: made for field, made in values_of(PackedIndex(fielded))}


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path], Path]:
    """Copies a packed dataset, to be damaged."""

    def copy(dataset: Path) -> Path:
        return Path(shutil.copytree(dataset, tmp_path / "copy"))

    return copy


@pytest.fixture(scope="session")
def photos() -> list[Path]:
    """24 real photos, where they lie beside the checkout; mark the test with `photos`."""
    found = sorted(PHOTOS.glob("*/*"))[::12] if PHOTOS.is_dir() else []
    if not found:
        pytest.skip(f"no photos at {PHOTOS}")
    return found


@pytest.fixture(scope="session")
def packed_photos(photos: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The photos, packed."""
    source = tmp_path_factory.mktemp("photos") / "source"
    for photo in photos:
        (source / photo.parent.name).mkdir(parents=True)
        shutil.copy(photo, source / photo.parent.name / photo.name)
    return _pack(source)
