"""Options that go together: each row is that of the simplest loader, of one view and without augmentation."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import kornia.augmentation as k
import numpy as np
import pytest
import torch
from support.batches.views import options_of
from support.checkout import ROOT
from support.datasets.field_values import FIELDS, sample
from support.datasets.packed import damage
from support.devices.fake_stream import FakeStream
from support.walk.refusals import words

import fastpipe
from fastpipe import Boxes, Maps, Points, View
from fastpipe.plan.option_conflicts import CONFLICTS
from fastpipe.tools.show.preview import preview_samples

pytestmark = [pytest.mark.usefixtures("one_thread")]

COUNT, BATCH = 14, 4
SIZE = (24, 30)
PAIRS = [(0, 1), (3, 4)]
POSE = Points("pose", flip_pairs=PAIRS)
BY_VIEW = (
    "image",
    "boxes",
    "boxes_labels",
    "boxes_offsets",
    "boxes_counts",
    "pose",
    "seg",
    "depth",
    "second",
    "relief",
)
PACKED = fastpipe.Patches(4, tokens=64, max_tokens=16)
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
    chosen = {
        "size": SIZE,
        "num_workers": 2,
        "seed": 4,
        "shuffle": False,
        "drop_last": False,
        **options,
    }
    return fastpipe.loader(data, BATCH, fields=fields, **chosen)


def fields_of(form: str) -> list[Any]:
    return [
        "label",
        "caption",
        "image",
        Boxes("boxes", form=form),
        "seg",
        "depth",
        "second",
        "relief",
        POSE,
        "tags",
        "id",
    ]


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit, in lists of lists."""
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
        )
    return bool(one == other)


def turning() -> Any:
    return fastpipe.Augment(
        k.AugmentationSequential(k.RandomAffine(30.0, (0.1, 0.1), p=1.0), data_keys=KEYS)
    )


# The last one moves masks, too.
VIEWS = [
    View(),
    View((16, 40), hflip=1.0, crop=fastpipe.Resize()),
    View(crop=fastpipe.RandomCrop(pad_if_needed=True, mask_fill=7)),
    View(augment=turning()),
]


def test_each_view_has_boxes_masks_and_points_of_its_own(data: Path) -> None:
    """test_option_draws.py compares views of all kinds."""
    fields = [each for each in fields_of("flat") if each != "second"]  # which no module moves
    with loader_of(data, fields, views=VIEWS) as loader:
        epochs = [list(loader) for _ in range(2)]
        seeds = loader.view_seeds
    for number, (seed, view) in enumerate(zip(seeds, VIEWS, strict=True)):
        with loader_of(data, fields, seed=seed, **options_of(view)) as own:
            for epoch in epochs:
                for batch, expected in zip(epoch, own, strict=True):
                    assert list(batch) == list(expected)
                    for key, value in expected.items():
                        assert same(batch[key][number] if key in BY_VIEW else batch[key], value), (
                            key
                        )
    assert not same(epochs[0][0]["seg"][0], epochs[1][0]["seg"][0])


def test_a_bad_sample_is_replaced_in_each_view_with_its_fields(data: Path, copied: Any) -> None:
    copy = copied(data)
    damage(copy, 3)
    fields = fields_of("list")
    with loader_of(copy, fields, views=VIEWS[:-1], on_error="replace") as loader:
        batches, seeds = list(loader), loader.view_seeds
    for number, seed in enumerate(seeds):
        with loader_of(
            copy, fields, seed=seed, on_error="replace", **options_of(VIEWS[number])
        ) as own:
            for batch, expected in zip(batches, own, strict=True):
                ids = batch["id"].tolist()
                rows = [
                    row for row, sample in enumerate(expected["id"].tolist()) if sample == ids[row]
                ]
                assert 3 not in ids
                assert len(rows) >= len(ids) - 1  # another one may stand in, where seeds differ
                for key in ("image", "boxes", "pose", "seg", "second"):
                    assert all(same(batch[key][number][row], expected[key][row]) for row in rows)


