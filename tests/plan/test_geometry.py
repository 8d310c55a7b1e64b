"""Tests of boxes and points under crops and mirroring: equal to torchvision's v2 on tv_tensors, bit by bit."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastpipe.plan.crop_boxes import plan_crops
from fastpipe.plan.crops import CenterCrop, Crop, RandomResizedCrop, Resize
from fastpipe.plan.placed import Geometry, geometry_of, is_large_enough, move_boxes, move_points

pytestmark = pytest.mark.usefixtures("one_thread")

sides = st.one_of(st.integers(1, 12), st.integers(1, 3000), st.integers(60000, 65535))
outputs = st.one_of(st.integers(1, 12), st.integers(1, 700))
crops = st.one_of(
    st.tuples(st.floats(1e-3, 1), st.floats(0.3, 1)).map(
        lambda drawn: RandomResizedCrop(scale=(drawn[0] * drawn[1], drawn[0]))
    ),
    st.integers(0, 300).map(
        lambda more: CenterCrop(resize=1 + more)
    ),  # beyond the output's longer side
    st.just(Resize()),
)


@pytest.fixture(scope="module")
def v2(torchvision: ModuleType) -> ModuleType:
    import torchvision.transforms.v2 as v2  # it needs the fixture

    return v2


def case(
    crop: Crop, size: tuple[int, int], picture: tuple[int, int], flip: bool, seed: int
) -> tuple[Crop, Geometry, NDArray[np.float64]]:
    """The crop with its options filled in, the geometry of the one picture, and its box."""
    if isinstance(crop, CenterCrop):
        assert crop.resize is not None
        crop = CenterCrop(resize=crop.resize - 1 + max(size))
    widths, heights = np.array([picture[0]]), np.array([picture[1]])
    plan = plan_crops(
        crop, size, widths, heights, seed=seed, epoch=0, samples=np.zeros(1, dtype=np.int64)
    )
    return crop, geometry_of(crop, plan, widths, heights, np.array([flip])), plan.boxes[0]


def by_torchvision(
    v2: ModuleType,
    thing: torch.Tensor,
    crop: Crop,
    box: NDArray[np.float64],
    size: tuple[int, int],
    flip: bool,
) -> torch.Tensor:
    """What v2's transforms make of a tv_tensor; the random crop is given the box that was drawn."""
    if isinstance(crop, RandomResizedCrop):
        left, top, width, height = map(int, box)
        thing = v2.functional.resized_crop(thing, top, left, height, width, list(size))
    elif isinstance(crop, CenterCrop):
        thing = v2.CenterCrop(size)(v2.Resize(crop.resize)(thing))
    else:
        thing = v2.Resize(size)(thing)
    return v2.RandomHorizontalFlip(1.0)(thing) if flip else thing


def random_boxes(
    rng: np.random.Generator, picture: tuple[int, int], count: int
) -> NDArray[np.float32]:
    """Boxes inside a picture, some of whole numbers, some as large as the picture, some without an area."""
    corners = rng.uniform(0, 1, (count, 2, 2)) * picture
    corners[::3] = np.rint(corners[::3])
    corners[rng.random((count, 2, 2)) < 0.1] = 0
    ends = rng.random((count, 2, 2)) < 0.1
    corners[ends] = np.broadcast_to(picture, corners.shape)[ends]
    boxes = np.sort(corners.astype(np.float32), axis=1).reshape(count, 4)
    return np.minimum(boxes, np.array([*picture, *picture], dtype=np.float32))


