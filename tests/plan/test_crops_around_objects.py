"""Tests of RandomCrop(where=): each part has the middle of one of the sample's boxes in it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.datasets.packed import damage
from support.pictures.drawn import smooth_noise
from support.running.soak import Tried, times

import fastpipe
from fastpipe import RandomCrop, View
from fastpipe.dataset.format.columns import Ragged
from fastpipe.errors import ConfigError
from fastpipe.plan.crop_boxes import Crops, plan_crops

pytestmark = [pytest.mark.usefixtures("one_thread")]

SHAPES = [(64, 48), (100, 61), (32, 32), (20, 90), (33, 32), (9, 11)]  # width, height
IMAGES = 24
DRAWS = 40_000
FIELDS = ("image", "id", "valid", "crop_box")
CROPS = [
    RandomCrop(where="boxes", pad_if_needed=True),
    RandomCrop(where="boxes", pad_if_needed=True, count=4),
    RandomCrop(where="boxes", padding=(3, 40, 1, 70), pad_if_needed=True, count=2),
    RandomCrop(where="boxes", resize=70, count=3),
    RandomCrop(where="boxes", resize=35, padding=6, padding_mode="edge"),
]


def boxes_of(number: int) -> NDArray[Any]:
    """The boxes of an image, some of them at its edges; every third image has none."""
    rng = np.random.default_rng(number)
    size = SHAPES[number % len(SHAPES)]
    corners = np.sort(rng.random((number % 3 * 2, 2, 2)), axis=1) * size
    boxes = corners.reshape(-1, 4)
    boxes[1:2] = [*size, *size]  # no area, at the right and below
    return boxes.astype(np.float32)


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("around") / "data"
    kinds: dict[str, Any] = {"boxes": "boxes", "corners": "boxes", "pages": "images"}
    with fastpipe.Writer(folder, kinds) as writer:
        for number in range(IMAGES):
            size = SHAPES[number % len(SHAPES)]
            writer.add(
                smooth_noise(*size, seed=number),
                boxes=boxes_of(number),
                corners=[[0, 0, 1, 1]],
                pages=[smooth_noise(70, 50, seed=page) for page in range(number % 3)],
            )
    return folder


def around(data: Any, crop: RandomCrop, **options: Any) -> fastpipe.Loader:
    defaults: dict[str, Any] = {
        "size": 24,
        "crop": crop,
        "fields": FIELDS,
        "num_workers": 1,
        "drop_last": False,
    }
    return fastpipe.loader(data, 5, **{**defaults, **options})


def by_image(loader: fastpipe.Loader, name: str = "crop_box") -> dict[int, torch.Tensor]:
    """A field of each sample that counts, by its number."""
    values = {}
    for batch in loader:
        for row in torch.nonzero(batch["valid"])[:, 0].tolist():
            values[int(batch["id"][row])] = batch[name][row]
    return values


@pytest.mark.parametrize("crop", CROPS)
def test_each_part_has_the_middle_of_a_box_in_it(
    objects: Path, crop: RandomCrop, tried: Tried
) -> None:
    epochs = times(3, 60)
    parts = 0
    with around(objects, crop) as loader:
        for _ in range(epochs):
            crop_boxes = by_image(loader)
            assert len(crop_boxes) == IMAGES
            for number, parts_of_image in crop_boxes.items():
                boxes = boxes_of(number).astype(float)
                if not len(boxes):
                    continue
                middles = (boxes[:, :2] + boxes[:, 2:]) / 2
                for part in parts_of_image.reshape(-1, 4).numpy():
                    is_inside = (middles >= part[:2] - 1e-3) & (middles <= part[2:] + 1e-3)
                    assert is_inside.all(axis=1).any(), (number, part, middles)
                    parts += 1
    with_boxes = sum(len(boxes_of(number)) > 0 for number in range(IMAGES))
    assert parts == epochs * with_boxes * crop.count
    tried("random crops around boxes", parts, "the middle of a box is in each")


@pytest.mark.parametrize("crop", CROPS)
def test_samples_without_boxes_have_the_crops_of_no_where(objects: Path, crop: RandomCrop) -> None:
    with around(objects, crop) as loader:
        crop_boxes = by_image(loader)
    with around(objects, replace(crop, where=None)) as loader:
        anywhere = by_image(loader)
    equal = [
        number for number in range(IMAGES) if torch.equal(crop_boxes[number], anywhere[number])
    ]
    without = [number for number in range(IMAGES) if not len(boxes_of(number))]
    assert set(without) <= set(equal)
    assert len(equal) < IMAGES


def planned(boxes: Any, *, size: tuple[int, int], shape: tuple[int, int], count: int = 1) -> Crops:
    """The crops of DRAWS images with these boxes."""
    values = np.tile(np.array(boxes, dtype=np.float32), (DRAWS, 1))
    offsets = np.arange(DRAWS + 1) * len(boxes)
    return plan_crops(
        RandomCrop(where="boxes", count=count),
        size,
        np.full(DRAWS, shape[0]),
        np.full(DRAWS, shape[1]),
        seed=5,
        epoch=0,
        samples=np.arange(DRAWS),
        objects=Ragged(values, offsets),
    )


def test_the_middle_is_as_likely_anywhere_in_a_part() -> None:
    """Chi-squared of 40,000 draws; at the edge of an image the part is moved back."""
    crops = planned([[100, 90, 105, 95]], size=(12, 16), shape=(300, 200))
    places = (np.array([102, 92]) - crops.boxes[:, :2]).astype(int)
    assert places.min() == 0
    assert places.max(axis=0).tolist() == [15, 11]
    counts = np.bincount(places[:, 0] * 12 + places[:, 1], minlength=192)
    expected = DRAWS / 192
    excess = ((counts - expected) ** 2 / expected).sum() - 191
    assert excess < 6 * np.sqrt(2 * 192)
    edge = planned([[299, 0, 300, 2]], size=(12, 16), shape=(300, 200))
    assert np.unique(edge.boxes[:, 0]).tolist() == [284]
    assert np.unique(edge.boxes[:, 1]).tolist() == [0, 1]


def test_all_boxes_of_an_image_are_as_likely() -> None:
    boxes = [[number * 60, 5, number * 60 + 4, 9] for number in range(4)]
    crops = planned(boxes, size=(10, 10), shape=(250, 50), count=2)
    chosen = np.rint((crops.boxes[:, 0] + 3) / 60).astype(int)
    shares = np.bincount(chosen, minlength=4) / (2 * DRAWS)
    assert shares == pytest.approx(0.25, abs=0.01)
    # The parts of an image have draws of their own.
    first, second = chosen.reshape(-1, 2).T
    assert (first == second).mean() == pytest.approx(0.25, abs=0.01)


def test_any_number_of_ranks_has_the_same_parts(objects: Path) -> None:
    crop = CROPS[1]
    with around(objects, crop) as loader:
        alone = by_image(loader, "image")
    on_ranks: dict[int, torch.Tensor] = {}
    for rank in range(2):
        with around(objects, crop, rank=rank, world_size=2) as loader:
            on_ranks |= by_image(loader, "image")
    assert sorted(on_ranks) == list(range(IMAGES))
    for number, images in on_ranks.items():
        assert torch.equal(images, alone[number])


def test_a_resumed_run_has_the_same_parts(objects: Path) -> None:
    with around(objects, CROPS[2]) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        rest = list(iterator)
    with around(objects, CROPS[2]) as loader:
        loader.load_state_dict(state)
        for batch, other in zip(loader, rest, strict=True):
            assert torch.equal(batch["image"], other["image"])


def test_each_view_has_a_field_of_its_own(objects: Path) -> None:
    views = [
        View(crop=RandomCrop(where="boxes", pad_if_needed=True)),
        View(crop=RandomCrop(where="corners", pad_if_needed=True)),
        View(crop=fastpipe.Resize()),
    ]
    with around(objects, None, views=views) as loader:  # type: ignore[arg-type]
        batches = list(loader)
        seeds = loader.view_seeds
    for number, view in enumerate(views):
        with around(objects, view.crop, seed=seeds[number]) as loader:  # type: ignore[arg-type]
            alone = by_image(loader, "image")
        for batch in batches:
            for row, image in enumerate(batch["id"].tolist()):
                assert torch.equal(batch["image"][number][row], alone[image])


def test_pictures_of_a_list_are_cut_anywhere(objects: Path) -> None:
    fields = ("image", "id", "pages")
    with around(objects, RandomCrop(where="boxes", pad_if_needed=True), fields=fields) as loader:
        batches = list(loader)
    with around(objects, RandomCrop(pad_if_needed=True), fields=fields) as loader:
        for batch, other in zip(batches, loader, strict=True):
            assert not torch.equal(batch["image"], other["image"])
            for pages, other_pages in zip(batch["pages"], other["pages"], strict=True):
                assert torch.equal(pages, other_pages)


def test_a_sample_that_replaces_another_is_cut_around_its_own_boxes(
    objects: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(objects, tmp_path / "copy"))
    damage(folder, 1)
    crop = RandomCrop(where="boxes", pad_if_needed=True)
    with around(folder, crop, on_error="replace", seed=2) as loader:
        for batch in loader:
            for number, part in zip(batch["id"].tolist(), batch["crop_box"].numpy(), strict=True):
                boxes = boxes_of(number)
                middles = (boxes[:, :2] + boxes[:, 2:]) / 2
                is_inside = (middles >= part[:2] - 1e-3) & (middles <= part[2:] + 1e-3)
                assert not len(boxes) or is_inside.all(axis=1).any()
        assert loader.stats().replaced == 1


def test_single_samples_are_not_cut_around_objects(objects: Path) -> None:
    words = r"RandomCrop\(where='boxes'\) needs the boxes of a dataset"
    with pytest.raises(ConfigError, match=words):
        fastpipe.open(objects).cropped(RandomCrop(where="boxes"), 24)
    with pytest.raises(ConfigError, match=words):
        fastpipe.wds.crop(24, crop=RandomCrop(where="boxes"))
    with pytest.raises(ConfigError, match=r"RandomCrop\(where=\): expected the name of a field"):
        RandomCrop(where=3)  # type: ignore[arg-type]
