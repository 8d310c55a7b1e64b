"""Tests of crop=CropAt: a row of a batch for each box of each image."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from support.datasets.packed import damage
from support.pictures.drawn import smooth_noise
from support.remote.range_server import RangeServer
from support.running.soak import Tried, times

import fastpipe
from fastpipe.errors import ConfigError, DatasetError, SampleError

pytestmark = [pytest.mark.usefixtures("one_thread")]

SHAPES = [(64, 48), (100, 61), (32, 32), (20, 90), (33, 32), (9, 11), (1, 40)]  # width, height
IMAGES = 14
BOXES = times(4, 227)  # of an image, on average
FIELDS = ("image", "label", "id", "valid", "patch", "crop_box", "mirrored")
# Pillow keeps edges as float32: with eighths of a pixel, nothing is rounded.
CONFIGS = [
    {"scale": 1.0, "square": False},
    {"scale": 1.25, "square": False},
    {"scale": 1.5, "square": True},
    {"scale": 0.5, "square": True},
]


def random_boxes(rng: np.random.Generator, size: tuple[int, int], count: int) -> NDArray[Any]:
    """(count, 4) boxes whose edges are eighths of a pixel; some have no area."""
    corners = rng.integers(0, 8 * np.array(size) + 1, (count, 2, 2)) / 8
    boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    boxes[::7, 2:] = boxes[::7, :2]
    return boxes.astype(np.float32)


def boxes_of(number: int) -> NDArray[Any]:
    """The boxes of an image; every fourth image has none."""
    rng = np.random.default_rng(number)
    count = 0 if number % 4 == 3 else BOXES + number % 3
    return random_boxes(rng, SHAPES[number % len(SHAPES)], count)


def labels_of(number: int) -> list[int]:
    return [1 + (number + box) % 4 for box in range(len(boxes_of(number)))]


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("objects") / "data"
    kinds: dict[str, Any] = {
        "boxes": "boxes",
        "faces": "boxes",
        "points": "keypoints",
        "mask": "mask",
        "caption": "text",
    }
    with fastpipe.Writer(folder, kinds, classes=["a", "b"]) as writer:
        for number in range(IMAGES):
            width, height = SHAPES[number % len(SHAPES)]
            boxes = boxes_of(number)
            middles = (boxes[:, :2] + boxes[:, 2:]) / 2
            points = np.concatenate([middles, np.full((len(boxes), 1), 2)], axis=1)
            writer.add(
                smooth_noise(width, height, seed=number),
                label=number % 2,
                boxes={"boxes": boxes, "labels": labels_of(number)},
                faces=boxes[:1],
                points=points[:, None],
                mask=np.full((height, width), number + 1, dtype=np.uint8),
                caption=str(number),
            )
    return folder


def object_loader(data: Any, crop: Any = None, **options: Any) -> fastpipe.Loader:
    defaults: dict[str, Any] = {
        "size": 16,
        "crop": crop or fastpipe.CropAt("boxes"),
        "train": False,
        "fields": FIELDS,
        "num_workers": 1,
    }
    return fastpipe.loader(data, 7, **{**defaults, **options})


def rows_of(loader: fastpipe.Loader, *names: str) -> list[tuple[Any, ...]]:
    """The values of these fields, of each row that counts."""
    rows = []
    for batch in loader:
        for row in torch.nonzero(batch["valid"])[:, 0].tolist():
            rows.append(tuple(batch[name][row] for name in names))
    return rows


def places_of(loader: fastpipe.Loader) -> list[tuple[int, int]]:
    """The image and the number of the box of each row."""
    return [(int(image), int(patch[0])) for image, patch in rows_of(loader, "id", "patch")]


def all_places() -> list[tuple[int, int]]:
    return [(number, box) for number in range(IMAGES) for box in range(len(boxes_of(number)))]


def cut(box: NDArray[Any], size: tuple[int, int], scale: float, square: bool) -> list[float]:
    """What the docs say: x0, y0, x1, y1 of the part of an image."""
    sides = [float(box[2]) - float(box[0]), float(box[3]) - float(box[1])]
    if square:
        sides = [max(sides), max(sides)]
    edges = []
    for axis in range(2):
        side = min(max(sides[axis] * scale, 1.0), size[axis])
        middle = (float(box[axis]) + float(box[axis + 2])) / 2
        start = min(max(middle - side / 2, 0.0), size[axis] - side)
        edges.append((start, start + side))
    return [edges[0][0], edges[1][0], edges[0][1], edges[1][1]]


def by_pillow(image: Image.Image, part: list[float], size: tuple[int, int]) -> NDArray[Any]:
    """The part, resized to (height, width): of the pixels that it touches, and no others.

    Pillow chooses by the box whether it resizes rows or columns first, and the engine by these pixels,
    as torchvision does. Each order rounds in between, which now and then makes a difference of 1.
    """
    x0, y0, x1, y1 = part
    left, top = math.floor(x0), math.floor(y0)
    pixels = image.crop((left, top, math.ceil(x1), math.ceil(y1)))
    box = (x0 - left, y0 - top, x1 - left, y1 - top)
    return np.asarray(pixels.resize(size[::-1], Image.Resampling.BILINEAR, box=box))


@pytest.mark.parametrize("config", CONFIGS)
def test_objects_are_pillows_crops_in_order(
    objects: Path, config: dict[str, Any], tried: Tried
) -> None:
    dataset = fastpipe.open(objects)
    size = (16, 24)
    places = all_places()
    rows = 0
    equal = 0
    with object_loader(objects, fastpipe.CropAt("boxes", **config), size=size) as loader:
        assert len(loader) == -(-len(places) // 7)
        for image, label, number, patch, crop_box in rows_of(
            loader, "image", "label", "id", "patch", "crop_box"
        ):
            number, box = int(number), int(patch[0])
            assert (number, box) == places[rows]
            assert int(patch[1]) == len(boxes_of(number))
            assert int(label) == labels_of(number)[box]
            shape = SHAPES[number % len(SHAPES)]
            part = cut(boxes_of(number)[box], shape, **config)
            assert crop_box.tolist() == part
            whole = Image.fromarray(dataset[number][0].permute(1, 2, 0).numpy())
            expected = by_pillow(whole, part, size)
            difference = np.abs(image.permute(1, 2, 0).numpy().astype(int) - expected).max()
            has_whole_edges = all(edge % 1 == 0 for edge in part)
            assert difference <= (0 if has_whole_edges else 1), (number, box)
            equal += difference == 0
            rows += 1
    assert rows == len(places) >= times(50, 2500)
    assert equal > 0.95 * rows
    tried(
        "objects of images, cut out and resized",
        rows,
        "the pixels of Pillow; between pixels, at most 1 of 255 apart",
    )


def test_edges_that_are_no_eighths_are_cut_within_a_level(objects: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    boxes = np.sort(rng.random((60, 2, 2)) * (100, 61), axis=1).reshape(60, 4)
    with fastpipe.Writer(tmp_path / "data", {"boxes": "boxes"}) as writer:
        writer.add(smooth_noise(100, 61, seed=1), boxes=boxes)
    image = Image.fromarray(
        fastpipe.open(tmp_path / "data")[0][0].permute(1, 2, 0).numpy().astype(np.uint8)
    )
    crop = fastpipe.CropAt("boxes", scale=1.2, square=True)
    with object_loader(tmp_path / "data", crop) as loader:
        rows = rows_of(loader, "image", "crop_box")
    for box, (row, crop_box) in zip(boxes.astype(np.float32), rows, strict=True):
        part = cut(box, (100, 61), 1.2, True)
        assert crop_box.tolist() == pytest.approx(part, abs=1e-5)
        expected = by_pillow(image, part, (16, 16))
        assert np.abs(row.permute(1, 2, 0).numpy().astype(int) - expected).max() <= 1


@pytest.mark.parametrize(
    ("box", "scale"),
    # Of the last one floats give 5.999999999999993 for the left edge.
    [([6, 10, 116, 25], 1), ([6, 9.5, 116, 25.5], 0.9), ([11, 11, 111, 24], 1.1)],
)
def test_pixels_outside_the_part_have_no_influence(
    tmp_path: Path, box: list[float], scale: float
) -> None:
    pixels = np.full((40, 140, 3), 255, dtype=np.uint8)
    pixels[10:25, 6:116] = (10, 20, 30)
    mask = np.zeros((40, 140), dtype=np.uint8)
    mask[10:25, 6:116] = 5
    with fastpipe.Writer(tmp_path / "data", {"boxes": "boxes", "mask": "mask"}) as writer:
        writer.add(Image.fromarray(pixels), boxes=[box], mask=mask)
    fields = ("image", "mask", "valid")
    crop = fastpipe.CropAt("boxes", scale=scale)
    with object_loader(tmp_path / "data", crop, fields=fields, size=(9, 50)) as loader:
        ((image, ids),) = rows_of(loader, "image", "mask")
    assert torch.equal(image, image[:, :1, :1].expand(3, 9, 50))
    assert image[:, 0, 0].tolist() == [10, 20, 30]
    assert ids.unique().tolist() == [5]


def test_boxes_without_labels_have_the_label_of_their_sample(objects: Path) -> None:
    with object_loader(objects, fastpipe.CropAt("faces")) as loader:
        assert loader.classes == ["a", "b"]
        rows = [(int(number), int(label)) for number, label in rows_of(loader, "id", "label")]
    expected = [(number, number % 2) for number in range(IMAGES) if len(boxes_of(number))]
    assert rows == expected


def test_labels_have_the_names_of_the_field(tmp_path: Path) -> None:
    """COCO's boxes have names; its images have no label."""
    (tmp_path / "images").mkdir()
    names = ["ball", "cat", "dog"]
    annotations = []
    for number in range(6):
        smooth_noise(50, 40, seed=number).save(tmp_path / "images" / f"{number}.png")
        for place in range(number % 3):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": (number + place) % 3,
                    "bbox": [5 + place, 6, 20, 12],
                    "area": 240,
                    "iscrowd": 0,
                }
            )
    listing = {
        "images": [
            {"id": number, "file_name": f"{number}.png", "width": 50, "height": 40}
            for number in range(6)
        ],
        "annotations": annotations,
        "categories": [{"id": number, "name": name} for number, name in enumerate(names)],
    }
    (tmp_path / "instances.json").write_text(json.dumps(listing))
    fastpipe.pack(
        tmp_path / "instances.json",
        tmp_path / "data",
        image_root=tmp_path / "images",
        fields=["boxes"],
        workers=1,
    )
    with object_loader(tmp_path / "data") as loader:
        assert loader.classes == names == list(loader.dataset.fields["boxes"].names)
        labels = [int(label) for (label,) in rows_of(loader, "label")]
    assert sorted(labels) == sorted(box["category_id"] for box in annotations)
    smoothing = fastpipe.Augment(label_smoothing=0.2, mean=None, std=None)
    with object_loader(tmp_path / "data", augment=smoothing) as loader:
        soft = torch.stack([label for (label,) in rows_of(loader, "label")])
    expected = torch.nn.functional.one_hot(torch.tensor(labels), 3) * 0.8 + 0.2 / 3
    torch.testing.assert_close(soft, expected)