def test_prepare_gets_boxes_by_view(data: Path) -> None:
    def prepare(batch: dict[str, Any]) -> dict[str, Any]:
        assert [[each.shape[1:] for each in view] for view in batch["boxes"]] == [
            [(4,)] * len(batch["id"])
        ] * 2
        many = [sum(map(len, view)) for view in batch["pose"]]
        return {"objects": np.array(many), "boxes": [len(view) for view in batch["boxes_labels"]]}

    fields = ["image", Boxes("boxes", min_size=0), POSE, "id"]
    with loader_of(data, fields, views=2, prepare=prepare) as loader:
        for batch in loader:
            assert batch["objects"].tolist() == [sum(map(len, view)) for view in batch["pose"]]
            assert batch["boxes"] == [len(batch["id"])] * 2
            assert list(batch) == ["image", "boxes", "boxes_labels", "pose", "id", "objects"]


def test_options_of_a_field_are_those_of_single_samples_too(data: Path) -> None:
    fields: list[Any] = ["id", "image", Boxes("boxes", min_size=6, min_area=50.0), POSE]
    options: dict[str, Any] = {
        "size": SIZE,
        "hflip": 1.0,
        "seed": 4,
        "crop": fastpipe.RandomResizedCrop(),
    }
    dataset = fastpipe.open(data).with_fields(fields).cropped(**options, exact=True)
    dataset.set_epoch(0)
    counts = [0, 0]
    with (
        loader_of(data, fields, exact=True, **options) as loader,
        loader_of(data, [*fields[:2], "boxes"], **options) as all_of,
    ):
        for batch, every in zip(loader, all_of, strict=True):
            for row, number in enumerate(batch["id"].tolist()):
                alone = dataset[number]
                assert torch.equal(torch.as_tensor(alone["boxes"]), batch["boxes"][row])
                assert torch.equal(alone["boxes_labels"], batch["boxes_labels"][row])
                assert torch.equal(torch.as_tensor(alone["pose"]), batch["pose"][row][..., :2])
                counts[0] += len(batch["boxes"][row])
                counts[1] += len(every["boxes"][row])
    assert 0 < counts[0] < counts[1]
    with pytest.raises(
        fastpipe.ConfigError,
        match=r"a single sample has its boxes as one tensor, got Boxes.*leave form",
    ):
        fastpipe.open(data).with_fields(["image", Boxes("boxes", form="pad")])
    whole = fastpipe.open(data).with_fields({"targets": Boxes("boxes", min_size=1000)})
    assert sum(len(whole[number]["targets"]) for number in range(COUNT)) > counts[1] > 0


def test_a_preview_shows_each_view_with_its_marks(data: Path, tmp_path: Path) -> None:
    fields = ["image", "boxes", "seg", POSE, "caption"]
    with loader_of(data, fields, views=VIEWS) as loader:
        seen = preview_samples(loader, np.arange(3), 1)
        assert [each.fields["seg"].shape[1:] for each in seen] == [
            each.images.shape[2:] for each in seen
        ]
        assert fastpipe.preview(loader, tmp_path / "sheet.png", rows=2).photos == 2


def test_each_of_several_crops_has_its_own(data: Path) -> None:
    """The middle one is a CenterCrop's, and the last five are the first five, mirrored."""
    options: dict[str, Any] = {"size": 20, "train": False}
    fields = fields_of("list")
    with loader_of(
        data, fields, crop=fastpipe.TenCrop(resize=26, mask_fill=3), **options
    ) as loader:
        batches = list(loader)
    with loader_of(
        data, fields, crop=fastpipe.CenterCrop(resize=26, mask_fill=3), **options
    ) as loader:
        for batch, expected in zip(batches, loader, strict=True):
            count = len(batch["id"])
            assert batch["image"].shape == batch["second"].shape == (count, 10, 3, 20, 20)
            assert batch["seg"].shape == (count, 10, 20, 20)
            for key in ("image", "boxes", "boxes_labels", "pose", "seg", "depth", "second"):
                assert same([each[4] for each in batch[key]], list(expected[key])), key
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


