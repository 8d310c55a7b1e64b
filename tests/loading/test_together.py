"""Options that go together: each row is that of the simplest loader, of one view and without augmentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kornia.augmentation as k
import numpy as np
import pytest
import torch
from field_values import FIELDS, sample

import fastpipe
from fastpipe import Boxes, Points, View

COUNT, BATCH = 14, 4
SIZE = (24, 30)
PAIRS = [(0, 1), (3, 4)]
POSE = Points("pose", flip_pairs=PAIRS)
BY_VIEW = ("image", "boxes", "boxes_labels", "boxes_offsets", "boxes_counts", "pose", "seg", "depth", "second")
KEYS = ["input", "mask", "bbox_xyxy", "keypoints"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of several sizes with a field of every kind, which every third sample lacks."""
    folder = tmp_path_factory.mktemp("together") / "data"
    with fastpipe.Writer(folder, FIELDS) as writer:
        for number in range(COUNT):
            writer.add(**sample(number, (50 + 7 * (number % 4), 40 + 5 * (number % 3))))
    return folder


def loader_of(data: Path, fields: Any = None, **options: Any) -> fastpipe.Loader:
    chosen = {"size": SIZE, "num_workers": 2, "seed": 4, "shuffle": False, "drop_last": False, **options}
    return fastpipe.loader(data, BATCH, fields=fields, **chosen)


