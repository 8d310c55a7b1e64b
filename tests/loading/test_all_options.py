"""All options that say what an epoch holds, together: resumed at each batch, in worlds of 8, 4, 2 and 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import smooth_noise

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.plan.grouping import Grouping

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


FIELDS = ("image", "label", "boxes", "caption", "mask", "id", "valid")
PARTS: dict[str, Any] = {"classes": ["dog", "ant", "cow"], "limit": 0.95, "kfold": (5, 2)}
CHOSEN: dict[str, Any] = {**PARTS, "samples": np.arange(COUNT) != 7, "repeats": 2, "fields": FIELDS}
WEIGHTED: dict[str, Any] = {**CHOSEN, "weights": {"cow": 2.5}, "epoch_size": 27}
VIEW, VIEW_OF_8 = fastpipe.View(hflip=1.0), fastpipe.View(8, crop=fastpipe.Resize())
CASES: dict[str, tuple[bool, dict[str, Any]]] = {
    "sizes by batch": (False, {**WEIGHTED, "size_choices": [12, (20, 16)]}),
    "sizes by epoch": (False, {**CHOSEN, "epoch_size": 21, "size": lambda epoch: 12 + 4 * epoch}),
    "crop, no replacement": (
        False,
        {
            **PARTS,
            "samples": range(2, COUNT),
            "weights": np.arange(COUNT) + 1.0,
            "replacement": False,
            "epoch_size": 21,
            "fields": FIELDS,
            "size_choices": [12, 16],
            "crop": fastpipe.RandomCrop(padding=4, pad_if_needed=True, fill=9, mask_fill=255),
        },
    ),
    "buckets": (False, {**WEIGHTED, "size": fastpipe.Buckets(area=300, size_divisible=4)}),
    "views of buckets": (False, {**WEIGHTED, "views": 2, "size": fastpipe.Buckets(area=300, size_divisible=4)}),
    "views, some of one size": (False, {**CHOSEN, "views": [VIEW, VIEW_OF_8], "size_choices": [12, (20, 16)]}),
    "several crops": (False, {**CHOSEN, "train": False, "size": 12, "crop": fastpipe.FiveCrop(), "kfold": None}),
    "mixture": (
        True,
        {
            **PARTS,
            "labels": "union",
            "repeats": 2,
            "epoch_size": 27,
            "size_choices": [12, 16],
            "fields": ("image", "label", "source", "id", "valid"),
        },
    ),
    "mixture, augmented": (
        True,
        {
            "labels": "own",
            "limit": 0.9,
            "epoch_size": "smallest",
            "size": lambda epoch: 12 + 4 * epoch,
            "augment": fastpipe.Augment.simclr(),
            "fields": ("image", "label", "source", "id", "valid"),
        },
    ),
}


def opened(data: Any, batch_size: int, **options: Any) -> fastpipe.Loader:
    more = {} if isinstance(data, dict) else {"drop_last": False}
    return fastpipe.loader(data, batch_size, **{"num_workers": 1, "seed": 11, **more, **options})


def as_bytes(value: Any) -> Any:
    if isinstance(value, list):
        return [as_bytes(each) for each in value]
    return value.contiguous().numpy().tobytes() if isinstance(value, torch.Tensor) else value


def rows_of(batch: dict[str, Any]) -> list[Row]:
    """Of each row that counts its number and all values; the boxes' labels are one behind the boxes."""
    views = [*batch.items()]
    if isinstance(batch["image"], list):
        moved = ("image", "boxes", "boxes_labels", "mask")
        views = [(key, each) for key, values in views for each in (values if key in moved else [values])]
    parts = [[as_bytes(row) for row in values] for key, values in views if key != "valid"]
    rows = zip(batch["id"].tolist(), *parts, strict=True)
    return [row for row, good in zip(rows, batch["valid"].tolist(), strict=True) if good]


@pytest.mark.parametrize(
    ("partition", "name"),
    [*(("sample", name) for name in CASES), *(("node", name) for name in CASES if "augmented" not in name)],
)
def test_every_batch_can_be_resumed_on_any_number_of_ranks(
    first: Path,
    second: Path,
    monkeypatch: pytest.MonkeyPatch,
    partition: str,
    name: str,
) -> None:
    """Each rank goes on at the state that another rank of another world has left."""
    mixed, options = CASES[name]
    data: Any = {first: 0.6, second: 0.4} if mixed else first
    monkeypatch.setattr(Grouping, "batches_of", staticmethod(lambda *_: 2))  # of an epoch's three or four
    options = {**options, "partition": partition, **({"canonical_nodes": 4} if partition == "node" else {})}
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    with opened(data, 8, rank=0, world_size=1, **options) as loader:
        expected = [sorted(rows_of(batch)) for _ in range(2) for batch in loader]
        assert len(expected) == 2 * len(loader) >= 6
        assert all(expected)
    state: Any = None
    for step, wanted in enumerate(expected):
        world_size = (8, 4, 2, 1)[step % 4]
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(max(1, world_size // 4)) if partition == "node" else "8")
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
    ("mixed", "options", "words"),
    [
        (True, {"samples": [1]}, "samples works with one dataset, not with a mixture; choose with classes=, limit="),
        (True, {"weights": {"cow": 2}}, "weights works with one dataset, not with a mixture; weigh the datasets"),
        (True, {"size": "bucket"}, 'size="bucket" does not go with a mixture of datasets'),
        (
            True,
            {"fields": ("image", "caption")},
            r"image, label, id, key, valid, epoch, source; got 'caption'. A mixture has no",
        ),
        (True, {"replacement": False}, "replacement works only with weights="),
        (True, {"samples": [1], "size_choices": [12, 16]}, "samples works with one dataset"),
        (False, {"epoch_size": "largest"}, "epoch_size: expected a whole number, got 'largest'"),
        (False, {"fields": ("image", "source")}, "got 'source'"),
        (
            False,
            {"size": np.array([8, 9]), "size_choices": [12, 16]},
            "expected one of size= and size_choices=, got both",
        ),
        (False, {"size": 16, "size_choices": [12, 16]}, "expected one of size= and size_choices=, got both, size=16"),
        (False, {"size": "bucket", "size_choices": [12, 16]}, "does not go with size_choices= "),
        (False, {"size": "bucket", "crop": fastpipe.RandomCrop()}, "buckets show whole images"),
        (False, {"crop": fastpipe.FiveCrop(), "repeats": 2}, r"hflip= .*\(FiveCrop\): they are for evaluation"),
    ],
)
def test_what_does_not_go_together_says_so(
    first: Path, second: Path, mixed: bool, options: dict[str, Any], words: str
) -> None:
    sizes = {} if {"size", "size_choices"} & options.keys() else {"size": 12}
    with pytest.raises(ConfigError, match=words):
        fastpipe.loader({first: 1, second: 1} if mixed else first, 4, **sizes, **options)  # type: ignore[dict-item]