def test_mirroring_crops_need_pairs_of_points(data: Path) -> None:
    mirrored = "'pose' has points, and TenCrop mirrors images"
    with pytest.raises(fastpipe.ConfigError, match=mirrored):
        loader_of(data, ["image", "pose"], size=20, train=False, crop=fastpipe.TenCrop())
    with pytest.raises(fastpipe.ConfigError, match=mirrored):
        fastpipe.open(data).cropped(fastpipe.TenCrop(), size=20).with_fields(["image", "pose"])
    with pytest.raises(fastpipe.ConfigError, match=mirrored):
        fastpipe.open(data).with_fields(["image", "pose"]).cropped(fastpipe.TenCrop(), size=20)
    with pytest.raises(fastpipe.ConfigError, match="'pose' has points, and hflip mirrors images"):
        loader_of(data, ["image", "pose"], hflip=False, views=[View(), View(hflip=True)])


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of many shapes; all pixels of a mask, and of a second picture, are the sample's number and 1."""
    folder = tmp_path_factory.mktemp("together") / "marked"
    rng = np.random.default_rng(1)
    with fastpipe.Writer(
        folder, {"who": "mask", "pair": "image", "caption": "text", "count": "int"}
    ) as writer:
        for number in range(COUNT):
            size = (40 + 9 * (number % 4), 70 - 11 * (number % 3))
            writer.add(
                rng.integers(0, 256, (*size, 3), dtype=np.uint8),
                label=number % 3,
                who=np.full(size, number + 1, dtype=np.uint8),
                pair=np.full((*size, 3), 10 * number + 5, dtype=np.uint8),
                caption=str(number),
                count=number,
            )
    return folder


def plain_pixels(modules: Any = (), **options: Any) -> fastpipe.Augment:
    return fastpipe.Augment(modules, mean=None, std=None, **options)