def test_soft_labels_of_boxes_need_the_number_of_classes(objects: Path) -> None:
    """A Writer's boxes have labels without names."""
    smoothing = fastpipe.Augment(label_smoothing=0.5)
    with pytest.raises(ConfigError, match=r"labels of 'boxes' have no names. Pass num_classes="):
        object_loader(objects, augment=smoothing)
    smoothing = fastpipe.Augment(label_smoothing=0.5, num_classes=5)
    with object_loader(objects, augment=smoothing) as loader:
        assert loader.classes == []
        assert next(iter(loader))["label"].shape == (7, 5)


def test_shuffled_and_on_ranks_each_box_comes_once(objects: Path) -> None:
    options: dict[str, Any] = {"train": True, "drop_last": False, "seed": 3}
    with object_loader(objects, **options) as loader:
        alone = places_of(loader)
    assert sorted(alone) == all_places() != alone
    for world_size in (2, 3):
        places = []
        for rank in range(world_size):
            with object_loader(objects, rank=rank, world_size=world_size, **options) as loader:
                places += places_of(loader)
        assert sorted(places) == all_places()


def test_ranks_have_the_rows_of_one_of_a_larger_batch(objects: Path) -> None:
    options: dict[str, Any] = {"train": True, "crop": fastpipe.CropAt("boxes", scale=1.5)}
    with fastpipe.loader(objects, 14, size=16, fields=FIELDS, num_workers=1, **options) as loader:
        whole = list(loader)
    ranks = [object_loader(objects, rank=rank, world_size=2, **options) for rank in range(2)]
    for batch, *parts in zip(whole, *ranks, strict=True):
        for name in FIELDS:
            together = torch.cat([part[name] for part in parts])
            assert torch.equal(together.sort(0).values, batch[name].sort(0).values), name
        ids = torch.cat([part["image"] for part in parts]).flatten(1).tolist()
        assert sorted(ids) == sorted(batch["image"].flatten(1).tolist())
    for loader in ranks:
        loader.close()


