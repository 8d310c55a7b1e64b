"""Tests that take, fold and keys mean the same pictures, however and wherever these are stored."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.remote.range_server import RangeServer

import fastpipe
from fastpipe.errors import DatasetError
from fastpipe.sources.scan import reading

PHOTOS = 60
FORMS: dict[str, dict[str, Any]] = {
    "jpeg": {},
    "coefficients": {"storage": "coefficients"},
    "otherwise": {"tile": 0, "max_size": 20, "seed": 3, "shard_size": 100_000},
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose photos have a class each, and all forms that a program might read them in, beside it."""
    from PIL import Image

    root = tmp_path_factory.mktemp("forms")
    rng = np.random.default_rng(0)
    for number in range(PHOTOS):
        folder = root / "folder" / f"c{number:02d}"
        folder.mkdir(parents=True)
        pixels = Image.fromarray(rng.integers(0, 256, (30, 34, 3), dtype=np.uint8))
        pixels.save(
            folder / ("a.png" if number % 5 == 0 else "a.jpg"),
            **({} if number % 5 == 0 else {"quality": 95}),
        )
    with tarfile.open(root / "folder.tar", "w") as tar:
        tar.add(root / "folder", "folder")
    for name, options in FORMS.items():
        fastpipe.pack(root / "folder", root / name, **options)
    fastpipe.pack(root / "folder.tar", root / "of-tar")
    fastpipe.pack(root / "otherwise", root / "again")  # what is packed already
    shutil.copytree(
        root / "coefficients", root / "shards", ignore=shutil.ignore_patterns("*.json", "*.npy")
    )
    return root / "folder"


def read(data: Any, **options: Any) -> set[str]:
    """The names of the classes, and so of the photos, of an epoch."""
    with fastpipe.loader(data, 1, size=8, train=False, num_workers=1, **options) as loader:
        return {loader.dataset.classes[int(labels)] for _, labels in loader}


def fold(data: fastpipe.Dataset) -> fastpipe.Dataset:
    return data.fold(1, of=3)[1]


def take(data: fastpipe.Dataset) -> fastpipe.Dataset:
    return data.take(0.4)


@pytest.mark.parametrize("part", [fold, take])
def test_a_photo_is_in_the_same_part_in_every_form(
    photos: Path, part: Callable[[fastpipe.Dataset], fastpipe.Dataset]
) -> None:
    expected = read(part(fastpipe.open(photos)))
    assert 10 < len(expected) < 40
    for form in (*FORMS, "of-tar", "again", "folder.tar", "shards"):
        assert read(part(fastpipe.open(photos.parent / form))) == expected, form
    assert read(part(fastpipe.open(str(photos.parent / "shards" / "*.tar")))) == expected
    with RangeServer(photos.parent / "coefficients") as served:
        assert read(part(fastpipe.open(served.url, cache_dir=photos.parent / "cache"))) == expected
    both = photos.parent / "coefficients", photos
    assert read(part(fastpipe.mix(dict.fromkeys(both, 1))), epoch_size="largest") == expected
    assert read(part(fastpipe.concat(*both))) == expected


def test_an_unpacked_source_is_read_once_for_its_folds(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(shutil.copytree(photos, photos.parent / "changing"))
    first = read(fold(fastpipe.open(source)))

    def refuse(_scan: object, numbers: np.ndarray, _read_chunk: object) -> None:
        raise DatasetError(f"reads {len(numbers)}")

    monkeypatch.setattr(reading, "read_files", refuse)
    assert read(fold(fastpipe.open(source))) == first
    shutil.copy(source / "c01" / "a.jpg", source / "c02" / "a.jpg")
    with pytest.raises(DatasetError, match=r"reads 1$"):
        read(fold(fastpipe.open(source)))
    monkeypatch.undo()
    changed = read(fold(fastpipe.open(source)))
    assert ("c01" in changed) == ("c02" in changed), "the same file is in the same part"


def test_a_state_of_one_storage_loads_into_the_other(photos: Path) -> None:
    def begun(form: str) -> fastpipe.Loader:
        return fastpipe.loader(
            fastpipe.open(photos.parent / form).fold(0, of=3)[0], 4, size=8, num_workers=1, seed=2
        )

    with begun("jpeg") as one, begun("coefficients") as other, begun("otherwise") as third:
        batches = iter(one)
        for _ in range(3):
            next(batches)
        state = one.state_dict()
        other.load_state_dict(state)
        assert [batch.ids.tolist() for batch in other] == [batch.ids.tolist() for batch in batches]
        with pytest.raises(fastpipe.ConfigError, match="was saved with another dataset"):
            third.load_state_dict(state)


def keys_of(data: Path) -> list[str]:
    """The keys of a dataset's samples, by their numbers."""
    with fastpipe.loader(
        data, 16, size=8, train=False, num_workers=1, fields=("image", "key")
    ) as loader:
        return [key for batch in loader for key in batch["key"]]


def test_keys_name_the_same_samples_after_another_packing(photos: Path) -> None:
    """Numbers do not: those of one packing are other photos in the next one."""
    packed, anew = photos.parent / "jpeg", photos.parent / "otherwise"
    keys = keys_of(packed)
    assert keys != keys_of(anew)
    hard = {key: float(key < "c20") * 3 for key in keys}
    some = [keys[number] for number in (41, 3, 7)]
    for data in (packed, anew, photos):
        assert read(
            data, sampler=fastpipe.Weighted({key: 0.0 for key in keys if key not in some})
        ) == {key[:3] for key in some}
        with fastpipe.loader(
            fastpipe.open(data).select(some), 1, size=8, train=False, fields=("image", "key")
        ) as loader:
            assert [batch["key"][0] for batch in loader] == some
        by_number = [hard[key] for key in keys_of(data)]
        with (
            fastpipe.loader(data, 4, size=8, sampler=fastpipe.Weighted(hard)) as one,
            fastpipe.loader(data, 4, size=8, sampler=fastpipe.Weighted(by_number)) as other,
        ):
            assert one.state_dict() == other.state_dict()


def test_a_key_that_is_not_one_sample_is_an_error(photos: Path, tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "twice") as writer:
        for number, key in ((1, "a"), (3, "b")):
            writer.add(photos / f"c0{number}" / "a.jpg", label=0, key=key)
    one = fastpipe.open(tmp_path / "twice")
    twice = one + one.select(["a"])
    expected = "has 2 samples with the source path 'a'; expected one"
    with pytest.raises(fastpipe.ConfigError, match=f"^Weighted: .* {expected}"):
        fastpipe.loader(twice, 1, sampler=fastpipe.Weighted({"b": 1, "a": 2}))
    with pytest.raises(fastpipe.ConfigError, match=f"^select: .* {expected}"):
        twice.select(["b", "a"])
    with pytest.raises(fastpipe.ConfigError, match="expected each number once"):
        twice.select(["b", "b"])