def hot(labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(labels, 3).float()


MIXING: dict[str, Any] = {
    "mixup": lambda: plain_pixels(mixup=0.4),
    "cutmix": lambda: plain_pixels(cutmix=1.0),
    "both": lambda: plain_pixels(mixup=0.4, cutmix=1.0),
    "smoothing": lambda: plain_pixels(cutmix=1.0, label_smoothing=0.2),
    "kornia's mixup": lambda: plain_pixels(k.RandomMixUpV2((0.1, 0.9), p=0.7)),
    "kornia's cutmix": lambda: plain_pixels(k.RandomCutMixV2(use_correct_lambda=True, p=0.7)),
}


def check_mixed(image: torch.Tensor, own: torch.Tensor, other: torch.Tensor, lam: float) -> None:
    """An image in [0, 1] is that of two uint8 ones, with shares of lam and 1 - lam, of each pixel or of the pixels."""
    one, two = own / 255, other / 255
    if torch.allclose(image, one * lam + two * (1 - lam), atol=1e-5):
        return
    mine = ((image - one).abs() < 1e-5).all(dim=0)
    theirs = ((image - two).abs() < 1e-5).all(dim=0)
    assert (mine | theirs).all()
    assert abs(float(mine.float().mean()) - lam) < 0.01  # a pixel of noise may be the same in both


@pytest.mark.parametrize("name", MIXING)
def test_a_mixed_batch_says_who_is_mixed_with_whom(marked: Path, name: str) -> None:
    fields = ["image", "label", "caption", "count", "mix_lam", "id", "mix_index", "key"]
    smoothing = 0.2 if name == "smoothing" else 0.0
    mixed = 0
    with (
        loader_of(marked, fields, augment=MIXING[name]()) as loader,
        loader_of(marked, fields[:4]) as plain,
    ):
        for batch, raw in zip(loader, plain, strict=True):
            assert list(batch) == fields
            assert (
                batch["caption"]
                == raw["caption"]
                == [str(number) for number in batch["id"].tolist()]
            )
            assert torch.equal(batch["count"], raw["count"])
            lam, index = batch["mix_lam"], batch["mix_index"]
            assert (lam.dtype, index.dtype) == (torch.float32, torch.int64)
            labels = hot(raw["label"]) * lam[:, None] + hot(raw["label"])[index] * (
                1 - lam[:, None]
            )
            torch.testing.assert_close(batch["label"], labels * (1 - smoothing) + smoothing / 3)
            for row, partner in enumerate(index.tolist()):
                check_mixed(
                    batch["image"][row], raw["image"][row], raw["image"][partner], float(lam[row])
                )
                mixed += 0.01 < float(lam[row]) < 0.99
    assert mixed > 5


@pytest.mark.parametrize("name", ["cutmix", "smoothing", "kornia's cutmix"])
def test_cutmix_pastes_masks_and_second_pictures(marked: Path, name: str) -> None:
    fields = ["image", "who", "pair", "mix_lam", "mix_index", "id"]
    with (
        loader_of(marked, fields, augment=MIXING[name]()) as loader,
        loader_of(marked, ["image"]) as plain,
    ):
        for batch, raw in zip(loader, plain, strict=True):
            assert (batch["who"].dtype, batch["pair"].dtype) == (torch.uint8, torch.uint8)
            for row, partner in enumerate(batch["mix_index"].tolist()):
                own, other = (int(batch["id"][each]) + 1 for each in (row, partner))
                who = batch["who"][row]
                assert set(who.unique().tolist()) <= {own, other}
                if partner != row:  # kornia's partner may be the image itself
                    assert float((who == own).float().mean()) == pytest.approx(
                        float(batch["mix_lam"][row]), abs=1e-6
                    )
                assert torch.equal(batch["pair"][row], (10 * who - 5).expand(3, -1, -1))
                pixels = torch.where(who == own, raw["image"][row], raw["image"][partner])
                torch.testing.assert_close(batch["image"][row], pixels / 255)


@pytest.mark.parametrize("name", MIXING)
def test_all_views_have_one_partner_and_one_share(marked: Path, name: str) -> None:
    augment = MIXING[name]()
    views = [View(), View(hflip=1.0, crop=fastpipe.Resize()), View(augment=augment)]
    alone: list[dict[str, Any]] = [{}, {"hflip": 1.0, "crop": fastpipe.Resize()}, {}]
    fields = ["image", "label", "mix_lam", "mix_index"]
    with loader_of(marked, fields, augment=augment, views=views) as loader:
        batches, seeds = list(loader), loader.view_seeds
    with loader_of(marked, fields, augment=augment) as one:
        for batch, expected in zip(batches, one, strict=True):
            assert torch.equal(batch["image"][0], expected["image"])
            assert all(torch.equal(batch[key], expected[key]) for key in fields[1:])
    for view, seed in enumerate(seeds):
        with loader_of(marked, **{"seed": seed, **alone[view]}) as plain:
            for batch, raw in zip(batches, plain, strict=True):
                for row, partner in enumerate(batch["mix_index"].tolist()):
                    lam = float(batch["mix_lam"][row])
                    check_mixed(
                        batch["image"][view][row], raw.images[row], raw.images[partner], lam
                    )


def test_labels_are_smoothed_once_for_all_views_and_crops(marked: Path) -> None:
    augment = plain_pixels(label_smoothing=0.3)
    with loader_of(marked, augment=augment) as plain:
        expected = [batch.labels for batch in plain]
    with loader_of(marked, augment=augment, views=[View(), View((9, 30))]) as loader:
        assert same([batch.labels for batch in loader], expected)
    five: dict[str, Any] = {"crop": fastpipe.FiveCrop(), "train": False}
    with loader_of(marked, augment=augment, **five) as loader, loader_of(marked, **five) as raw:
        for batch, own, labels in zip(loader, raw, expected, strict=True):
            assert torch.equal(batch.labels, labels)
            torch.testing.assert_close(batch.images, own.images / 255)


def test_what_is_mixed_several_times_has_no_partner(marked: Path) -> None:
    for augment in (plain_pixels(k.RandomMixUpV2(), mixup=0.2), plain_pixels(k.RandomMosaic())):
        with pytest.raises(
            fastpipe.ConfigError, match='does not go with "mix_index" and "mix_lam" in fields='
        ):
            loader_of(marked, ["image", "mix_lam"], augment=augment)
        with loader_of(marked, ["image", "caption"], augment=augment) as loader:
            assert len(next(iter(loader))["caption"]) == BATCH
    with pytest.raises(fastpipe.ConfigError, match="got 'mix_index'"):
        loader_of(marked, ["image", "mix_index"])
    for augment in (
        plain_pixels(mixup=0.2),
        plain_pixels(mixup=0.2, cutmix=0.2),
        plain_pixels(k.RandomMosaic()),
    ):
        with pytest.raises(
            fastpipe.ConfigError,
            match=r"does not go with masks and second images in fields= \(who\)",
        ):
            loader_of(marked, ["image", "who"], augment=augment)


BUCKETS = fastpipe.Buckets(area=40 * 40, size_divisible=16, mask_fill=0)


def test_views_of_buckets_show_the_whole_of_each_image(marked: Path) -> None:
    fields = ["image", "who", "pixel_mask", "image_size", "id"]
    affine = k.AugmentationSequential(
        k.RandomAffine(25.0, (0.2, 0.2), p=1.0), data_keys=["input", "mask"]
    )
    views = [View(hflip=False), View(hflip=1.0), View(augment=plain_pixels(affine))]
    alone: list[dict[str, Any]] = [
        {"hflip": False},
        {"hflip": 1.0},
        {"augment": plain_pixels(affine)},
    ]
    with loader_of(marked, fields, size=BUCKETS, views=views) as loader:
        batches, seeds = list(loader), loader.view_seeds
    for view, options in enumerate(alone):
        with loader_of(marked, fields, size=BUCKETS, **{"seed": seeds[view], **options}) as own:
            for batch, expected in zip(batches, own, strict=True):
                assert torch.equal(batch["id"], expected["id"])
                assert torch.equal(batch["image_size"], expected["image_size"])
                for key in ("image", "who", "pixel_mask"):
                    assert torch.equal(batch[key][view], expected[key])
    with loader_of(marked, size=BUCKETS, views=views) as loader:
        for pair, batch in zip(loader, batches, strict=True):
            assert same(pair.pixel_mask, batch["pixel_mask"])
            assert same(pair.image_sizes, batch["image_size"])
    with loader_of(marked, size=BUCKETS, views=2) as loader:
        for pair in loader:
            assert [mask.sum((1, 2)).tolist() for mask in pair.pixel_mask] == [
                pair.image_sizes.prod(1).tolist()
            ] * 2


@pytest.mark.parametrize(
    ("modules", "mixing"),
    [
        (
            [
                k.RandomAffine(30.0, (0.2, 0.2), (0.7, 1.2), 10.0, p=0.8),
                k.ColorJitter(0.2, 0.2, 0.2, 0.1),
            ],
            {},
        ),
        (
            [k.RandomHorizontalFlip(p=0.5), k.RandomPerspective(0.4, p=1.0), k.Resize((30, 40))],
            {"cutmix": 1.0},
        ),
        ([k.RandomRotation(40.0, p=1.0)], {"cutmix": 1.0}),
    ],
)
def test_the_pixel_mask_moves_with_the_image(
    marked: Path, modules: list[Any], mixing: dict[str, float]
) -> None:
    """As a mask does that a sample has itself, of the same pixels."""
    fields = ["image", "who", "pixel_mask", "id"]
    augment = plain_pixels(
        k.AugmentationSequential(*modules, data_keys=["input", "mask"]), **mixing
    )
    with loader_of(marked, fields, size=BUCKETS, augment=augment) as loader:
        batches = list(loader)
    moved = 0
    with loader_of(marked, fields, size=BUCKETS) as plain:
        for batch, raw in zip(batches, plain, strict=True):
            assert batch["pixel_mask"].dtype == torch.bool
            assert batch["pixel_mask"].shape[1:] == batch["image"].shape[2:]
            assert torch.equal(batch["pixel_mask"], batch["who"] > 0)
            moved += not same(batch["pixel_mask"], raw["pixel_mask"])
    assert moved
    with loader_of(
        marked, size=BUCKETS, augment=plain_pixels(modules, **mixing)
    ) as loader:  # names no mask
        assert same(
            [pair.pixel_mask for pair in loader], [batch["pixel_mask"] for batch in batches]
        )


def test_the_pixel_mask_follows_randaugment(marked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastpipe.device.augment import presets

    keep = {
        name: (made if name == "warp" else (lambda images, *_: images), count)
        for name, (made, count) in presets._FUNCTIONS.items()
    }
    monkeypatch.setattr(presets, "_FUNCTIONS", keep)  # of colours, nothing is to be seen
    buckets = fastpipe.Buckets(area=40 * 40, size_divisible=16, fill=0)
    seen = 0
    with loader_of(
        marked, size=buckets, augment=fastpipe.Augment.randaugment(n=3, m=20, mean=None, std=None)
    ) as loader:
        for batch in loader:
            black = (batch.images == 0).all(dim=1)
            assert black[~batch.pixel_mask].all()
            assert float(black[batch.pixel_mask].float().mean()) < 0.01
            seen += int((~batch.pixel_mask).sum())
    assert seen


@pytest.mark.parametrize("name", ["mixup", "cutmix", "kornia's mixup", "kornia's cutmix"])
def test_buckets_are_mixed_by_the_pixels_of_images(marked: Path, name: str) -> None:
    fields = ["image", "label", "pixel_mask", "image_size", "mix_lam", "mix_index", "id"]
    fields += ["who"] * ("cutmix" in name)
    names = ["image", "label", "pixel_mask", "image_size", "id"]
    partly = 0
    with (
        loader_of(marked, fields, size=BUCKETS, augment=MIXING[name]()) as loader,
        loader_of(marked, names, size=BUCKETS) as plain,
    ):
        for batch, raw in zip(loader, plain, strict=True):
            assert torch.equal(batch["image_size"], raw["image_size"])
            lam, index = batch["mix_lam"], batch["mix_index"]
            labels = hot(raw["label"]) * lam[:, None] + hot(raw["label"])[index] * (
                1 - lam[:, None]
            )
            torch.testing.assert_close(batch["label"], labels)
            if "mixup" in name:
                partners = raw["pixel_mask"][index] & (lam < 1)[:, None, None]
                assert torch.equal(batch["pixel_mask"], raw["pixel_mask"] | partners)
                mixed = torch.lerp(
                    raw["image"][index] / 255, raw["image"] / 255, lam[:, None, None, None]
                )
                torch.testing.assert_close(batch["image"], mixed)
                continue
            assert torch.equal(batch["pixel_mask"], batch["who"] > 0)
            own = (batch["who"] == batch["id"][:, None, None] + 1).sum((1, 2))
            others = index != torch.arange(len(index))  # kornia's partner may be the image itself
            torch.testing.assert_close((own / batch["pixel_mask"].sum((1, 2)))[others], lam[others])
            partly += int(((lam > 0.1) & (lam < 0.9)).sum())
    assert partly > 2 or "mixup" in name


def test_the_share_of_a_box_counts_images_of_another_size(marked: Path) -> None:
    """cutmix after a resize of the whole row: nearly, for the resize rounds."""
    turn = k.AugmentationSequential(k.Resize((64, 96)), data_keys=["input", "mask"])
    seen = 0
    with loader_of(
        marked,
        ["who", "image", "mix_lam", "id"],
        size=BUCKETS,
        augment=plain_pixels(turn, cutmix=1.0),
    ) as loader:
        for batch in loader:
            own = (batch["who"] == batch["id"][:, None, None] + 1).sum((1, 2)) / (
                batch["who"] > 0
            ).sum((1, 2))
            assert (own - batch["mix_lam"]).abs().max() < 0.03
            seen += int(((own > 0.1) & (own < 0.9)).sum())
    assert seen


def test_views_of_buckets_are_mixed_alike(marked: Path) -> None:
    fields = ["image", "label", "who", "pixel_mask", "mix_lam", "id"]
    with loader_of(
        marked, fields, size=BUCKETS, views=2, augment=plain_pixels(cutmix=1.0)
    ) as loader:
        for batch in loader:
            for who, shown in zip(batch["who"], batch["pixel_mask"], strict=True):
                own = (who == batch["id"][:, None, None] + 1).sum((1, 2))
                torch.testing.assert_close(own / shown.sum((1, 2)), batch["mix_lam"])


def test_the_page_has_the_table_of_what_does_not_go_together() -> None:
    head = "| option | does not go with | because | instead |\n|---|---|---|---|\n"
    table = head + "".join(f"| {' | '.join(pair)} |\n" for pair in CONFLICTS.values())
    assert (ROOT / "docs" / "reference" / "together.md").read_text().endswith(f"\n\n{table}")


def test_each_row_of_the_table_is_an_error(data: Path, marked: Path) -> None:
    """Before any batch; test_option_draws.py looks at these rows among other options, too."""
    numbers = [*range(COUNT)]
    mixture = fastpipe.mix({marked: 1, fastpipe.open(marked).take(0.9): 1})
    five: dict[str, Any] = {"crop": fastpipe.FiveCrop(), "train": False}
    without: Any = fastpipe.Weighted({}, replacement=False)
    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "mixing + boxes": (
            data,
            {"fields": ["image", "boxes"], "augment": plain_pixels(mixup=0.2)},
        ),
        "mixup + masks": (data, {"fields": ["image", "seg"], "augment": plain_pixels(mixup=0.2)}),
        "several mixings + mix_index": (
            marked,
            {"fields": ["image", "mix_lam"], "augment": plain_pixels(k.RandomMosaic())},
        ),
        "augment + fields without images": (
            data,
            {"fields": ["label"], "augment": fastpipe.Augment()},
        ),
        "mixing + several crops": (marked, {**five, "augment": plain_pixels(cutmix=1.0)}),
        "buckets + lists of pictures": (data, {"size": "bucket", "fields": ["image", "pages"]}),
        "buckets + mosaic": (marked, {"size": "bucket", "augment": plain_pixels(k.RandomMosaic())}),
        "soft labels + unlabelled samples": (
            fastpipe.open(marked).with_labels([-1, *[0] * (COUNT - 1)]),
            {"augment": plain_pixels(cutmix=1.0)},
        ),
        "views + different soft labels": (
            marked,
            {"views": [View(), View(augment=plain_pixels(label_smoothing=0.1))]},
        ),
        "parts + order": (marked, {"crop": fastpipe.Grid(), "epoch_size": 8}),
        "parts + other crops": (marked, {"crop": fastpipe.Grid(), "views": 2}),
        "parts + replace": (marked, {"crop": fastpipe.Grid(), "on_error": "replace"}),
        "views + several crops": (marked, {**five, "views": 2}),
        "hflip + FiveCrop": (marked, {**five, "hflip": True}),
        "whole images + crop": (marked, {"size": "bucket", "crop": fastpipe.CenterCrop()}),
        "whole images + other sizes": (marked, {"size": "bucket", "size_choices": [12, 16]}),
        "native sizes + augment": (
            marked,
            {"size": fastpipe.Native(), "augment": fastpipe.Augment.imagenet()},
        ),
        "patches + augment": (
            marked,
            {"size": fastpipe.Patches(4), "augment": fastpipe.Augment.simclr()},
        ),
        "patches + pictures": (data, {"size": fastpipe.Patches(4), "fields": ["image", "seg"]}),
        "budget + partition": (marked, {"size": PACKED, "partition": 2}),
        "budget + PerClass": (marked, {"size": PACKED, "sampler": fastpipe.PerClass(2)}),
        "moving module + unmovable fields": (
            data,
            {"fields": ["image", "seg"], "augment": plain_pixels(k.RandomAffine(9.0))},
        ),
        "moving module + directions": (
            data,
            {"fields": ["image", Maps("relief", flip_signs=(0,))], "augment": turning()},
        ),
        "buckets + unknown module": (marked, {"size": "bucket", "augment": torch.nn.AvgPool2d(2)}),
        "buckets + PerClass": (marked, {"size": "bucket", "sampler": fastpipe.PerClass(2)}),
        "mixture + listing sampler": (mixture, {"sampler": numbers}),
        "mixture + no replacement": (mixture, {"sampler": without, "epoch_size": 8}),
        "partition + listing sampler": (marked, {"sampler": numbers, "partition": 2}),
        "shuffle + ordered sampler": (marked, {"sampler": fastpipe.Sequential(), "shuffle": True}),
        "epoch_size + listing sampler": (marked, {"sampler": numbers, "epoch_size": 8}),
    }
    assert {*cases, "set_size + sized views"} == {
        *CONFLICTS
    }  # set_size has no option: test_views.py
    for pair, (dataset, options) in cases.items():
        options = {"shuffle": None, **options}
        with pytest.raises(
            fastpipe.ConfigError, match=f"^{re.escape(words(pair))}.*: {CONFLICTS[pair].reason}"
        ):
            loader_of(dataset, **options)


MOVED = ["image", "label", "who", "pixel_mask", "image_size", "mix_lam", "mix_index", "id"]


def moved_batches(data: Path, **options: Any) -> list[Any]:
    """Views of buckets that are turned and mixed, with their masks."""
    augment = plain_pixels(
        k.AugmentationSequential(k.RandomRotation(30.0, p=1.0), data_keys=["input", "mask"]),
        cutmix=1.0,
    )
    with loader_of(data, size=BUCKETS, views=2, augment=augment, **options) as loader:
        return list(loader)


@pytest.mark.parametrize("fields", [MOVED, None])
def test_all_of_it_goes_by_a_side_stream(
    marked: Path, monkeypatch: pytest.MonkeyPatch, fields: Any
) -> None:
    """The training loop's stream is told of all memory that a batch is in."""
    expected = moved_batches(marked, fields=fields)
    stream = FakeStream()
    monkeypatch.setattr(sys.modules["fastpipe.loading.factory"], "stream_of", lambda device: stream)
    made = moved_batches(marked, fields=fields)
    assert len(made) == len(expected) == len(stream.handed)
    for batch, other, memory in zip(made, expected, stream.handed, strict=True):
        mine, theirs = (
            [*each.values()] if fields else [*each, each.image_sizes, each.pixel_mask]
            for each in (batch, other)
        )
        assert same(mine, theirs)
        tensors = [
            part for value in mine for part in (value if isinstance(value, list) else [value])
        ]
        assert {tensor.untyped_storage().data_ptr() for tensor in tensors} <= set(memory)