def test_a_resumed_run_has_the_same_objects(objects: Path) -> None:
    with object_loader(objects, train=True) as loader:
        epochs = [list(loader), list(loader)]
        loader.set_epoch(1)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
    with object_loader(objects, train=True) as loader:
        loader.load_state_dict(state)
        rest = list(loader)
    assert len(rest) == len(epochs[1]) - 1
    for batch, other in zip(rest, epochs[1][1:], strict=True):
        for name in FIELDS:
            assert torch.equal(batch[name], other[name])
    assert not torch.equal(epochs[0][0]["patch"], epochs[1][0]["patch"])
    with (
        object_loader(objects, fastpipe.CropAt("faces"), train=True) as loader,
        pytest.raises(ConfigError, match="the state does not fit this loader: crop_at was"),
    ):
        loader.load_state_dict(state)


@pytest.mark.parametrize("hflip", [False, 1.0])
def test_boxes_points_and_masks_move_into_the_row(objects: Path, hflip: Any) -> None:
    fields = (
        fastpipe.Boxes("boxes", min_size=0),
        fastpipe.Points("points", flip_pairs=[]),
        "mask",
        *FIELDS,
    )
    count = 0
    crop = fastpipe.CropAt("boxes", scale=1.25)
    with object_loader(objects, crop, fields=fields, hflip=hflip, size=(16, 24)) as loader:
        for boxes, labels, points, mask, number, patch in rows_of(
            loader, "boxes", "boxes_labels", "points", "mask", "id", "patch"
        ):
            number, box = int(number), int(patch[0])
            stored = boxes_of(number)
            left, top, right, bottom = cut(stored[box], SHAPES[number % len(SHAPES)], 1.25, False)
            ratio = np.array([24 / (right - left), 16 / (bottom - top)])
            corners = (stored.reshape(-1, 2, 2).astype(float) - (left, top)) * ratio
            corners = np.clip(corners, 0, (24, 16))
            if hflip:
                corners[:, :, 0] = 24 - corners[:, ::-1, 0]
            assert boxes.numpy() == pytest.approx(corners.reshape(-1, 4), abs=1e-3)
            assert labels.tolist() == labels_of(number)
            middle = (stored[box].reshape(2, 2).mean(axis=0) - (left, top)) * ratio
            if hflip:
                middle[0] = 23 - middle[0]
            assert points[box, 0, :2].numpy() == pytest.approx(middle, abs=1e-3)
            assert mask.unique().tolist() == [number + 1]
            count += 1
    assert count == len(all_places())


