"""All options that say what an epoch holds, together: resumed at each batch, in worlds of 8, 4, 2 and 1."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.pictures.drawn import smooth_noise

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.plan.buckets import Grouping

COUNT = 60
CLASSES = ["ant", "bee", "cow", "dog"]
Row = tuple[Any, ...]


def write(folder: Path, count: int, *, seed: int) -> Path:
    """Pictures of several shapes with boxes, captions and masks."""
    rng = np.random.default_rng(seed)
    fields = {"boxes": "boxes", "caption": "text", "mask": "mask"}
    with fastpipe.Writer(folder, fields=fields, classes=CLASSES) as writer:
        for number in range(count):
            width, height = rng.integers(30, 70, 2).tolist()
            writer.add(
                smooth_noise(width, height, seed=seed + number),
                label=number % 4,
                boxes={"boxes": [(3, 4, width - 5, height - 6)], "labels": [number % 3]},
                caption=f"picture {number}",
                mask=rng.integers(0, 5, (height, width), dtype=np.uint8),
            )
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("all") / "first", COUNT, seed=0)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("all") / "second", COUNT // 2, seed=1000)


FIELDS = ("image", "label", "boxes", "caption", "mask", "source", "id", "valid")
Open = Callable[[Path, Path], fastpipe.Dataset]


def parts(data: fastpipe.Dataset) -> fastpipe.Dataset:
    return data.only(["dog", "ant", "cow"]).take(0.95).fold(2, of=5)[0]


def chosen(first: Path, second: Path) -> fastpipe.Dataset:
    return parts(fastpipe.open(first).select(np.arange(COUNT) != 7))


def joined(first: Path, second: Path) -> fastpipe.Dataset:
    return parts(fastpipe.concat(first, fastpipe.open(second).only(["dog", "cow"])))


def mixed(first: Path, second: Path) -> fastpipe.Dataset:
    return fastpipe.mix({parts(fastpipe.open(first)): 0.6, parts(fastpipe.open(second)): 0.4})


def chosen_of_a_mixture(first: Path, second: Path) -> fastpipe.Dataset:
    return parts(fastpipe.mix({first: 0.6, second: 0.4}).select(np.arange(COUNT + COUNT // 2) != 7))


def listed(epoch: int) -> NDArray[np.int64]:
    return np.random.default_rng(epoch).integers(0, 30, 25 + epoch)


WEIGHTED = fastpipe.Weighted({"cow": 2.5})
TWICE = fastpipe.Repeated(2)
GROUPED = fastpipe.Buckets(area=300, size_divisible=4)
VIEW, VIEW_OF_8 = fastpipe.View(hflip=1.0), fastpipe.View(8, crop=fastpipe.Resize())
CASES: dict[str, tuple[Open, dict[str, Any]]] = {
    "sizes by batch": (
        chosen,
        {"sampler": fastpipe.Repeated(2, WEIGHTED), "epoch_size": 27, "size_choices": [12, (20, 16)]},
    ),
    "sizes by epoch": (chosen, {"sampler": TWICE, "epoch_size": 21, "size": lambda epoch: 12 + 4 * epoch}),
    "crop, no replacement": (
        lambda first, _: parts(fastpipe.open(first).select(range(2, COUNT))).with_column("score", np.arange(34) / 7),
        {
            "sampler": fastpipe.Weighted(np.arange(34) + 1.0, replacement=False),
            "epoch_size": 21,
            "fields": (*FIELDS, "score"),
            "size_choices": [12, 16],
            "crop": fastpipe.RandomCrop(padding=4, pad_if_needed=True, fill=9, mask_fill=255),
        },
    ),
    "buckets": (chosen, {"sampler": fastpipe.Repeated(2, WEIGHTED), "epoch_size": 27, "size": GROUPED}),
    "views": (
        chosen,
        {
            "sampler": WEIGHTED,
            "views": [fastpipe.View(12, count=2), fastpipe.View(8)],
            "channels": "rgba",
            "dtype": torch.uint16,
        },
    ),
    "views of buckets": (chosen, {"sampler": WEIGHTED, "epoch_size": 27, "views": 2, "size": GROUPED}),
    "views, some of one size": (chosen, {"sampler": TWICE, "views": [VIEW, VIEW_OF_8], "size_choices": [12, (20, 16)]}),
    "several crops": (chosen, {"sampler": TWICE, "train": False, "size": 12, "crop": fastpipe.FiveCrop()}),
    "concat": (joined, {"sampler": TWICE, "epoch_size": 27, "size_choices": [12, 16]}),
    "mixture": (mixed, {"sampler": TWICE, "epoch_size": 27, "size_choices": [12, 16]}),
    "mixture, chosen of": (chosen_of_a_mixture, {"sampler": WEIGHTED, "epoch_size": 27, "size": 12}),
    "mixture, buckets": (mixed, {"sampler": WEIGHTED, "epoch_size": 27, "size": GROUPED}),
    "mixture, views": (chosen_of_a_mixture, {"epoch_size": 27, "views": [fastpipe.View(12), fastpipe.View(8)]}),
    "mixture, augmented": (
        lambda first, second: fastpipe.mix(
            {fastpipe.open(first).take(0.9): 0.6, fastpipe.open(second).take(0.9): 0.4}, labels="own"
        ),
        {
            "epoch_size": "smallest",
            "size": lambda epoch: 12 + 4 * epoch,
            "augment": fastpipe.Augment.simclr(),
            "channels": "gray",
            "fields": ("image", "label", "caption", "source", "id", "valid"),
        },
    ),
}
LISTED: dict[str, tuple[Open, dict[str, Any]]] = {
    "function": (joined, {"sampler": listed, "size_choices": [12, 16]}),
    "function, buckets": (chosen, {"sampler": fastpipe.Repeated(2, listed), "size": GROUPED}),
    "per class": (joined, {"sampler": fastpipe.PerClass(4), "views": 2, "size": 12}),
}


def opened(data: fastpipe.Dataset, batch_size: int, **options: Any) -> fastpipe.Loader:
    more = {} if data.content.mixed else {"drop_last": False}
    return fastpipe.loader(data, batch_size, **{"num_workers": 1, "seed": 11, "fields": FIELDS, **more, **options})


def as_bytes(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(as_bytes, value))
    return value.contiguous().numpy().tobytes() if isinstance(value, torch.Tensor) else value


def rows_of(batch: dict[str, Any]) -> list[Row]:
    """Of each row that counts its number and all values; the boxes' labels are one behind the boxes."""
    if isinstance(batch["image"], list):  # by view
        of_views = [key for key in batch if key in ("image", "boxes", "boxes_labels", "mask")]
        batch = {**batch, **{key: [*zip(*batch[key], strict=True)] for key in of_views}}
    parts = [[as_bytes(row) for row in values] for key, values in batch.items() if key != "valid"]
    rows = zip(batch["id"].tolist(), *parts, strict=True)
    return [row for row, good in zip(rows, batch["valid"].tolist(), strict=True) if good]


