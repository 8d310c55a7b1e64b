"""Batches with fields: the values of the right samples, moved with their pictures, in the order asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.batches.asked_fields import asked
from support.datasets.field_columns import remove_labels
from support.datasets.packed import damage
from support.devices.fake_stream import FakeStream
from support.pictures.drawn import FLAT_IMAGES, flat_number
from torch.utils._pytree import tree_leaves

import fastpipe
from fastpipe.dataset.fields import _with_options
from fastpipe.dataset.format.fields import FIELDS_FOLDER, Field
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, DatasetError
from fastpipe.loading.loader import Loader
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.content import Content
from fastpipe.plan.crops import RandomResizedCrop
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe

SIZE = (20, 24)
PAIRS = [(0, 1), (3, 2)]
EVERYTHING = (
    "caption",
    "image",
    "boxes",
    "key",
    "joints",
    "label",
    "count",
    "gaze",
    "tags",
    "notes",
    "sound",
    "id",
)

Copy = Callable[[Path], Path]


def loader_of(data: Path, fields: Any = None, **options: Any) -> Loader:
    options = {"size": SIZE, "num_workers": 2, "seed": 5, **options}
    return fastpipe.loader(data, 8, fields=asked(fields, options), **options)


def moved_by_torchvision(
    torchvision: ModuleType,
    index: PackedIndex,
    plan: BatchPlan,
    row: int,
    value: NDArray[np.float32],
) -> torch.Tensor:
    """Boxes (M, 4) or points (M, K, 2) of a row's sample, as its random crop and mirroring move them."""
    import torchvision.transforms.v2 as v2

    record = index.records[plan.samples[row]]
    canvas = int(record["height"]), int(record["width"])
    thing = torch.from_numpy(np.ascontiguousarray(value))
    if value.shape[1:] == (4,):
        thing = torchvision.tv_tensors.BoundingBoxes(thing, format="XYXY", canvas_size=canvas)
    else:
        thing = torchvision.tv_tensors.KeyPoints(thing, canvas_size=canvas)
    left, top, width, height = map(int, plan.crops.boxes[row])
    thing = v2.functional.resized_crop(thing, top, left, height, width, list(SIZE))
    thing = v2.functional.horizontal_flip(thing) if plan.flips[row] else thing
    thing = v2.functional.clamp_bounding_boxes(thing) if value.shape[1:] == (4,) else thing
    return thing.as_subclass(torch.Tensor)


def not_smaller(boxes: torch.Tensor, least: float) -> torch.Tensor:
    """Which boxes have sides of so many pixels."""
    return (boxes[:, 2:] - boxes[:, :2] >= least).all(dim=1)


def test_every_kind_has_the_values_of_its_sample(
    fielded: Path, values: dict[str, list[Any]]
) -> None:
    index = PackedIndex(fielded)
    seen = []
    with loader_of(fielded, EVERYTHING, flip_pairs=PAIRS, drop_last=False) as loader:
        for batch in loader:
            keys = [*EVERYTHING]
            keys.insert(keys.index("boxes") + 1, "boxes_labels")
            assert list(batch) == keys
            ids = batch["id"].tolist()
            seen += ids
            assert batch["image"].shape == (len(ids), 3, *SIZE)
            middle = batch["image"][:, :, 10, 12].numpy()
            for row, sample in enumerate(ids):
                assert batch["key"][row].endswith(f"{flat_number(middle[row]):02d}.jpg"), (
                    "the picture is the key's"
                )
                assert batch["label"][row] == index.records[sample]["label"]
                for name in ("caption", "notes", "sound"):
                    assert batch[name][row] == values[name][sample]
                assert batch["count"][row] == values["count"][sample]
                assert (
                    batch["gaze"][row].tolist()
                    == np.array(values["gaze"][sample], dtype=np.float32).tolist()
                )
                assert batch["tags"][row].nonzero().ravel().tolist() == values["tags"][sample]
            assert batch["tags"].dtype == batch["gaze"].dtype == torch.float32
            assert batch["count"].dtype == batch["id"].dtype == torch.int64
            assert batch["tags"].max() == 1
    assert sorted(seen) == list(range(FLAT_IMAGES))


