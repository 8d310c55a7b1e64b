"""Tests of padded crops and of several crops of a picture: images, masks, boxes and points are torchvision's."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastpipe import _engine
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.errors import ConfigError
from fastpipe.plan.crop_boxes import Canvas, Crops, canvas_of, plan_crops
from fastpipe.plan.crops import (
    INTERPOLATIONS,
    PADDING_MODES,
    Crop,
    FiveCrop,
    Letterbox,
    RandomCrop,
    TenCrop,
)
from fastpipe.plan.placed import geometry_of, move_boxes, move_points

pytestmark = pytest.mark.usefixtures("one_thread")

DRAWS = 100_000
NOBODY = np.zeros(1, dtype=np.int64)
side = st.integers(1, 60)


@pytest.fixture(scope="module")
def v2(torchvision: ModuleType) -> Any:
    import torchvision.transforms.v2 as v2

    return v2


def planned(crop: Crop, size: tuple[int, int], width: int, height: int, seed: int = 0) -> Crops:
    return plan_crops(
        crop, size, np.array([width]), np.array([height]), seed=seed, epoch=0, samples=NOBODY
    )


def rows_of(
    image: NDArray[np.uint8], crops: Crops, size: tuple[int, int], flip: bool
) -> list[NDArray[np.uint8]]:
    """What the engine makes of a picture, or of a mask."""
    resize: Any = _engine.resize if image.ndim == 3 else _engine.resize_mask
    rendering = crops.rendering.keywords(PixelForm())
    mirrored = [flip] * len(crops.boxes) if crops.mirrored is None else crops.mirrored
    return [
        resize(image, *size, tuple(box), tuple(bounds), bool(turned), **rendering)
        for box, bounds, turned in zip(
            crops.boxes.tolist(), crops.bounds.tolist(), mirrored, strict=True
        )
    ]


def padding_after(canvas: Canvas, size: tuple[int, int]) -> NDArray[np.int64]:
    """(n, 2) pixels of padding right and below."""
    return canvas.room + size[::-1] - canvas.resized - canvas.padding_before


def by_torchvision(
    v2: Any, thing: Any, crop: RandomCrop | Letterbox, drawn: Any, flip: bool
) -> Any:
    """Resized, padded and cut one after the other, by v2's functions, at the place that was drawn."""
    size, crops, width, height = drawn
    canvas = canvas_of(crop, size, np.array([width]), np.array([height]))
    (resized,), (before,), (after,) = (
        each.tolist()
        for each in (canvas.resized, canvas.padding_before, padding_after(canvas, size))
    )
    do = v2.functional
    if resized != [width, height]:
        thing = do.resize(thing, resized[::-1], v2.InterpolationMode[crop.interpolation.upper()])
    fill: Any = list(crops.rendering.fill[:3])
    if not isinstance(thing, Image.Image):
        fill = crops.rendering.mask_fill
    if crops.rendering.padding_mode != "none":
        thing = do.pad(thing, [*before, *after], fill, crop.padding_mode)
    left_top = (
        np.rint(crops.boxes[0, :2] * (np.array(resized) / [width, height])).astype(int) + before
    )
    thing = do.crop(thing, int(left_top[1]), int(left_top[0]), *size)
    return do.horizontal_flip(thing) if flip else thing


@st.composite
def padded_crops(draw: st.DrawFn) -> RandomCrop | Letterbox:
    options: dict[str, Any] = {"padding_mode": draw(st.sampled_from(PADDING_MODES))}
    if options["padding_mode"] == "constant":
        options |= {
            "fill": draw(st.tuples(*[st.integers(0, 255)] * 3)),
            "mask_fill": draw(st.integers(0, 255)),
        }
    resize = draw(st.none() | st.integers(1, 60))
    interpolation = {"interpolation": draw(st.sampled_from(INTERPOLATIONS))}
    if draw(st.booleans()):
        return Letterbox(
            **options, **interpolation, centered=draw(st.booleans()), rounded=draw(st.booleans())
        )
    if resize is not None:
        options |= interpolation
    padding = draw(
        st.integers(0, 9)
        | st.tuples(*[st.integers(0, 9)] * 4)
        | st.tuples(*[st.integers(0, 9)] * 2)
    )
    return RandomCrop(**options, resize=resize, padding=padding, pad_if_needed=True)


cases = given(
    padded_crops(), st.tuples(side, side), side, side, st.booleans(), st.integers(0, 2**32)
)


