"""Fields that kornia's modules move with the images: the numbers that kornia itself makes, on the right samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kornia.augmentation.container.params import ParamItem
from kornia.constants import DataKey
from support.batches.asked_fields import asked
from support.batches.kornia_cases import CASES, k
from torch import Tensor
from torch.utils._pytree import tree_unflatten

import fastpipe
from fastpipe.device.augment.kornia_modules import FieldKeys
from fastpipe.device.augment.kornia_operation import Kornia
from fastpipe.errors import ConfigError
from fastpipe.loading.loader import Loader

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = (44, 52)
COUNT, BATCH = 21, 7
KEYS = ["input", "mask", "bbox_xyxy", "keypoints"]
FIELDS = ("image", "id", "mask", "wide", "boxes", "plain", "joints")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with 0 to 3 bright rectangles; their masks (object n is n, or 1,000 times as much), boxes, corners."""
    folder = tmp_path_factory.mktemp("kornia") / "data"
    rng = np.random.default_rng(1)
    kinds = {
        "mask": "mask",
        "wide": "mask",
        "boxes": "boxes",
        "plain": "boxes",
        "joints": "keypoints",
    }
    with fastpipe.Writer(folder, fields=kinds) as writer:
        for number in range(COUNT):
            picture = rng.integers(0, 90, (60, 70, 3), dtype=np.uint8)
            mask = np.zeros((60, 70), dtype=np.uint8)
            boxes = []
            for place in range(number % 4):
                x, y, width, height = (3 + 22 * place, *rng.integers(4, [30, 18, 25]).tolist())
                boxes.append((x, y, x + width, y + height))
                picture[y : y + height, x : x + width] += 130
                mask[y : y + height, x : x + width] = 1 + place
            joints = [[[x0, y0, 2], [x1 - 1, y0, 1], [x0, y1 - 1, 0]] for x0, y0, x1, y1 in boxes]
            writer.add(
                picture,
                label=number % 2,
                mask=mask,
                wide=mask * np.uint16(1000),
                boxes={
                    "boxes": boxes,
                    "labels": [10 * number + place for place in range(len(boxes))],
                },
                plain=boxes[:1],
                joints=joints or None,
            )
    return folder


def loader_of(
    data: Path, augment: Any = None, fields: tuple[str, ...] = FIELDS, **options: Any
) -> Loader:
    options = {
        "size": SIZE,
        "num_workers": 2,
        "seed": 3,
        "drop_last": False,
        "flip_pairs": [],
        **options,
    }
    return fastpipe.loader(data, BATCH, fields=asked(fields, options), augment=augment, **options)


def container(*modules: Any, **options: Any) -> Any:
    return k.AugmentationSequential(*modules, **{"data_keys": KEYS, **options})


def plain_pixels(*modules: Any, **options: Any) -> fastpipe.Augment:
    return fastpipe.Augment(container(*modules, **options), mean=None, std=None)


MOVES: dict[str, Any] = {
    "RandomAffine": lambda: [k.RandomAffine(20.0, (0.1, 0.1), (0.8, 1.3), 10.0, p=1.0)],
    "RandomHorizontalFlip": lambda: [k.RandomHorizontalFlip(p=1.0)],
    "RandomPerspective": lambda: [k.RandomPerspective(0.4, p=1.0)],
    "RandomResizedCrop": lambda: [k.RandomResizedCrop((32, 40), scale=(0.4, 1.0))],
    "RandomCrop": lambda: [k.RandomCrop((50, 56), pad_if_needed=True)],
    "same on a batch": lambda: [k.RandomAffine((20.0, 40.0), p=1.0, same_on_batch=True)],
    "several": lambda: [
        k.RandomRotation(30.0, p=1.0),
        k.RandomGamma((0.5, 1.5), p=1.0),
        k.RandomVerticalFlip(p=1.0),
        k.RandomErasing(p=1.0),
        k.RandomShear(10.0, p=1.0),
        k.PadTo((60, 64)),
        k.RandomAffine(25.0, p=1.0),
    ],
}