def test_mirrored_objects_are_mirrored(objects: Path) -> None:
    with object_loader(objects) as loader:
        plain = [image for (image,) in rows_of(loader, "image")]
    with object_loader(objects, hflip=0.5, seed=1) as loader:
        rows = rows_of(loader, "image", "mirrored")
    assert 0.2 < sum(bool(mirrored) for _, mirrored in rows) / len(rows) < 0.8
    for image, (row, mirrored) in zip(plain, rows, strict=True):
        assert torch.equal(row.flip(-1) if mirrored else row, image)


def test_a_part_and_several_datasets(objects: Path, tmp_path: Path) -> None:
    dataset = fastpipe.open(objects)
    chosen = [6, 5, 3, 2]
    expected = [
        (place, box) for place, number in enumerate(chosen) for box in range(len(boxes_of(number)))
    ]
    with object_loader(dataset.select(chosen)) as loader:
        assert places_of(loader) == expected
    with object_loader(dataset.select(chosen), train=True, drop_last=False) as loader:
        assert sorted(places_of(loader)) == expected
    copy = Path(shutil.copytree(objects, tmp_path / "copy"))
    with object_loader(fastpipe.concat(objects, copy), train=True, drop_last=False) as loader:
        seconds = [(number + IMAGES, box) for number, box in all_places()]
        assert sorted(places_of(loader)) == [*all_places(), *seconds]


def test_objects_by_url(objects: Path, tmp_path: Path) -> None:
    with object_loader(objects, train=True) as loader:
        expected = rows_of(loader, "image", "label", "patch")
    with RangeServer(objects.parent) as server:
        data = fastpipe.open(f"{server.url}/data", cache_dir=tmp_path / "cache")
        with object_loader(data, train=True) as loader:
            rows = rows_of(loader, "image", "label", "patch")
    for row, other in zip(rows, expected, strict=True):
        for value, expected_value in zip(row, other, strict=True):
            assert torch.equal(value, expected_value)