@settings(max_examples=200)
@cases
def test_pictures_and_masks_are_torchvisions(
    torchvision: ModuleType,
    v2: Any,
    crop: RandomCrop | Letterbox,
    size: tuple[int, int],
    width: int,
    height: int,
    flip: bool,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    image = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
    crops = planned(crop, size, width, height, seed)
    drawn = (size, crops, width, height)
    (got,) = rows_of(image, crops, size, flip)
    # The order of passes is that of the whole picture, in both; a cut of it has the same bytes.
    assert np.array_equal(
        got, np.asarray(by_torchvision(v2, Image.fromarray(image), crop, drawn, flip))
    )
    canvas = canvas_of(crop, size, np.array([width]), np.array([height]))
    widest = np.maximum(canvas.padding_before, padding_after(canvas, size))
    if crop.padding_mode in ("reflect", "symmetric") and (widest >= canvas.resized).any():
        return  # of tensors, such as masks, torch has no such padding
    mask = random.integers(0, 256, (height, width), dtype=np.uint8)
    thing = torchvision.tv_tensors.Mask(torch.from_numpy(mask)[None])
    expected = by_torchvision(v2, thing, crop, drawn, flip)
    for dtype in (np.uint8, np.int32):
        (got,) = rows_of(mask.astype(dtype), crops, size, flip)
        assert np.array_equal(got, expected[0].numpy())


@settings(max_examples=150)
@cases
def test_boxes_and_points_are_torchvisions(
    torchvision: ModuleType,
    v2: Any,
    crop: RandomCrop | Letterbox,
    size: tuple[int, int],
    width: int,
    height: int,
    flip: bool,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    corners = np.sort(random.uniform(0, 1, (20, 2, 2)) * (width, height), axis=1).astype(np.float32)
    boxes = np.minimum(corners.reshape(20, 4), np.array([width, height] * 2, dtype=np.float32))
    points = np.concatenate(
        [random.uniform(0, 1, (6, 5, 2)) * (width, height), np.ones((6, 5, 1))], axis=2
    )
    points = points.astype(np.float32)
    crops = planned(crop, size, width, height, seed)
    geometry = geometry_of(crop, crops, np.array([width]), np.array([height]), np.array([flip]))
    drawn, canvas = (size, crops, width, height), (height, width)
    kinds = torchvision.tv_tensors
    # Boxes beyond the edge cannot be mirrored: torchvision's padding of them is the constant one in any mode.
    given_boxes = kinds.BoundingBoxes(
        torch.from_numpy(boxes.copy()), format="XYXY", canvas_size=canvas
    )
    plain = {"padding_mode": "constant", "fill": 0, "mask_fill": 0}
    constant = type(crop)(
        **{**{name: getattr(crop, name) for name in crop.__dataclass_fields__}, **plain}
    )
    expected = v2.ClampBoundingBoxes()(by_torchvision(v2, given_boxes, constant, drawn, flip))
    assert np.array_equal(
        move_boxes(boxes, np.zeros(20, dtype=np.int64), geometry), expected.numpy()
    )
    given_points = kinds.KeyPoints(torch.from_numpy(points[..., :2].copy()), canvas_size=canvas)
    places = by_torchvision(v2, given_points, constant, drawn, flip)
    moved = move_points(points, np.zeros(6, dtype=np.int64), geometry, [])
    assert np.array_equal(moved[..., :2], places.numpy())


@settings(max_examples=80)
@given(
    st.sampled_from([FiveCrop, TenCrop]),
    side,
    side,
    st.tuples(side, side),
    st.integers(0, 30),
    st.data(),
)
def test_five_and_ten_crops_are_torchvisions(
    v2: Any,
    kind: Any,
    width: int,
    height: int,
    size: tuple[int, int],
    more: int,
    data: st.DataObject,
) -> None:
    interpolation = data.draw(st.sampled_from(INTERPOLATIONS))
    crop = kind(resize=max(size) + more, interpolation=interpolation)
    image = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    resize = v2.Resize(crop.resize, v2.InterpolationMode[interpolation.upper()])
    expected = getattr(v2, kind.__name__)(size)(resize(Image.fromarray(image)))
    got = rows_of(image, planned(crop, size, width, height), size, False)
    assert len(got) == len(expected) == crop.rows
    for one, other in zip(got, expected, strict=True):
        assert np.array_equal(one, np.asarray(other))


@pytest.mark.parametrize(
    "crop", [RandomCrop(padding=4), RandomCrop(resize=40, padding=(0, 3)), RandomCrop()]
)
def test_random_crops_are_as_likely_everywhere(v2: Any, crop: RandomCrop) -> None:
    """torchvision draws whole numbers evenly; chi-squared of 100,000 draws against that."""
    size, (width, height) = (33, 36), (48, 40)
    widths, heights = np.full(DRAWS, width), np.full(DRAWS, height)
    crops = plan_crops(crop, size, widths, heights, seed=5, epoch=0, samples=np.arange(DRAWS))
    canvas = canvas_of(crop, size, np.array([width]), np.array([height]))
    room = canvas.room[0]
    scale = np.array([width, height]) / canvas.resized[0]
    places = np.rint(crops.boxes[:, :2] / scale).astype(int) + canvas.padding_before[0]
    assert places.min(axis=0).tolist() == [0, 0]
    assert places.max(axis=0).tolist() == room.tolist()
    counts = np.bincount(
        places[:, 0] * (room[1] + 1) + places[:, 1], minlength=int(np.prod(room + 1))
    )
    expected = DRAWS / len(counts)
    excess = ((counts - expected) ** 2 / expected).sum() - (len(counts) - 1)
    assert excess < 6 * np.sqrt(2 * len(counts))
    padding = list(crop.padding)
    theirs = v2.RandomCrop(size, padding=padding).make_params(
        [Image.new("RGB", tuple(canvas.resized[0].tolist()))]
    )
    assert theirs["padding"] == padding or not any(padding)
    assert 0 <= theirs["left"] <= room[0]
    assert 0 <= theirs["top"] <= room[1]


def test_a_picture_that_is_too_small_says_so() -> None:
    with pytest.raises(
        ConfigError,
        match=r"1 image, resized and padded, is smaller than the output, 32 x 32\..*: 20 x 40 pixels. Pass RandomCr",
    ):
        planned(RandomCrop(padding=5), (32, 32), 20, 40)
    assert planned(RandomCrop(padding=6), (32, 32), 20, 40).boxes[0, 0] == -6
    assert planned(RandomCrop(pad_if_needed=True), (32, 32), 32, 32).boxes.tolist() == [
        [0, 0, 32, 32]
    ]


# (a mistake, what is said of it)
WRONG: list[tuple[Callable[[], Crop], str]] = [
    (lambda: RandomCrop(padding=-1), "padding: expected 0 to 16384, got -1"),
    (lambda: RandomCrop(padding=(1, 2, 3)), r"padding: expected a number, \(left and right"),
    (lambda: RandomCrop(padding=1, fill=256), "fill: expected 0 to 255, got 256"),
    (
        lambda: RandomCrop(padding=1, fill=(1, 2)),
        r"fill: expected a number or \(red, green, blue\).*, got .1, 2",
    ),
    (
        lambda: RandomCrop(padding=1, padding_mode="wrap"),
        "padding_mode: expected 'constant', 'edge'",
    ),
    (
        lambda: RandomCrop(padding=1, padding_mode="edge", fill=3),
        "fill: padding_mode='edge' repeats pixels",
    ),
    (lambda: Letterbox(mask_fill=256), "mask_fill: expected 0 to 255, got 256"),
    (lambda: RandomCrop(fill=3), "work only with padding= or pad_if_needed=True"),
    (lambda: RandomCrop(interpolation="bicubic"), "work only with resize="),
    (lambda: RandomCrop(resize=0), "resize: expected 1 to 16384"),
    (lambda: RandomCrop(pad_if_needed=1), "pad_if_needed: expected True or False, got 1"),
    (lambda: Letterbox(centered=None), "centered: expected True or False"),
    (lambda: RandomCrop(32), r"RandomCrop: expected .*padding=.*, got 32\. .*size=32"),
]


def test_wrong_options() -> None:
    for make, words in WRONG:
        with pytest.raises(ConfigError, match=words):
            make()


def test_boxes_without_a_size_are_refused() -> None:
    image = np.zeros((8, 8, 3), dtype=np.uint8)
    for box in [(1e300, 0, 4, 4), (0, 0, 1e-12, 4), (0, -1e18, 4, 4), (0, 0, float("nan"), 4)]:
        for picture, resize in [
            (image, _engine.resize),
            (image[..., 0].copy(), _engine.resize_mask),
        ]:
            with pytest.raises(ValueError, match="not inside the image"):
                resize(picture, 4, 4, box, padding_mode="edge")


def test_a_crop_of_padding_alone() -> None:
    image = np.full((8, 8, 3), 9, dtype=np.uint8)
    row = _engine.resize(
        image, 4, 4, (20.0, 20.0, 4.0, 4.0), padding_mode="constant", fill=(1, 2, 3)
    )
    assert (row == (1, 2, 3)).all()
    ids = _engine.resize_mask(
        image[..., 0].copy(), 4, 4, (20.0, 0.0, 4.0, 4.0), padding_mode="constant", mask_fill=7
    )
    assert (ids == 7).all()