@settings(max_examples=120)
@given(
    crop=crops,
    size=st.tuples(outputs, outputs),
    picture=st.tuples(sides, sides),
    flip=st.booleans(),
    seed=st.integers(0, 2**32),
)
@example(Resize(), (10, 10), (3, 3), True, 0)  # 3 * float32(10 / 3) lies a bit beyond 10
@example(CenterCrop(resize=1), (9, 4), (5, 700), True, 1)
def test_boxes_and_points_are_torchvisions(
    torchvision: ModuleType,
    v2: ModuleType,
    crop: Crop,
    size: tuple[int, int],
    picture: tuple[int, int],
    flip: bool,
    seed: int,
) -> None:
    crop, geometry, box = case(crop, size, picture, flip, seed)
    rng = np.random.default_rng(seed)
    boxes = random_boxes(rng, picture, 20)
    given_boxes = torchvision.tv_tensors.BoundingBoxes(
        torch.from_numpy(boxes.copy()), format="XYXY", canvas_size=picture[::-1]
    )
    expected = v2.ClampBoundingBoxes()(by_torchvision(v2, given_boxes, crop, box, size, flip))
    assert tuple(expected.canvas_size) == size
    got = move_boxes(boxes, np.zeros(20, dtype=np.int64), geometry)
    assert got.dtype == np.float32
    assert np.array_equal(got, expected.numpy())
    for least in (1.0, 7.5):
        _, kept = v2.functional.sanitize_bounding_boxes(
            expected, min_size=least, min_area=least * 3
        )
        assert np.array_equal(is_large_enough(got, least, least * 3), kept.numpy())
    assert is_large_enough(got, 0.0, 0.0).all()

    places = (rng.uniform(-0.2, 1.2, (6, 5, 2)) * picture).astype(np.float32)
    seen = rng.integers(0, 3, (6, 5, 1)).astype(np.float32)
    given_points = torchvision.tv_tensors.KeyPoints(
        torch.from_numpy(places.copy()), canvas_size=picture[::-1]
    )
    expected = by_torchvision(v2, given_points, crop, box, size, flip)
    rows = np.zeros(6, dtype=np.int64)
    points = np.concatenate([places, seen], axis=2)
    got = move_points(points, rows, geometry, [])
    assert got.dtype == np.float32
    assert np.array_equal(got[..., :2], expected.numpy())
    assert np.array_equal(got[..., 2:], seen)
    paired = move_points(points, rows, geometry, [(0, 3), (2, 1)])
    assert np.array_equal(paired, got[:, [3, 2, 1, 0, 4]] if flip else got)


def test_each_box_and_point_goes_with_its_own_picture() -> None:
    rng = np.random.default_rng(3)
    widths, heights = rng.integers(20, 500, 8), rng.integers(20, 500, 8)
    plan = plan_crops(
        RandomResizedCrop(), (64, 48), widths, heights, seed=1, epoch=2, samples=np.arange(8)
    )
    flips = np.arange(8) % 2 == 0
    geometry = geometry_of(RandomResizedCrop(), plan, widths, heights, flips)
    rows = np.array([0, 0, 2, 3, 3, 3, 7])
    boxes = np.concatenate([random_boxes(rng, (20, 20), 1) for _ in rows])
    points = rng.uniform(0, 20, (len(rows), 3, 3)).astype(np.float32)
    moved, turned = move_boxes(boxes, rows, geometry), move_points(points, rows, geometry, [(0, 1)])
    for place, row in enumerate(rows):
        one = slice(row, row + 1)
        alone = Geometry(
            *(
                each[one]
                for each in (
                    geometry.before,
                    geometry.padded,
                    geometry.left_top,
                    geometry.cut,
                    geometry.after,
                )
            ),
            flips[one],
            geometry.sizes[one],
        )
        only = np.zeros(1, dtype=np.int64)
        assert np.array_equal(
            move_boxes(boxes[place : place + 1], only, alone), moved[place : place + 1]
        )
        assert np.array_equal(
            move_points(points[place : place + 1], only, alone, [(0, 1)]), turned[place : place + 1]
        )


def test_a_box_that_the_crop_does_not_show_has_no_area_left() -> None:
    widths = heights = np.array([100])
    plan = plan_crops(
        CenterCrop(resize=100),
        (50, 50),
        widths,
        heights,
        seed=0,
        epoch=0,
        samples=np.zeros(1, dtype=np.int64),
    )
    geometry = geometry_of(CenterCrop(resize=100), plan, widths, heights, np.array([True]))
    boxes = np.array([[0, 0, 20, 100], [20, 30, 40, 60], [90, 90, 95, 95]], dtype=np.float32)
    moved = move_boxes(boxes, np.zeros(3, dtype=np.int64), geometry)
    assert moved.tolist() == [[50, 0, 50, 50], [35, 5, 50, 35], [0, 50, 0, 50]]
    assert is_large_enough(moved, 1.0, 0.0).tolist() == [False, True, False]
    assert is_large_enough(moved, 1.0, 451.0).tolist() == [False, False, False]
    assert is_large_enough(moved, 15.0, 450.0).tolist() == [False, True, False]


def test_no_boxes_and_no_points_are_none_afterwards() -> None:
    widths = heights = np.array([10])
    plan = plan_crops(
        Resize(), (5, 5), widths, heights, seed=0, epoch=0, samples=np.zeros(1, dtype=np.int64)
    )
    geometry = geometry_of(Resize(), plan, widths, heights, np.array([True]))
    nobody = np.empty(0, dtype=np.int64)
    assert move_boxes(np.empty((0, 4), dtype=np.float32), nobody, geometry).shape == (0, 4)
    assert move_points(
        np.empty((0, 17, 3), dtype=np.float32), nobody, geometry, [(0, 1)]
    ).shape == (0, 17, 3)