def test_keys_can_have_other_names(fielded: Path, tmp_path: Path) -> None:
    keys = {
        "pixel_values": "image",
        "labels": "label",
        "at": "boxes",
        "number": "id",
        "text": "caption",
        "hot": "tags",
    }
    keys |= {"pose": "joints", "path": "key", "counted": "valid", "again": "label"}
    companions = {"at_labels": "boxes_labels", "at_offsets": "boxes_offsets"}
    options: dict[str, Any] = {"form": "flat", "flip_pairs": PAIRS}
    with loader_of(fielded, tuple(dict.fromkeys(keys.values())), **options) as plain:
        expected = list(plain)
    with loader_of(fielded, keys, **options) as loader:
        for batch, other in zip(loader, expected, strict=True):
            assert list(batch) == [*list(keys)[:3], *companions, *list(keys)[3:]]
            for key, name in {**keys, **companions}.items():
                assert str(batch[key]) == str(other[name])
            assert torch.equal(batch["pixel_values"], other["image"])
        assert fastpipe.preview(loader, tmp_path / "sheet.png", rows=2).photos == 2


def test_keys_of_buckets_and_mixtures_can_have_other_names(fielded: Path) -> None:
    keys = {"pixel_values": "image", "pixel_attention_mask": "pixel_mask", "sizes": "image_size"}
    with loader_of(fielded, keys, size="bucket") as loader:
        batch = next(iter(loader))
    assert [batch[key].shape[-2:] == batch["pixel_values"].shape[-2:] for key in keys] == [
        True,
        True,
        False,
    ]
    with fastpipe.loader(
        fastpipe.mix({str(fielded): 1.0}), 8, size=8, fields={"x": "image", "of": "source"}
    ) as loader:
        assert next(iter(loader))["of"].tolist() == [0] * 8


def test_boxes_and_points_move_with_their_pictures(
    fielded: Path, values: dict[str, list[Any]], torchvision: ModuleType
) -> None:
    index = PackedIndex(fielded)
    recipe = Recipe(8, SIZE, RandomResizedCrop(), 0.5, True, True, 5, Content.of(index))
    flipped = dropped = 0
    with loader_of(
        fielded, ("image", "boxes", "joints", "id"), flip_pairs=PAIRS, min_size=2
    ) as loader:
        for epoch in range(2):
            for batch in loader:
                samples = batch["id"].numpy()
                plan = EpochPlan(recipe, epoch).of(samples)
                for row, sample in enumerate(samples.tolist()):
                    boxes, labels = values["boxes"][sample]
                    expected = moved_by_torchvision(torchvision, index, plan, row, boxes)
                    kept = not_smaller(expected, 2)
                    assert torch.equal(batch["boxes"][row], expected[kept])
                    assert batch["boxes_labels"][row].tolist() == labels[kept.numpy()].tolist()
                    points = values["joints"][sample].astype(np.float32)
                    moved = moved_by_torchvision(torchvision, index, plan, row, points[..., :2])
                    moved = torch.cat([moved, torch.from_numpy(points[..., 2:])], dim=2)
                    moved = moved[:, [1, 0, 3, 2]] if plan.flips[row] else moved
                    assert torch.equal(batch["joints"][row], moved)
                    flipped += bool(plan.flips[row])
                    dropped += int((~kept).sum())
    assert flipped > 10
    assert dropped > 5


@pytest.mark.parametrize("name", ["boxes", "plain"])
def test_the_layouts_of_boxes_hold_the_same(fielded: Path, name: str) -> None:
    made = {}
    for layout in ("list", "flat", "pad"):
        with loader_of(fielded, ("image", name), form=layout) as loader:
            made[layout] = list(loader)
    for listed, flat, padded in zip(*made.values(), strict=True):
        counts = [len(each) for each in listed[name]]
        assert sum(counts)
        assert flat[f"{name}_offsets"].tolist() == [0, *np.cumsum(counts)]
        assert padded[f"{name}_counts"].tolist() == counts
        for key in (name, f"{name}_labels"):
            if key not in listed:
                assert name == "plain"
                continue
            views = listed[key]
            assert torch.equal(flat[key], torch.cat(views))
            assert all(
                view.untyped_storage().data_ptr() == views[0].untyped_storage().data_ptr()
                for view in views
            )
            assert padded[key].shape[:2] == (8, max(counts))
            for row, view in enumerate(views):
                assert torch.equal(padded[key][row, : len(view)], view)
                assert (padded[key][row, len(view) :] == (0 if key == name else -1)).all()
    companions = ["boxes_labels"] if name == "boxes" else []
    assert list(made["flat"][0]) == ["image", name, *companions, f"{name}_offsets"]
    assert list(made["pad"][0]) == ["image", name, *companions, f"{name}_counts"]


