"""Datasets of every kind, pickled and copied: small, the same in another process, and opened when they are read."""

from __future__ import annotations

import copy
import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.pictures.drawn import FLAT_IMAGES
from support.sources.unpacked_sources import web_tars

import fastpipe
from fastpipe.errors import DatasetError

NUMBERS = np.arange(FLAT_IMAGES)
Make = Callable[[fastpipe.Dataset, fastpipe.Dataset, Path], fastpipe.Dataset]


class Brightness:
    """A transform whose name is the same in all processes."""

    def __call__(self, image: torch.Tensor) -> float:
        return float(image.float().mean())

    def __repr__(self) -> str:
        return "Brightness()"


def file_of(folder: Path, values: Any) -> Path:
    np.save(folder / "values.npy", values)
    return folder / "values.npy"


# (data, another dataset, a folder) -> a dataset.
KINDS: dict[str, Make] = {
    "open": lambda data, other, folder: data,
    "select": lambda data, other, folder: data.select([30, 2, 7]),
    "select twice": lambda data, other, folder: data.select(lambda c: c["width"] > 30).select([3, 1, 2]),
    "only": lambda data, other, folder: data.only(["cow", "ant"]),
    "only, labels kept": lambda data, other, folder: data.only(["cow"], keep_labels=True),
    "take": lambda data, other, folder: data.take(0.5),
    "fold": lambda data, other, folder: data.fold(1, of=3)[0],
    "column": lambda data, other, folder: data.with_column("score", NUMBERS / 7),
    "column of texts": lambda data, other, folder: data.with_column("note", [f"ü {each}" for each in NUMBERS]),
    "column of a file": lambda data, other, folder: data.with_column("score", file_of(folder, NUMBERS / 7)).take(0.7),
    "labels": lambda data, other, folder: data.with_labels(NUMBERS % 2),
    "labels by name": lambda data, other, folder: data.with_labels([f"c{each % 4}" for each in NUMBERS]).only(
        ["c3", "c0"]
    ),
    "labels of a file": lambda data, other, folder: data.with_labels(file_of(folder, NUMBERS % 3)),
    "concat": lambda data, other, folder: fastpipe.concat(data, other),
    "concat of all that": lambda data, other, folder: fastpipe.concat(
        data.with_labels(NUMBERS % 2).with_column("score", NUMBERS).select([5, 3]),
        other.with_column("score", np.zeros(len(other))).only(other.classes[:1]),
        labels="offset",
    ),
    "mix": lambda data, other, folder: fastpipe.mix({data.take(0.5): 0.7, other: 0.3}, labels="own"),
    "transform": lambda data, other, folder: data.with_transform(Brightness()),
    "cropped": lambda data, other, folder: data.cropped(fastpipe.Resize(), size=24, hflip=1.0),
    "fields": lambda data, other, folder: data.with_fields({"at": "boxes", "text": "caption", "pixels": "image"}),
    "all": lambda data, other, folder: (
        data.with_column("score", NUMBERS)
        .with_fields(["image", "score", "boxes"])
        .cropped(fastpipe.CenterCrop(resize=30), size=24)
        .with_transform(len)
        .select([6, 2])
    ),
    "not packed": lambda data, other, folder: fastpipe.open(web_tars(folder / "tars")).take(0.5),
}


def plain(sample: Any) -> Any:
    """Without the kinds of torchvision, which a program may lack."""
    if not isinstance(sample, dict):
        return sample
    tensors = {name: each for name, each in sample.items() if isinstance(each, torch.Tensor)}
    return {**sample, **{name: each.as_subclass(torch.Tensor) for name, each in tensors.items()}}


def told(data: fastpipe.Dataset) -> dict[str, Any]:
    """All that a dataset tells of itself, and its samples."""
    names = [name for name in data.columns if name not in ("boxes", "plain", "joints", "tags")]
    return {
        "repr": repr(data),
        "classes": (data.classes, data.class_counts, data.targets.tolist()),
        "columns": {name: data[name].tolist() for name in names},
        "samples": [repr(plain(data[number])) for number in (0, len(data) // 2, -1)],
        "content": (data.content.starts.tolist(), data.content.weights, data.content.identity),
    }


@pytest.fixture(params=KINDS)
def data(request: pytest.FixtureRequest, fielded: Path, many_shards: Path, tmp_path: Path) -> fastpipe.Dataset:
    return KINDS[request.param](fastpipe.open(fielded), fastpipe.open(many_shards), tmp_path)


def test_a_copy_is_the_same(data: fastpipe.Dataset) -> None:
    expected = told(data)
    for again in (pickle.loads(pickle.dumps(data)), copy.copy(data), copy.deepcopy(data)):  # noqa: S301 (our own)
        assert told(again) == expected
    assert told(data) == expected


def test_a_pickle_is_small_however_much_was_read(data: fastpipe.Dataset) -> None:
    fresh = len(pickle.dumps(data))
    told(data)
    assert len(pickle.dumps(data)) == fresh
    assert fresh < 3500 + 8 * 4 * len(data)


def test_batches_are_the_same(data: fastpipe.Dataset) -> None:
    again: fastpipe.Dataset = pickle.loads(pickle.dumps(data))  # noqa: S301 (our own)
    options: dict[str, Any] = {"size": 16, "num_workers": 1, "seed": 3, "drop_last": False}
    with fastpipe.loader(data, 2, **options) as one, fastpipe.loader(again, 2, **options) as other:
        for first, second in zip(one, other, strict=True):
            assert torch.equal(first.images, second.images)
            assert first.labels.tolist() == second.labels.tolist()
            assert first.ids.tolist() == second.ids.tolist()
        state = one.state_dict()
        other.load_state_dict(state)


def test_in_a_process_that_inherits_nothing(fielded: Path, many_shards: Path, tmp_path: Path) -> None:
    """All kinds in one process, as DataLoader's workers get them where they are spawned."""
    kinds = {}
    for number, (name, make) in enumerate(KINDS.items()):
        (tmp_path / str(number)).mkdir()
        kinds[name] = make(fastpipe.open(fielded), fastpipe.open(many_shards), tmp_path / str(number))
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        there = dict(zip(kinds, pool.map(told, kinds.values()), strict=True))
    for name, data in kinds.items():
        assert there[name] == told(data), name


def test_nothing_is_opened_before_it_is_read(fielded: Path, many_shards: Path, tmp_path: Path) -> None:
    """A worker that never reads a dataset pays for none; and what is gone then is named at the first read."""
    gone = Path(shutil.copytree(fielded, tmp_path / "gone"))
    data = fastpipe.open(gone)
    made = [make(data, fastpipe.open(many_shards), tmp_path) for name, make in KINDS.items() if name != "not packed"]
    pickled = pickle.dumps(made)
    shutil.rmtree(gone)
    for again in pickle.loads(pickled):  # noqa: S301 (our own)
        assert not {"index", "content"} & set(vars(again))
        for read in (lambda each=again: each[0], lambda each=again: each["label"][0], lambda each=again: len(each)):
            with pytest.raises(DatasetError, match=f"{gone} does not exist"):
                read()