@pytest.mark.parametrize("num_workers", [1, 3])
def test_an_image_is_read_once_for_neighbouring_objects(objects: Path, num_workers: int) -> None:
    with object_loader(objects) as loader:
        expected = rows_of(loader, "image")
    with fastpipe.loader(
        objects,
        20 * BOXES,
        size=16,
        crop=fastpipe.CropAt("boxes"),
        fields=FIELDS,
        train=False,
        num_workers=num_workers,
    ) as loader:
        for (row,), (other,) in zip(rows_of(loader, "image"), expected, strict=True):
            assert torch.equal(row, other)
        stats = loader.stats()
    assert stats.images_read <= IMAGES + num_workers
    assert stats.images_decoded == len(expected)


def test_changed_boxes_are_an_error_with_verify(objects: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(objects, tmp_path / "copy"))
    object_loader(folder, verify=True).close()
    file = folder / "fields" / "boxes.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    for fields in (None, FIELDS):
        with pytest.raises(DatasetError, match=r"boxes\.npy has changed since it was packed"):
            object_loader(folder, verify=True, fields=fields)


def test_a_damaged_image_is_named(objects: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(objects, tmp_path / "copy"))
    damage(folder, 2)
    with object_loader(folder) as loader, pytest.raises(SampleError, match="sample 2"):
        list(loader)


def test_fields_that_no_crop_is_made_at(objects: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"CropAt\('cars'\): .* has no field 'cars'. Pass one of .*: boxes, faces"
    ):
        object_loader(objects, fastpipe.CropAt("cars"))
    with pytest.raises(
        ConfigError, match=r"'mask' of .* is a field of kind mask, not of boxes\. Pass one of"
    ):
        object_loader(objects, fastpipe.CropAt("mask"))
    with pytest.raises(
        ConfigError,
        match=r"RandomCrop\(where='mask'\): 'mask' of .* is a field of kind mask, not of boxes",
    ):
        object_loader(objects, fastpipe.RandomCrop(where="mask"))
    empty = fastpipe.open(objects).select([3, 7])
    with pytest.raises(ConfigError, match=r"none of the 2 samples of .* has any.* another crop="):
        object_loader(empty)
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        smooth_noise(30, 20, seed=1).save(tmp_path / "photos" / name / "1.jpg")
    with pytest.raises(ConfigError, match=r"Only packed datasets have fields of boxes: pack it"):
        object_loader(tmp_path / "photos", fields=None)
    fastpipe.pack(tmp_path / "photos", tmp_path / "packed", workers=1)
    with pytest.raises(
        ConfigError, match=r"has no field 'boxes', and no other field has boxes\. Pack"
    ):
        object_loader(tmp_path / "packed", fields=None)


def test_wrong_options() -> None:
    with pytest.raises(ConfigError, match="CropAt: expected the name of a field of boxes"):
        fastpipe.CropAt(32)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"CropAt\(scale=\): expected a number above 0, got 0"):
        fastpipe.CropAt("boxes", scale=0)
    with pytest.raises(ConfigError, match=r"CropAt\(square=\): expected True or False"):
        fastpipe.CropAt("boxes", square=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="size of the output belongs to the loader"):
        fastpipe.CropAt("boxes", size=32)  # type: ignore[call-arg]


def test_what_does_not_go_with_objects(objects: Path) -> None:
    words = r"Grid\(\) or CropAt\(\) does not go with"
    wrong: list[dict[str, Any]] = [
        {"sampler": fastpipe.Repeated(2)},
        {"epoch_size": 9},
        {"partition": 2},
        {"views": 2},
        {"size": None, "size_choices": [16, 24]},
        {"size": lambda epoch: 16},
        {"on_error": "replace"},
    ]
    for options in wrong:
        with pytest.raises(ConfigError, match=words):
            object_loader(objects, **options)
    with pytest.raises(ConfigError, match=words):
        object_loader(fastpipe.mix({objects: 1, fastpipe.open(objects).take(0.9): 1}))
    with object_loader(objects) as loader:
        with pytest.raises(ConfigError, match=words):
            loader.set_size(16)
        with pytest.raises(
            ConfigError, match="cannot draw crop=CropAt: it shows one crop of each image"
        ):
            fastpipe.preview(loader, "nowhere.png")
    with pytest.raises(ConfigError, match="CropAt gives as many rows as an image has parts"):
        fastpipe.open(objects).cropped(fastpipe.CropAt("boxes"), 16)