def test_all_boxes_stay_if_nothing_is_asked_of_them(
    fielded: Path, values: dict[str, list[Any]]
) -> None:
    with loader_of(fielded, ("image", "plain", "boxes", "id"), min_size=0) as loader:
        for batch in loader:
            for row, sample in enumerate(batch["id"].tolist()):
                assert len(batch["plain"][row]) == len(values["plain"][sample])
    counts = []
    for area in (0.0, 40.0, 1e6):
        with loader_of(fielded, ("image", "plain"), min_area=area) as loader:
            counts.append(sum(len(each) for batch in loader for each in batch["plain"]))
    assert counts[0] > counts[1] > counts[2] == 0


def test_images_and_labels_are_those_of_a_loader_without_fields(fielded: Path, flat: Path) -> None:
    with loader_of(flat) as plain, loader_of(fielded, ("label", "image", "valid")) as loader:
        for pair, batch in zip(plain, loader, strict=True):
            images, labels = pair
            assert list(batch) == ["label", "image", "valid"]
            assert torch.equal(batch["image"], images)
            assert torch.equal(batch["label"], labels)
            assert batch["image"].is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(batch["valid"], pair.valid)
    with loader_of(fielded) as loader:
        assert all(isinstance(batch, tuple) for batch in loader)


def test_a_replaced_sample_brings_its_own_fields(
    fielded: Path, values: dict[str, list[Any]], copied: Copy, torchvision: ModuleType
) -> None:
    copy = copied(fielded)
    bad = {3, 17}
    for sample in bad:
        damage(copy, sample)
    index = PackedIndex(copy)
    recipe = Recipe(8, SIZE, RandomResizedCrop(), 0.5, False, False, 5, Content.of(index))
    options = {"on_error": "replace", "shuffle": False, "drop_last": False}
    ids = []
    with loader_of(copy, ("image", "label", "id", "key", "caption", "plain"), **options) as loader:
        for batch in loader:
            ids += batch["id"].tolist()
            plan = EpochPlan(recipe, 0).of(batch["id"].numpy())
            for row, sample in enumerate(batch["id"].tolist()):
                colour = batch["image"][row, :, 10, 12].numpy()
                assert batch["key"][row].endswith(f"{flat_number(colour):02d}.jpg")
                assert batch["caption"][row] == values["caption"][sample]
                assert batch["label"][row] == index.records[sample]["label"]
                expected = moved_by_torchvision(
                    torchvision, index, plan, row, values["plain"][sample]
                )
                assert torch.equal(batch["plain"][row], expected[not_smaller(expected, 1)])
        assert loader.stats().replaced == len(bad)
    assert {place for place, sample in enumerate(ids) if place != sample} == bad
    assert bad.isdisjoint(ids)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"fields": ("image", "photo")},
            r"has image, label, id, key, source, valid, epoch, .*_size, caption, boxes, .*; got 'photo'",
        ),
        ({"fields": "image"}, "expected names, for example"),
        ({"fields": {}}, "or keys and names, {'pixel_values': 'image', 'labels': 'label'}; got {}"),
        ({"fields": {"image": "pixel_values"}}, "got 'pixel_values'"),
        ({"fields": {1: "image"}}, "expected texts as the keys of a batch, got 1"),
        (
            {"fields": {"x": "image", "at": "boxes", "at_labels": "label"}},
            "'at_labels' would be in a batch twice",
        ),
        ({"fields": ("image", "id", "id")}, "'id' would be in a batch twice"),
        (
            {"fields": ("label", "caption"), "augment": fastpipe.Augment()},
            'does not go with fields= without "image"',
        ),
        (
            {"fields": ("image", "joints")},
            r"'joints' has points, and hflip mirrors .*flip_pairs=\[\(1, 2\)",
        ),
        (
            {"fields": ("image", "joints"), "flip_pairs": [(0, 4)]},
            r"flip_pairs=\): expected 0 to 3, got 4",
        ),
        (
            {"fields": ("image", "joints"), "flip_pairs": [(0, 1), (1, 2)]},
            "a point is listed twice",
        ),
        ({"fields": ("image", "joints"), "flip_pairs": [0, 1]}, "got 0 as a pair"),
        (
            {"fields": ("image", "joints"), "flip_pairs": [(-1, 0)]},
            r"flip_pairs=\): expected 0 to .*, got -1",
        ),
        ({"fields": ("image", "joints"), "flip_pairs": 7}, r"flip_pairs=\): got 7; pass pairs"),
        (
            {"fields": ("image", fastpipe.Points("boxes"))},
            "'boxes' is a field of boxes; pass its name alone",
        ),
        (
            {"fields": ("image", fastpipe.Boxes("joints"))},
            "'joints' is a field of keypoints; pass its name alone",
        ),
        (
            {"fields": ("image", fastpipe.Boxes("label"))},
            "'label' is not a field of the dataset; pass its name alone",
        ),
        (
            {"fields": {"image": "image", "a": "boxes", "b": fastpipe.Boxes("boxes", form="pad")}},
            "with different options",
        ),
        (
            {"fields": ("image", "boxes"), "form": "nested"},
            r"Boxes\(form=\): expected 'list', 'flat' or 'pad'",
        ),
        (
            {"fields": ("image", "boxes"), "min_size": -1},
            r"Boxes\(min_size=\): expected a number of pixels, 0 or more",
        ),
        (
            {"fields": ("image", "boxes"), "min_area": "9"},
            r"Boxes\(min_area=\): expected a number of pixels, 0 or more",
        ),
        (
            {"boxes": "pad"},
            r'no argument boxes: it is an option of a field: .*fastpipe.Boxes\("boxes", form="pad"',
        ),
        ({"min_box_size": 3}, "no argument min_box_size: it is an option of a field"),
    ],
)
def test_wrong_options(fielded: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        loader_of(fielded, **options)


def test_the_old_argument_of_points_says_the_new_one(fielded: Path) -> None:
    with pytest.raises(
        ConfigError, match=r'no argument flip_pairs: .*fastpipe.Points\("joints", flip_pairs='
    ):
        fastpipe.loader(fielded, fields=("image", "joints"), flip_pairs=[(0, 1)])


def test_a_field_twice_comes_from_the_same_values(fielded: Path) -> None:
    boxes = fastpipe.Boxes("boxes", form="pad")
    with loader_of(fielded, {"image": "image", "a": boxes, "b": boxes}) as loader:
        batch = next(iter(loader))
    assert list(batch) == ["image", "a", "a_labels", "a_counts", "b", "b_labels", "b_counts"]
    assert torch.equal(batch["a"], batch["b"])


def test_each_field_of_points_has_pairs_of_its_own(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "packed", {"face": "keypoints", "hand": "keypoints"}) as writer:
        for number in range(8):
            points = [[[10.0, 5, 2], [30.0, 5, 2], [20.0, 20, 2]]]
            writer.add(np.full((30, 40, 3), number, np.uint8), face=points, hand=points)
    fields = [
        "image",
        fastpipe.Points("face", flip_pairs=[(0, 1)]),
        fastpipe.Points("hand", flip_pairs=[(1, 2)]),
    ]
    options: dict[str, Any] = {"crop": fastpipe.Resize(), "num_workers": 1, "fields": fields}
    with fastpipe.loader(tmp_path / "packed", 8, size=(30, 40), hflip=1.0, **options) as loader:
        batch = next(iter(loader))
    for row in range(8):
        assert batch["face"][row][0, :, 0].tolist() == [9, 29, 19]
        assert batch["hand"][row][0, :, 0].tolist() == [29, 19, 9]


def test_pairs_that_fields_have_themselves_may_differ() -> None:
    fields = {
        "face": Field("face", "keypoints", points=3, flip_pairs=((0, 1),)),
        "hand": Field("hand", "keypoints", points=3, flip_pairs=((1, 2),)),
        "foot": Field("foot", "keypoints", points=3),
    }
    own = {"face": ((0, 1),), "hand": ((1, 2),), "foot": None}
    for name, field in fields.items():
        assert _with_options(name, field) == _with_options(fastpipe.Points(name), field)
        assert _with_options(name, field) == fastpipe.Points(name, flip_pairs=own[name])
        for given in ((), ((0, 2),)):
            assert _with_options(fastpipe.Points(name, flip_pairs=given), field).flip_pairs == given


def test_a_dataset_without_fields_says_so(flat: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"has image, label, id, key, source, valid, epoch, .*_size; got 'caption'",
    ):
        loader_of(flat, ("image", "caption"))


def test_augmentations_that_would_falsify_fields(fielded: Path, torchvision: ModuleType) -> None:
    """Those of kornia are in test_loader_fields_kornia.py."""
    import torchvision.transforms.v2 as v2

    mixing = r"mixes images \(mixup, cutmix\) does not go with boxes and points in fields="
    unmoved = "that these cannot move"
    cases: list[tuple[Any, tuple[str, ...], str]] = [
        (
            fastpipe.Augment.imagenet(mixup=0.2),
            ("image", "label", "caption", "boxes"),
            rf"{mixing} \(boxes\)",
        ),
        (
            fastpipe.Augment.imagenet(cutmix=1.0),
            ("image", "tags", "joints"),
            rf"{mixing} \(joints\)",
        ),
        (
            fastpipe.Augment.randaugment(),
            ("image", "boxes"),
            rf"{unmoved} \(RandAugment or TrivialAugment; boxes\): they would stay",
        ),
        (
            fastpipe.Augment.trivial_augment(),
            ("image", "joints"),
            rf"{unmoved} \(RandAugment or TrivialAugment; joints\): they would stay",
        ),
        (
            torch.nn.AvgPool2d(2),
            ("image", "boxes", "caption"),
            rf"{unmoved} \(AvgPool2d; boxes\): they",
        ),
        (
            [v2.RandomRotation(10)],
            ("image", "boxes"),
            rf"{unmoved} \(RandomRotation; boxes\): they would",
        ),
    ]
    for augment, fields, words in cases:
        with pytest.raises(ConfigError, match=words):
            loader_of(fielded, fields, augment=augment, flip_pairs=[])


def test_augmentations_that_do_not(fielded: Path, torchvision: ModuleType) -> None:
    kornia = pytest.importorskip("kornia.augmentation")
    import torchvision.transforms.v2 as v2

    cases: list[tuple[Any, tuple[str, ...]]] = [
        (fastpipe.Augment.simclr(), ("image", "boxes", "id")),
        (fastpipe.Augment.imagenet(erasing=0.5), ("image", "boxes")),
        (fastpipe.Augment.randaugment(), ("image", "caption", "key")),
        (fastpipe.Augment.imagenet(mixup=0.2), ("image", "label", "id", "key", "valid")),
        (torch.nn.Sequential(torch.nn.Identity()), ("image", "boxes")),
        ([kornia.ColorJitter(0.2, 0.2, 0.2, 0.1)], ("image", "boxes")),
        ([kornia.RandomGamma()], ("image", "boxes")),
        ([v2.ColorJitter(0.2)], ("image", "boxes")),
    ]
    for augment, fields in cases:
        with (
            loader_of(fielded, fields, augment=augment) as loader,
            loader_of(fielded, ("image", "boxes")) as plain,
        ):
            for batch, other in zip(loader, plain, strict=True):
                assert batch["image"].dtype == torch.float32
                if "boxes" in batch:
                    assert all(map(torch.equal, batch["boxes"], other["boxes"]))
                if "label" in batch:
                    assert batch["label"].shape == (8, 3)


def test_a_damaged_sidecar_ends_the_epoch_with_its_name(fielded: Path, copied: Copy) -> None:
    copy = copied(fielded)
    file = copy / FIELDS_FOLDER / "caption.bytes.npy"
    data = bytearray(file.read_bytes())
    data[-3] = 0xFF
    file.write_bytes(data)
    with loader_of(copy, ("image", "caption"), train=False) as loader:
        batches = iter(loader)
        for _ in range(len(loader) - 1):
            next(batches)
        with pytest.raises(
            DatasetError,
            match=rf"caption\.bytes\.npy: the value of sample {FLAT_IMAGES - 1} is not valid text",
        ):
            next(batches)
        with pytest.raises(fastpipe.EngineError, match="an error ended this epoch"):
            next(batches)
    with loader_of(copy, ("image", "boxes")) as loader:  # of other fields nothing is opened
        assert len(list(loader)) == len(loader)
    file.unlink()
    with pytest.raises(DatasetError, match=r"caption\.bytes\.npy cannot be opened"):
        loader_of(copy, ("image", "caption"))
    with loader_of(copy) as loader:
        assert len(list(loader)) == len(loader)


def test_samples_without_labels(fielded: Path, copied: Copy) -> None:
    copy = copied(fielded)
    remove_labels(copy, slice(None, None, 2))
    with loader_of(copy, ("image", "label", "id")) as loader:
        for batch in loader:
            assert ((batch["label"] == -1) == (batch["id"] % 2 == 0)).all()
    with loader_of(copy) as loader:
        assert {-1} < {label for _, labels in loader for label in labels.tolist()}


def test_boxes_of_five_crops_where_none_is_left(fielded: Path) -> None:
    boxes = fastpipe.Boxes("boxes", form="pad", min_size=10_000)
    options: dict[str, Any] = {
        "crop": fastpipe.FiveCrop(),
        "size": 64,
        "train": False,
        "num_workers": 1,
    }
    with fastpipe.loader(fielded, 4, fields=["image", boxes], **options) as loader:
        batch = next(iter(loader))
    assert batch["boxes"].shape == (4, 5, 0, 4)
    assert batch["boxes_labels"].shape == (4, 5, 0)
    assert batch["boxes_counts"].tolist() == [[0] * 5] * 4


@pytest.mark.parametrize(
    ("layout", "augment"), [("list", None), ("flat", None), ("pad", fastpipe.Augment.simclr())]
)
def test_all_fields_go_to_the_device_in_the_copy_that_labels_go_in(
    fielded: Path, monkeypatch: pytest.MonkeyPatch, layout: str, augment: Any
) -> None:
    copies: list[torch.Tensor] = []

    class CountingStream(FakeStream):
        def copy(self, tensor: torch.Tensor) -> torch.Tensor:
            copies.append(super().copy(tensor))
            return copies[-1]

    def batches() -> list[dict[str, Any]]:
        fields = (*EVERYTHING, "valid")
        with loader_of(fielded, fields, form=layout, flip_pairs=PAIRS, augment=augment) as loader:
            return list(loader)

    expected = batches()
    monkeypatch.setattr("fastpipe.loading.factory.stream_of", lambda device: CountingStream())
    got = batches()
    assert len(copies) == 2 * len(got), "one of the images, one of all the rest"
    places = {copy.untyped_storage().data_ptr() for copy in copies}
    for batch, other in zip(got, expected, strict=True):
        assert list(batch) == list(other)
        for value, wanted in zip(tree_leaves(batch), tree_leaves(other), strict=True):
            if isinstance(wanted, torch.Tensor):
                assert torch.equal(value, wanted)
            else:
                assert value == wanted
        del batch["image"]  # which an augmentation makes anew
        tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
        assert {
            tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()
        } <= places


def test_a_batch_without_any_box_or_point(fielded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastpipe.loading.factory.stream_of", lambda device: FakeStream())
    for layout, shape in (("list", None), ("flat", (0, 4)), ("pad", (8, 0, 4))):
        with loader_of(
            fielded, ("image", "boxes", "joints"), form=layout, min_area=1e9, flip_pairs=PAIRS
        ) as loader:
            for batch in loader:
                if shape is None:
                    assert [boxes.shape for boxes in batch["boxes"]] == [(0, 4)] * 8
                    assert [labels.shape for labels in batch["boxes_labels"]] == [(0,)] * 8
                else:
                    assert batch["boxes"].shape == shape