def padded(values: list[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(values, batch_first=True)


@pytest.mark.parametrize("name", MOVES)
def test_fields_are_those_of_kornia_called_by_hand(data: Path, name: str) -> None:
    modules = MOVES[name]()
    augment = plain_pixels(*modules)
    by_hand = container(*modules)
    names = [name for name, _ in by_hand.named_children()]
    moved_boxes = 0
    with loader_of(data, min_size=0) as plain, loader_of(data, augment, min_size=0) as loader:
        for number, (before, after) in enumerate(zip(plain, loader, strict=True)):
            assert torch.equal(before["id"], after["id"])
            plan = augment.plan(before["id"].numpy(), SIZE, seed=3, epoch=0, batch=number)
            drawn = []
            for name, (call,) in zip(names, plan.hosts, strict=False):
                drawn.append((name, tree_unflatten(call.leaves, call.tree)))
            params = [ParamItem(name, each) for name, each in drawn]
            images, masks, wide, boxes, points = by_hand(
                before["image"].contiguous() / 255,
                before["mask"][:, None],
                before["wide"][:, None],
                padded(before["boxes"]) - 0.5,  # kornia's edges are the centres of pixels
                padded(before["joints"])[..., :2].flatten(1, 2),
                params=params,
                data_keys=["input", "mask", "mask", "bbox_xyxy", "keypoints"],
            )
            torch.testing.assert_close(after["image"], images, atol=1e-6, rtol=0)
            assert (after["mask"].dtype, after["wide"].dtype) == (torch.uint8, torch.int32)
            assert torch.equal(after["mask"], masks[:, 0])
            assert torch.equal(after["wide"], wide[:, 0])
            assert not torch.equal(before["mask"], after["mask"])
            size = images.shape[2:]
            limits = torch.tensor([size[1], size[0]] * 2, dtype=torch.float32)
            for row, count in enumerate(map(len, before["boxes"])):
                lost = (before["boxes"][row][:, :2] >= before["boxes"][row][:, 2:]).any(dim=1)
                expected = (boxes[row, :count] + 0.5).clamp(min=torch.zeros(4), max=limits)
                torch.testing.assert_close(
                    after["boxes"][row][~lost], expected[~lost], atol=1e-3, rtol=0
                )
                assert (after["boxes"][row][lost][:, :2] == after["boxes"][row][lost][:, 2:]).all()
                assert torch.equal(after["boxes_labels"][row], before["boxes_labels"][row])
                assert torch.equal(after["plain"][row], after["boxes"][row][:1])
                mine = points[row, : 3 * count].reshape(count, 3, 2)
                torch.testing.assert_close(after["joints"][row][..., :2], mine, atol=1e-3, rtol=0)
                assert torch.equal(after["joints"][row][..., 2], before["joints"][row][..., 2])
                moved_boxes += int((after["boxes"][row] != before["boxes"][row]).any(dim=1).sum())
    assert moved_boxes > 5


def test_boxes_stay_around_what_the_mask_shows(data: Path) -> None:
    """Turns and mirror images keep pixels whole, so boxes, masks and points agree to the pixel."""
    augment = plain_pixels(
        k.RandomRotation90((1, 3), p=1.0),
        k.RandomHorizontalFlip(p=0.5),
        k.RandomVerticalFlip(p=0.5),
        k.CenterCrop(40),
    )
    seen = 0
    with loader_of(
        data, augment, size=48, crop=fastpipe.CenterCrop(resize=60), hflip=False
    ) as loader:
        for batch in loader:
            assert batch["mask"].shape[1:] == (40, 40)
            for row, boxes in enumerate(batch["boxes"]):
                for box, label in zip(boxes, batch["boxes_labels"][row], strict=True):
                    y, x = torch.nonzero(batch["mask"][row] == 1 + label % 10, as_tuple=True)
                    around = torch.stack([x.min(), y.min(), x.max() + 1, y.max() + 1])
                    torch.testing.assert_close(box, around.float(), atol=1e-3, rtol=0)
                    seen += 1
            assert (batch["wide"] == batch["mask"].int() * 1000).all()
    assert seen > 15


def test_pairs_change_places_in_mirror_images_only(data: Path) -> None:
    twice = [k.RandomHorizontalFlip(p=1.0), k.RandomVerticalFlip(p=1.0)]
    for modules, swapped in (
        (twice[:1], True),
        (twice, False),
        ([k.RandomRotation90((2, 2), p=1.0)], False),
    ):
        with (
            loader_of(data, plain_pixels(*modules), hflip=False, flip_pairs=[(0, 2)]) as loader,
            loader_of(data, plain_pixels(*modules), hflip=False, flip_pairs=[]) as without,
        ):
            for batch, other in zip(loader, without, strict=True):
                for mine, theirs in zip(batch["joints"], other["joints"], strict=True):
                    assert torch.equal(mine, theirs[:, [2, 1, 0]] if swapped else theirs)


def test_rows_that_a_module_does_not_choose_stay_as_they_are(data: Path) -> None:
    augment = plain_pixels(k.RandomAffine((20.0, 40.0), p=0.5), k.ColorJitter(0.3, 0.3, 0.3, 0.1))
    changed = []
    with loader_of(data) as plain, loader_of(data, augment) as loader:
        for number, (before, after) in enumerate(zip(plain, loader, strict=True)):
            plan = augment.plan(before["id"].numpy(), SIZE, seed=3, epoch=0, batch=number)
            rows = {row for call in plan.hosts[0] for row in call.rows.tolist()}
            changed.append(len(rows))
            for row in range(len(before["id"])):
                same = torch.equal(before["mask"][row], after["mask"][row])
                assert same == (row not in rows) or not before["mask"][row].any()
                if row not in rows:
                    assert torch.equal(before["boxes"][row], after["boxes"][row])
                    assert torch.equal(before["joints"][row], after["joints"][row])
    assert 0 < sum(changed) < COUNT


SOME = [
    k.RandomAffine(20.0, (0.1, 0.1), p=0.7),
    k.RandomHorizontalFlip(),
    k.RandomPerspective(p=0.5),
]


def test_boxes_that_became_small_are_dropped_with_their_labels(data: Path) -> None:
    shrink = plain_pixels(k.RandomAffine(0.0, scale=(0.3, 0.3), p=1.0))
    counts = []
    for options in ({}, {"min_size": 2.5}, {"min_area": 10.0}, {"min_size": 0.0}):
        with loader_of(data, shrink, hflip=False, crop=fastpipe.Resize(), **options) as loader:
            counts.append(0)
            for batch in loader:
                for boxes, labels in zip(batch["boxes"], batch["boxes_labels"], strict=True):
                    sides = boxes[:, 2:] - boxes[:, :2]
                    assert (sides >= options.get("min_size", 1.0)).all()
                    assert (sides.prod(dim=1) >= options.get("min_area", 0.0)).all()
                    assert len(boxes) == len(labels)
                    counts[-1] += len(boxes)
    assert 0 < counts[1] < counts[0] < counts[3] == sum(number % 4 for number in range(COUNT))
    assert 0 < counts[2] < counts[0]


def test_masks_are_erased_where_images_are_if_they_are_named(data: Path) -> None:
    for keys, erased in ((["input"], False), (["input", "mask"], True)):
        augment = fastpipe.Augment(
            k.AugmentationSequential(k.RandomErasing((0.3, 0.4), p=1.0), data_keys=keys)
        )
        with (
            loader_of(data, fields=("image", "wide")) as plain,
            loader_of(data, augment, ("image", "wide")) as loader,
        ):
            changed = [
                not torch.equal(one["wide"], other["wide"])
                for one, other in zip(plain, loader, strict=True)
            ]
        assert any(changed) == erased


def test_an_elastic_transform_moves_masks(data: Path) -> None:
    augment = plain_pixels(k.RandomElasticTransform(p=1.0, alpha=(3.0, 3.0), resample="nearest"))
    fields = ("image", "mask", "wide")
    with loader_of(data, fields=fields) as plain, loader_of(data, augment, fields) as loader:
        for before, after in zip(plain, loader, strict=True):
            assert not torch.equal(before["mask"], after["mask"])
            assert torch.equal(after["wide"], after["mask"].int() * 1000)
            bright = (
                after["image"].mean(dim=1) * 255 > 105
            )  # rectangles have 130 more than at most 90
            assert (bright == (after["mask"] > 0)).float().mean() > 0.97


def test_data_keys_without_fields_change_nothing(data: Path) -> None:
    with (
        fastpipe.loader(data, BATCH, size=SIZE, augment=container(*SOME)) as keyed,
        fastpipe.loader(data, BATCH, size=SIZE, augment=SOME) as loader,
    ):
        for (images, _), (others, _) in zip(keyed, loader, strict=True):
            assert torch.equal(images, others)


@pytest.mark.parametrize(
    ("augment", "fields", "words"),
    [
        (
            k.RandomAffine(10.0),
            ("image", "boxes", "mask"),
            r"\(RandomAffine; boxes, mask\): they would stay in place\. Let kornia move them: .*"
            r"AugmentationSequential\(RandomAffine\(\.\.\.\), data_keys=\['input', 'bbox_xyxy', 'mask'\]\)",
        ),
        (
            k.AugmentationSequential(k.RandomAffine(10.0), data_keys=["input", "mask"]),
            ("image", "mask", "joints"),
            r"\(RandomAffine; joints\): they would stay in place\. Let kornia move .*\['input', 'keypoints', 'mask'\]",
        ),
        (
            container(k.RandomThinPlateSpline()),
            ("image", "mask"),
            r"\(RandomThinPlateSpline; mask\): they would stay in place\. Use .* an augmentation that",
        ),
        (
            container(k.RandomElasticTransform()),
            ("image", "boxes"),
            r"that these cannot move \(RandomElasticTransform; boxes\)",
        ),
        (
            container(k.RandomJigsaw()),
            ("image", "boxes"),
            r"that these cannot move \(RandomJigsaw; boxes\)",
        ),
        (
            container(k.auto.TrivialAugment()),
            ("image", "boxes"),
            r"that these cannot move \(TrivialAugment; boxes\)",
        ),
        (
            container(k.RandomMixUpV2()),
            ("image", "boxes"),
            r"mixes images \(mixup, cutmix\) does not go with boxes and points in fields= \(boxes\)",
        ),
        (
            [container(k.RandomMosaic())],
            ("image", "mask"),
            r"mixup, or kornia's mosaic does not go with masks and second images in fields= \(mask\)",
        ),
        (
            container(
                k.RandomAffine(10.0, p=0.1), extra_args={DataKey.MASK: {"resample": "bilinear"}}
            ),
            ("image", "mask"),
            "RandomAffine makes numbers in masks that are no ids",
        ),
        (
            container(k.RandomCrop((60, 70))),
            ("image", "mask"),
            "RandomCrop makes .* no ids.*pad_if_needed=True",
        ),
        (
            container(k.RandomHorizontalFlip()),
            ("image", "joints"),
            "'joints' has points, and RandomHorizontalFlip mirrors images.*leave RandomHorizontalFlip out",
        ),
    ],
)
def test_what_would_make_fields_wrong_is_refused(
    data: Path, augment: Any, fields: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        loader_of(data, augment, fields, hflip=False, flip_pairs=None if "mirrors" in words else [])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"data_keys": ["input", "bbox"]},
            "a loader's batch has input, mask, bbox_xyxy, keypoints; got 'bbox'",
        ),
        ({"data_keys": ["input", "bbox_xywh"]}, "got 'bbox_xywh'"),
        ({"random_apply": 1}, r"random_apply=\.\.\., data_keys=.*leave random_apply out"),
    ],
)
def test_containers_that_cannot_be_followed(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fastpipe.Augment(container(k.RandomAffine(10.0), k.RandomInvert(), **options))


def test_every_module_that_moves_a_kind_is_known() -> None:
    """Of all 2D augmentations: kornia moves points with those that we say it does, and with no other."""
    for name, make in CASES.items():
        module = make()
        if not isinstance(module, k.AugmentationBase2D) or isinstance(
            module, k.MixAugmentationBaseV2
        ):
            continue
        stage = Kornia(module, FieldKeys(frozenset(["keypoints"])))
        assert bool(stage.moves - {"shown"}) == isinstance(module, k.GeometricAugmentationBase2D), (
            name
        )