@pytest.mark.parametrize(
    ("partition", "name"),
    [
        *(("sample", name) for name in (*CASES, *LISTED)),
        *((4, name) for name in CASES if "augmented" not in name),
    ],
)
def test_every_batch_can_be_resumed_on_any_number_of_ranks(
    first: Path,
    second: Path,
    monkeypatch: pytest.MonkeyPatch,
    partition: str | int,
    name: str,
) -> None:
    """Each rank goes on at the state that another rank of another world has left."""
    open_data, options = {**CASES, **LISTED}[name]
    data, options = open_data(first, second), {**options, "partition": partition}
    monkeypatch.setattr(Grouping, "batches_of", staticmethod(lambda *_: 2))  # of an epoch's three or four
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    with opened(data, 8, rank=0, world_size=1, **options) as loader:
        expected = [sorted(rows_of(batch)) for _ in range(2) for batch in loader]
        assert len(expected) >= 6
        assert all(expected)
    state: Any = None
    for step, wanted in enumerate(expected):
        world_size = (8, 4, 2, 1)[step % 4]
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(max(1, world_size // 4)) if partition == 4 else "8")
        got: list[Row] = []
        states = []
        for rank in range(world_size):
            with opened(data, 8 // world_size, rank=rank, world_size=world_size, **options) as loader:
                if state is not None:
                    loader.load_state_dict(json.loads(json.dumps(state)))
                if not loader.remaining:
                    assert list(loader) == []
                got += rows_of(next(iter(loader)))
                states.append(loader.state_dict())
        assert sorted(got) == wanted, f"global batch {step} on {world_size} ranks"
        assert all(each == states[0] for each in states)
        state = states[step % world_size]


@pytest.mark.parametrize(
    ("open_data", "options", "words"),
    [
        (
            mixed,
            {"sampler": fastpipe.Weighted({"cow": 2}, replacement=False), "epoch_size": 8},
            r"fastpipe.mix\(...\) does not go with sampler= Weighted\(replacement=False\): a mixture reads each",
        ),
        (
            mixed,
            {"sampler": listed},
            r"fastpipe.mix\(...\) does not go with sampler= PerClass, .* Use fastpipe.concat",
        ),
        (mixed, {"sampler": fastpipe.PerClass(2)}, r"fastpipe.mix\(...\) does not go with sampler= PerClass"),
        (mixed, {"epoch_size": "longest"}, "epoch_size: expected 'smallest' or 'largest', got 'longest'"),
        (
            chosen,
            {"sampler": listed, "partition": 1},
            "does not go with sampler= PerClass, .*a node cannot keep to its own part",
        ),
        (chosen, {"epoch_size": "largest"}, "epoch_size: expected a whole number, got 'largest'"),
        (
            chosen,
            {"size": np.array([8, 9]), "size_choices": [12, 16]},
            "expected one of size= and size_choices=, got both",
        ),
        (chosen, {"size": 16, "size_choices": [12, 16]}, "expected one of size= and size_choices=, got both, size=16"),
        (chosen, {"size": "bucket", "size_choices": [12, 16]}, "bucket. does not go with size_choices="),
        (
            chosen,
            {"size": "bucket", "crop": fastpipe.RandomCrop()},
            "bucket. does not go with crop=, .*RandomCrop.*: buckets show whole images",
        ),
        (chosen, {"crop": fastpipe.FiveCrop(), "sampler": TWICE}, "hflip= does not go with crop= FiveCrop"),
    ],
)
def test_what_does_not_go_together_says_so(
    first: Path, second: Path, open_data: Open, options: dict[str, Any], words: str
) -> None:
    sizes = {} if {"size", "size_choices"} & options.keys() else {"size": 12}
    with pytest.raises(ConfigError, match=words):
        fastpipe.loader(open_data(first, second), 4, **sizes, **options)