def fields_of(form: str) -> list[Any]:
    return ["label", "caption", "image", Boxes("boxes", form=form), "seg", "depth", "second", POSE, "tags", "id"]


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit, in lists of lists."""
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    return bool(one == other)


def turning() -> Any:
    return fastpipe.Augment(k.AugmentationSequential(k.RandomAffine(30.0, (0.1, 0.1), p=1.0), data_keys=KEYS))


# Views, and the options of a loader with each of them alone. The last one moves masks, too.
VIEWS: list[tuple[View, dict[str, Any]]] = [
    (View(), {}),
    (View((16, 40), hflip=1.0, crop=fastpipe.Resize()), {"size": (16, 40), "hflip": 1.0, "crop": fastpipe.Resize()}),
    (
        View(crop=fastpipe.RandomCrop(pad_if_needed=True, mask_fill=7)),
        {"crop": fastpipe.RandomCrop(pad_if_needed=True, mask_fill=7)},
    ),
    (View(augment=turning()), {"augment": turning()}),
]


@pytest.mark.parametrize("form", ["list", "flat", "pad"])
@pytest.mark.parametrize("moved", [False, True])
def test_each_view_has_boxes_masks_points_and_second_pictures_of_its_own(data: Path, form: str, moved: bool) -> None:
    fields = [each for each in fields_of(form) if each != "second" or not moved]
    views = VIEWS if moved else VIEWS[:-1]
    with loader_of(data, fields, views=[view for view, _ in views]) as loader:
        epochs = [list(loader) for _ in range(2)]
        seeds = loader.view_seeds
    for number, (seed, (_, alone)) in enumerate(zip(seeds, views, strict=True)):
        with loader_of(data, fields, **{"seed": seed, **alone}) as own:
            for epoch in epochs:
                for batch, expected in zip(epoch, own, strict=True):
                    assert list(batch) == list(expected)
                    for key, value in expected.items():
                        assert same(batch[key][number] if key in BY_VIEW else batch[key], value), key
    assert not same(epochs[0][0]["seg"][0], epochs[1][0]["seg"][0])


def test_a_bad_sample_is_replaced_in_each_view_with_its_fields(data: Path, copied: Any) -> None:
    from conftest import damage

    copy = copied(data)
    damage(copy, 3)
    fields = fields_of("list")
    views = [view for view, _ in VIEWS[:-1]]
    with loader_of(copy, fields, views=views, on_error="replace") as loader:
        batches, seeds = list(loader), loader.view_seeds
    for number, seed in enumerate(seeds):
        with loader_of(copy, fields, **{"seed": seed, **VIEWS[number][1]}, on_error="replace") as own:
            for batch, expected in zip(batches, own, strict=True):
                ids = batch["id"].tolist()
                rows = [row for row, sample in enumerate(expected["id"].tolist()) if sample == ids[row]]
                assert 3 not in ids
                assert len(rows) >= len(ids) - 1  # another one may stand in, where seeds differ
                for key in ("boxes", "pose", "seg", "second"):
                    assert all(same(batch[key][number][row], expected[key][row]) for row in rows)


def test_prepare_gets_boxes_by_view(data: Path) -> None:
    def prepare(batch: dict[str, Any]) -> dict[str, Any]:
        assert [[each.shape[1:] for each in view] for view in batch["boxes"]] == [[(4,)] * len(batch["id"])] * 2
        many = [sum(map(len, view)) for view in batch["pose"]]
        return {"objects": np.array(many), "boxes": [len(view) for view in batch["boxes_labels"]]}

    fields = ["image", Boxes("boxes", min_size=0), POSE, "id"]
    with loader_of(data, fields, views=2, prepare=prepare) as loader:
        for batch in loader:
            assert batch["objects"].tolist() == [sum(map(len, view)) for view in batch["pose"]]
            assert batch["boxes"] == [len(batch["id"])] * 2
            assert list(batch) == ["image", "boxes", "boxes_labels", "pose", "id", "objects"]


def test_a_preview_shows_each_view_with_its_marks(data: Path, tmp_path: Path) -> None:
    fields = ["image", "boxes", "seg", POSE, "caption"]
    with loader_of(data, fields, views=[view for view, _ in VIEWS]) as loader:
        seen = loader.look.at(np.arange(3), 1)
        assert [each["seg"].shape[1:] for each in seen.fields] == [each.shape[2:] for each in seen.views]
        assert fastpipe.preview(loader, tmp_path / "sheet.png", rows=2).photos == 2


@pytest.mark.parametrize("kind", [fastpipe.FiveCrop, fastpipe.TenCrop])
def test_each_of_several_crops_has_its_own(data: Path, kind: Any) -> None:
    options: dict[str, Any] = {"size": 20, "train": False}
    fields = fields_of("list")
    with loader_of(data, fields, crop=kind(resize=26, mask_fill=3), **options) as loader:
        batches, rows = list(loader), loader.look.recipe.crop.rows
    dataset = fastpipe.Dataset(
        data, crop=kind(resize=26, mask_fill=3), size=20, fields=["id", "image", "boxes", POSE, "seg", "second"]
    )
    middle = fastpipe.CenterCrop(resize=26, mask_fill=3)
    with loader_of(data, fields, crop=middle, **options) as loader:
        for batch, expected in zip(batches, loader, strict=True):
            count = len(batch["id"])
            assert batch["image"].shape == batch["second"].shape == (count, rows, 3, 20, 20)
            assert batch["seg"].shape == (count, rows, 20, 20)
            for key in ("image", "boxes", "boxes_labels", "pose", "seg", "depth", "second"):
                assert same([each[4] for each in batch[key]], list(expected[key])), key
            for row, number in enumerate(batch["id"].tolist()):
                alone = dataset[number]
                for key in ("image", "seg", "second"):
                    assert torch.equal(torch.as_tensor(alone[key]), batch[key][row]), key
                for crop in range(rows):
                    assert torch.equal(torch.as_tensor(alone["boxes"][crop]), batch["boxes"][row][crop])
                    assert torch.equal(alone["boxes_labels"][crop], batch["boxes_labels"][row][crop])
                    assert torch.equal(torch.as_tensor(alone["pose"][crop]), batch["pose"][row][crop][..., :2])
    if rows == 5:
        return
    swapped, other = [1, 0, 2, 4, 3], [1, 0, 3, 2]  # not the middle, which may be a pixel beside it
    objects = 0
    for batch in batches:
        for key in ("image", "seg", "depth", "second"):
            assert torch.equal(batch[key][:, 5:9].flip(-1), batch[key][:, other])
        for row in range(len(batch["id"])):
            for crop, mirror in enumerate(other):
                points, mirrored = batch["pose"][row][mirror].clone(), batch["pose"][row][5 + crop]
                points[..., 0] = 19 - points[..., 0]
                assert torch.equal(mirrored, points[:, swapped])
                boxes, turned = batch["boxes"][row][mirror], batch["boxes"][row][5 + crop]
                assert torch.equal(turned[:, [0, 2]], 20 - boxes[:, [2, 0]])
                objects += len(points) + len(boxes)
    assert objects > 20


@pytest.mark.parametrize("form", ["flat", "pad"])
def test_the_other_forms_of_boxes_on_several_crops(data: Path, form: str) -> None:
    options: dict[str, Any] = {"size": 20, "train": False, "crop": fastpipe.FiveCrop(resize=26)}
    with loader_of(data, ["image", "boxes"], **options) as loader:
        listed = list(loader)
    with loader_of(data, ["image", Boxes("boxes", form=form)], **options) as loader:
        for batch, expected in zip(loader, listed, strict=True):
            for row, crops in enumerate(expected["boxes"]):
                for crop, boxes in enumerate(crops):
                    if form == "pad":
                        many = int(batch["boxes_counts"][row, crop])
                        mine, labels = (batch[key][row, crop, :many] for key in ("boxes", "boxes_labels"))
                    else:
                        begin, end = batch["boxes_offsets"][row * 5 + crop :][:2].tolist()
                        mine, labels = batch["boxes"][begin:end], batch["boxes_labels"][begin:end]
                    assert torch.equal(mine, boxes)
                    assert torch.equal(labels, expected["boxes_labels"][row][crop])


def test_mirroring_crops_need_pairs_of_points(data: Path) -> None:
    words = "'pose' has points, and TenCrop mirrors images"
    with pytest.raises(fastpipe.ConfigError, match=words):
        loader_of(data, ["image", "pose"], size=20, train=False, crop=fastpipe.TenCrop())
    with pytest.raises(fastpipe.ConfigError, match=words):
        fastpipe.Dataset(data, size=20, crop=fastpipe.TenCrop(), fields=["image", "pose"])
    with pytest.raises(fastpipe.ConfigError, match="'pose' has points, and hflip mirrors images"):
        loader_of(data, ["image", "pose"], hflip=False, views=[View(), View(hflip=True)])
