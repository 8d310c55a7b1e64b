"""A folder -> datasets and sources of all kinds in it, a few pictures each; and what is known of their samples."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from support.datasets.field_values import FIELDS, sample
from support.sources.pack_sources import jpeg_bytes, saved
from support.sources.tars import write_tar

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex

SOUND = "sound"  # beside a damaged dataset: as it was before
CLASSES = ("ant", "bee", "cow")


@dataclass
class Known:
    """What a dataset holds; a sample's number is its place in each list.

    Attributes:
        at: the data, from the folder: a path, a pattern of tars.
        packed: `pack` or a `Writer` made it.
        names: the classes.
        labels, keys: of the samples; -1: no label.
        sizes: (n, 2): width and height.
        fields: kinds, by name.
        values: what `Writer.add` got, by field, where that is what a batch holds.
        box_labels: the label of each box of each sample; empty: there is no field of boxes.
        damaged: samples that cannot be decoded.
    """

    name: str
    at: str
    packed: bool
    names: list[str]
    labels: list[int]
    keys: list[str]
    sizes: list[tuple[int, int]]
    fields: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[Any]] = field(default_factory=dict)
    box_labels: list[list[int]] = field(default_factory=list)
    damaged: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def sound(self) -> str:
        """Where it is without damage."""
        return self.at.replace("damaged/packed", f"damaged/{SOUND}")


def make(folder: Path) -> dict[str, Known]:
    """By name."""
    return {known.name: known for known in (_known(folder, maker) for maker in _MAKERS)}


Made = tuple[str, dict[str, int], list[str]]  # where it is, the label of each key, the classes


def _known(folder: Path, maker: Callable[[Path], Any]) -> Known:
    """Keys and sizes by the simplest loader; labels and values are those that the maker put there."""
    name = maker.__name__.removeprefix("_")
    at, labels, names, *more = maker(folder / name)
    fields, values, damaged = more or ({}, {}, frozenset())
    box_labels = values.pop("box_labels", None)
    data = fastpipe.open(folder / name / at)
    with fastpipe.loader(
        folder / name / at,
        1,
        size=4,
        train=False,
        num_workers=1,
        fields=("image", "key"),
        on_error="replace",
    ) as loader:
        keys = [key for batch in loader for key in batch["key"]]
    keys = [_unrooted(key, labels) for key in keys]
    for number in damaged:  # another sample has taken its place
        keys[number] = next(key for key in labels if key not in keys)
    assert sorted(keys) == sorted(labels), f"{name}: {keys}"
    order = [list(labels).index(key) for key in keys]
    return Known(
        name,
        f"{name}/{at}" if at else name,
        data.index.packed,
        names,
        [labels[key] for key in keys],
        keys,
        [*zip(data["width"][:].tolist(), data["height"][:].tolist(), strict=True)],
        fields,
        {each: [column[number] for number in order] for each, column in values.items()},
        [] if box_labels is None else [box_labels[number] for number in order],
        frozenset(damaged),
    )


def _unrooted(key: str, labels: dict[str, int]) -> str:
    """As the maker called it."""
    return key if key in labels else next(known for known in labels if key.endswith(known))


def _pictures(count: int, least: int = 32, most: int = 96) -> list[tuple[bytes, tuple[int, int]]]:
    rng = np.random.default_rng(count)
    sizes = [
        (int(width), int(height)) for width, height in rng.integers(least, most + 1, (count, 2))
    ]
    samplings = ("420", "444", "422")
    return [
        (jpeg_bytes(size, samplings[number % 3], seed=number, quality=80), size)
        for number, size in enumerate(sizes)
    ]


def _write_folder(root: Path, count: int, classes: tuple[str, ...] = CLASSES) -> dict[str, int]:
    labels = {}
    for number, (data, _) in enumerate(_pictures(count)):
        place = classes[number % len(classes)] if classes else ""
        (root / place).mkdir(parents=True, exist_ok=True)
        (root / place / f"{number:02d}.jpg").write_bytes(data)
        labels[f"{place}/{number:02d}.jpg" if classes else f"{number:02d}.jpg"] = (
            classes.index(place) if classes else -1
        )
    return labels


def _packed(folder: Path, count: int, classes: tuple[str, ...] = CLASSES, **options: Any) -> Made:
    labels = _write_folder(folder / "source", count, classes)
    fastpipe.pack(folder / "source", folder / "packed", workers=1, **options)
    return "packed", labels, list(classes)


def _jpeg(folder: Path) -> Made:
    return _packed(folder, 37)


def _tiled(folder: Path) -> Made:
    return _packed(folder, 24, tile=16, shuffle=False)


def _coefficients(folder: Path) -> Made:
    return _packed(folder, 29, storage="coefficients")


def _flat_packed(folder: Path) -> Made:
    return _packed(folder, 13, ())


def _shards(folder: Path) -> Made:
    """Noise of 20 kB a picture; a shard holds 100 kB."""
    rng = np.random.default_rng(1)
    labels = {}
    for number in range(40):
        place = CLASSES[number % 2]
        (folder / "source" / place).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (96, 90, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(
            folder / "source" / place / f"{number}.jpg", quality=95, subsampling=0
        )
        labels[f"{place}/{number}.jpg"] = number % 2
    fastpipe.pack(folder / "source", folder / "packed", workers=1, shard_size=100_000)
    assert len(PackedIndex(folder / "packed").shards) > 5
    return "packed", labels, list(CLASSES[:2])


def _written(
    folder: Path, count: int, labels: list[int | None], names: list[str] | None, **options: Any
) -> Any:
    """All kinds of fields."""
    values: dict[str, list[Any]] = {
        name: []
        for name in ("score", "embedding", "caption", "meta", "raw", "tags", "latent", "tokens")
    }
    box_labels = []
    fallbacks = {"caption": "", "meta": None, "raw": b"", "tags": []}
    with fastpipe.Writer(
        folder / "packed", fields=FIELDS, classes=names, workers=1, **options
    ) as writer:
        for number, (data, size) in enumerate(_pictures(count)):
            added = {**sample(number, size, data), "label": labels[number]}
            writer.add(added.pop("image"), **added)
            for name, column in values.items():
                column.append(added.get(name, fallbacks.get(name)))
            boxes = added.get("boxes", {"labels": []})
            box_labels.append([int(label) for label in boxes["labels"]])
    values["box_labels"] = box_labels
    known = {
        f"sample-{number}": -1 if label is None else label for number, label in enumerate(labels)
    }
    classes = names or [str(number) for number in range(1 + max(known.values()))]
    return "packed", known, classes, dict(FIELDS), values, frozenset()


def _fields(folder: Path) -> Any:
    return _written(folder, 36, [number % 3 for number in range(36)], ["x", "y", "z"])


def _fields_in_coefficients(folder: Path) -> Any:
    return _written(folder, 16, [number % 5 for number in range(16)], None, storage="coefficients")


def _partly(folder: Path) -> Any:
    """A third has no label; one class has no sample."""
    return _written(
        folder,
        20,
        [None if number % 3 == 0 else number % 3 - 1 for number in range(20)],
        ["a", "b", "c"],
    )


def _unlabelled(folder: Path) -> Any:
    return _written(folder, 11, [None] * 11, None)


def _one(folder: Path) -> Made:
    return _packed(folder, 1, ("only",))


def _shapes(folder: Path) -> Made:
    """The strangest shapes, and gray."""
    (folder / "source" / "odd").mkdir(parents=True)
    sizes = [
        (1, 1),
        (1, 90),
        (96, 2),
        (3, 3),
        (8, 8),
        (96, 96),
        (17, 64),
        (90, 30),
        (33, 31),
        (2, 40),
    ]
    for number, size in enumerate(sizes):
        data = saved("JPEG", "L", size) if number % 2 else jpeg_bytes(size, "420", seed=number)
        (folder / "source" / "odd" / f"{number}.jpg").write_bytes(data)
    fastpipe.pack(folder / "source", folder / "packed", workers=1)
    return "packed", {f"odd/{number}.jpg": 0 for number in range(len(sizes))}, ["odd"]


def _damaged(folder: Path) -> Any:
    at, labels, names = _packed(folder, 25)
    shutil.copytree(folder / at, folder / SOUND)
    index = PackedIndex(folder / at)
    for number in (4, 11):
        shard, _, offset = index.where(number)
        with open(shard, "r+b") as file:
            file.seek(offset)
            file.write(bytes(int(index.records[number]["size"]) // 2))
    return at, labels, names, {}, {}, frozenset((4, 11))


def _folder(folder: Path) -> Made:
    """Not packed: usual photos, and what has to be converted."""
    labels = _write_folder(folder / "photos", 26)
    for name, data in (
        ("bee/a.png", saved("PNG", size=(50, 40))),
        ("ant/b.jpg", saved("JPEG", size=(60, 44), progressive=True)),
    ):
        (folder / "photos" / name).write_bytes(data)
        labels[name] = CLASSES.index(name[:3])
    return "photos", labels, list(CLASSES)


def _flat_folder(folder: Path) -> Made:
    return "photos", _write_folder(folder / "photos", 15, ()), []


def _tar_of_folder(folder: Path) -> Made:
    labels = _write_folder(folder / "source", 18)
    write_tar(folder / "t.tar", {name: (folder / "source" / name).read_bytes() for name in labels})
    return "t.tar", labels, list(CLASSES)


def _web_tars(folder: Path) -> Made:
    folder.mkdir()
    labels = {}
    for tar in range(3):
        members = {}
        for number, (data, _) in enumerate(_pictures(9)):
            members[f"{tar}-{number}.jpg"] = data
            members[f"{tar}-{number}.cls"] = str((tar + number) % 4).encode()
            labels[f"{tar}-{number}.jpg"] = (tar + number) % 4
        write_tar(folder / f"part-{tar}.tar", members)
    return "part-*.tar", labels, [str(number) for number in range(4)]


_MAKERS: list[Callable[[Path], Any]] = [
    _jpeg,
    _tiled,
    _coefficients,
    _flat_packed,
    _shards,
    _fields,
    _fields_in_coefficients,
    _partly,
    _unlabelled,
    _one,
    _shapes,
    _damaged,
    _folder,
    _flat_folder,
    _tar_of_folder,
    _web_tars,
]
