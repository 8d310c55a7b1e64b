"""Runs the examples in the docstrings of public names, and says which names have none."""

from __future__ import annotations

import doctest
import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from support.pictures.drawn import smooth_noise

import fastpipe

PHOTOS = 24
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
WITHOUT = {"__version__"}  # a text
CLASSES = ("Loader", "Dataset", "Writer", "GridAggregator", "Stats")
# Most of an Augment's members are those of torch's modules.
OF_AUGMENT = ("forward", "imagenet", "simclr", "randaugment", "trivial_augment")


def public_objects() -> Iterator[tuple[str, object]]:
    for name in sorted(set(fastpipe.__all__) - WITHOUT):
        value = getattr(fastpipe, name)
        yield name, value
        if name in CLASSES:
            yield from public_members(name, value)
    for member in OF_AUGMENT:
        yield f"Augment.{member}", getattr(fastpipe.Augment, member)
    yield "wds.crop", fastpipe.wds.crop
    yield "wds.batch_crop", fastpipe.wds.batch_crop


def public_members(name: str, value: type) -> Iterator[tuple[str, object]]:
    """The methods and properties that completion shows, inherited ones included."""
    for member in dir(object.__new__(value)):
        described = inspect.getattr_static(value, member)
        is_value = not callable(described) and not hasattr(described, "__get__")
        if not member.startswith("_") and not is_value:
            yield f"{name}.{member}", described


OBJECTS = dict(public_objects())


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/, more-photos/, data/train, data/val, data/growing, data/objects, data/latents,
    data/pages and data/rooms.
    """
    folder = tmp_path_factory.mktemp("examples")
    for number in range(PHOTOS + 2):
        source = "photos" if number < PHOTOS else "more-photos"
        path = folder / source / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        smooth_noise(36 + number, 60 - number, seed=number).save(path)
    for name in ("train", "val", "growing"):
        fastpipe.pack(folder / "photos", folder / "data" / name)
    fields = {"boxes": "boxes", "joints": "keypoints", "caption": "text"}
    with fastpipe.Writer(folder / "data" / "objects", fields=fields) as writer:
        for number in range(PHOTOS):
            writer.add(
                folder / "photos" / ("cat", "dog")[number % 2] / f"{number}.jpg",
                label=number % 2,
                key=f"{number}",
                boxes={"boxes": [[2, 3, 20, 30]], "labels": [number % 2]},
                joints=[[[5, 6, 1], [10, 6, 1]]],
                caption=f"photo {number}",
            )
    with fastpipe.Writer(folder / "data" / "latents", fields={"tokens": "array"}) as writer:
        for number in range(PHOTOS):
            tokens = np.zeros((1 if number == 0 else 3, 8), np.float16)
            writer.add(folder / "photos" / "cat" / "0.jpg", key=f"{number}", tokens=tokens)
    with fastpipe.Writer(folder / "data" / "pages", fields={"pages": "images"}) as writer:
        photos = sorted((folder / "photos").rglob("*.jpg"))
        for number in range(PHOTOS):
            writer.add(photos[0], key=f"{number}", pages=photos[: number % 4])
    with fastpipe.Writer(folder / "data" / "rooms", fields={"depth": "map"}) as writer:
        for number in range(PHOTOS):
            pixels = np.full((30, 40, 3), number, np.uint8)
            writer.add(pixels, key=f"{number}", depth=np.ones((30, 40), np.float32))
    return folder


# webdataset leaves a tar open.
@pytest.mark.filterwarnings("ignore:unclosed file <_io.BufferedReader:ResourceWarning")
@pytest.mark.parametrize("name", OBJECTS)
def test_examples_run(
    name: str,
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    torchvision: ModuleType,
    one_thread: None,
) -> None:
    monkeypatch.chdir(shutil.copytree(template, tmp_path / "work"))
    if name == "ClusterError":
        pytest.importorskip("ray")
    if name == "remove":
        fastpipe.add("more-photos", "data/growing")
    names: dict[str, Any] = {"fastpipe": fastpipe, "np": np, "torch": torch}
    examples = doctest.DocTestParser().get_doctest(
        inspect.getdoc(OBJECTS[name]) or "", names, name, None, None
    )
    assert examples.examples, f"{name} has no example in its docstring"
    said: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(examples, out=said.append)
    assert not said, "".join(said)
