"""Tests of the resize: Pillow's BILINEAR, BICUBIC and NEAREST bit by bit, the same bytes by every set of kernels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastpipe import _engine

pytestmark = pytest.mark.usefixtures("one_thread")

INTERPOLATIONS = ("bilinear", "bicubic", "nearest")

by_each = pytest.mark.parametrize("interpolation", INTERPOLATIONS)
by_kernels = pytest.mark.parametrize("kernels", _engine.resize_kernels())


def noise(width: int, height: int, channels: int = 3) -> NDArray[np.uint8]:
    return np.random.default_rng([width, height]).integers(
        0, 256, (height, width, channels), dtype=np.uint8
    )


def pillow(
    image: NDArray[np.uint8],
    height: int,
    width: int,
    box: tuple[float, float, float, float] | None = None,
    interpolation: str = "bilinear",
) -> NDArray[np.int16]:
    """`box` is x, y, width, height, as ours."""
    edges = None if box is None else (box[0], box[1], box[0] + box[2], box[1] + box[3])
    resample = Image.Resampling[interpolation.upper()]
    whole = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
    resized = whole.resize((width, height), resample, box=edges)
    return np.asarray(resized, dtype=np.int16).reshape(height, width, image.shape[2])


def assert_same(got: NDArray[np.uint8], expected: NDArray[np.int16]) -> None:
    """Bit by bit, for a whole picture; constraints.txt names the Pillow whose order of passes is followed."""
    assert got.dtype == np.uint8
    assert got.shape == expected.shape
    assert np.array_equal(got, expected)


def assert_within_one(got: NDArray[np.uint8], expected: NDArray[np.int16]) -> None:
    """For a box within a picture: Pillow picks its order of passes by the box, we by the whole, as torchvision resizes
    the whole and then cuts. Each order rounds to 8 bits in between; now and then that makes a difference of 1.
    """
    assert got.dtype == np.uint8
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 1


sides = st.one_of(st.integers(1, 9), st.integers(10, 150))


@settings(max_examples=200)
@given(sides, sides, sides, sides, st.sampled_from([1, 3, 3, 4]), st.sampled_from(INTERPOLATIONS))
def test_any_size_to_any_size(
    width: int, height: int, out_width: int, out_height: int, channels: int, interpolation: str
) -> None:
    image = noise(width, height, channels)
    expected = pillow(image, out_height, out_width, interpolation=interpolation)
    for kernels in ["", *_engine.resize_kernels()]:
        got = _engine.resize(
            image, out_height, out_width, kernels=kernels, interpolation=interpolation
        )
        assert_same(got, expected)


@settings(max_examples=100)
@given(sides, sides, st.integers(1, 150), st.data())
def test_a_cut_of_a_picture_resized_to_the_nearest_pixels(
    width: int, height: int, resized: int, data: st.DataObject
) -> None:
    """As torchvision resizes the whole picture with Pillow and then cuts."""
    image = noise(width, height)
    whole = pillow(image, resized, resized + 3, interpolation="nearest")
    out_width, out_height = (
        data.draw(st.integers(1, resized + 3)),
        data.draw(st.integers(1, resized)),
    )
    left, top = (
        data.draw(st.integers(0, resized + 3 - out_width)),
        data.draw(st.integers(0, resized - out_height)),
    )
    x, y = width / (resized + 3), height / resized
    box = (left * x, top * y, out_width * x, out_height * y)
    got = _engine.resize(image, out_height, out_width, box=box, interpolation="nearest")
    assert_same(got, whole[top : top + out_height, left : left + out_width])


@settings(max_examples=150)
@given(sides, sides, sides, sides, st.sampled_from(["bilinear", "bicubic"]), st.data())
def test_without_antialiasing_it_is_torchs(
    width: int, height: int, out_width: int, out_height: int, mode: str, data: st.DataObject
) -> None:
    """Of uint8 tensors, bit by bit: by the AVX2 kernel, which takes up to four channels, and by the plain one."""
    width, out_width = (
        max(width, 2),
        max(out_width, 2),
    )  # of one column torch makes an internal error, or other rows
    image = noise(width, height)
    kernels = data.draw(st.sampled_from(_engine.resize_kernels()))
    got = _engine.resize(
        image, out_height, out_width, interpolation=mode, antialias=False, kernels=kernels
    )
    for times in (1, 2):
        planes = torch.from_numpy(image).permute(2, 0, 1).repeat(times, 1, 1).contiguous()[None]
        exact = torch.nn.functional.interpolate(
            planes, (out_height, out_width), mode=mode, align_corners=False
        )
        assert np.array_equal(got, exact[0, :3].permute(1, 2, 0).numpy())


EXTREMES = [  # width and height -> height and width
    ((1, 1), (300, 300)),
    ((300, 300), (1, 1)),
    ((1, 500), (40, 3)),
    ((500, 1), (3, 40)),
    ((2, 2), (1, 1)),
    ((2, 2), (999, 1)),
    ((320, 240), (500, 400)),
    ((640, 480), (224, 224)),
    ((33, 17), (17, 33)),  # a copy
    ((225, 225), (224, 224)),
    ((223, 223), (224, 224)),
    ((1234, 77), (5, 200)),
]


@by_each
def test_extreme_shapes(interpolation: str) -> None:
    for size, out in EXTREMES:
        image = noise(*size)
        got = _engine.resize(image, *out, interpolation=interpolation)
        assert_same(got, pillow(image, *out, interpolation=interpolation))


@given(st.sampled_from(["bilinear", "bicubic"]), st.data())
def test_a_fractional_box_as_pillow_takes_it(interpolation: str, data: st.DataObject) -> None:
    width, height = data.draw(st.integers(2, 90)), data.draw(st.integers(2, 90))
    x, y = data.draw(st.floats(0, width - 1)), data.draw(st.floats(0, height - 1))
    box = (x, y, data.draw(st.floats(0.5, width - x)), data.draw(st.floats(0.5, height - y)))
    out_height, out_width = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 60))
    image = (
        noise(width, height) // 3 + 85
    )  # the two orders cut off what bicubic finds beyond 0 and 255 differently
    got = _engine.resize(image, out_height, out_width, box=box, interpolation=interpolation)
    assert_within_one(got, pillow(image, out_height, out_width, box, interpolation))


def test_a_box_of_next_to_no_size() -> None:
    """So small that what lies around it, made as large, has no size that a number could hold."""
    image = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    for interpolation in ("bilinear", "bicubic"):
        found = [
            _engine.resize(
                image, 4, 4, (3.5, 2.5, side, side), (0, 0, 7, 5), interpolation=interpolation
            )
            for side in (1e-300, 1e-30, 1e-9)
        ]
        for each in found:
            np.testing.assert_array_equal(each, found[0])
    # No box is given whose pixels those would be; some pixels of the picture are, in no time.
    _engine.resize(image, 4, 4, (3.5, 2.5, 1e-300, 1e-9), (0, 0, 7, 5), interpolation="nearest")


@given(st.sampled_from(INTERPOLATIONS), st.data())
def test_bounds_crop_before_the_resize(interpolation: str, data: st.DataObject) -> None:
    width, height = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 90))
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    w, h = data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y))
    out_height, out_width = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 60))
    image = noise(width, height)
    got = _engine.resize(
        image, out_height, out_width, bounds=(x, y, w, h), interpolation=interpolation
    )
    cropped = np.ascontiguousarray(image[y : y + h, x : x + w])
    assert np.array_equal(
        got, _engine.resize(cropped, out_height, out_width, interpolation=interpolation)
    )
    assert_same(got, pillow(cropped, out_height, out_width, interpolation=interpolation))


@settings(max_examples=120)
@given(sides, sides, sides, sides, st.integers(1, 9), st.data())
def test_every_kernel_gives_the_same_bytes(
    width: int, height: int, out_width: int, out_height: int, rows_at_once: int, data: st.DataObject
) -> None:
    image = noise(width, height)
    options: dict[str, Any] = {
        "box": (
            data.draw(st.floats(0, width / 2)),
            data.draw(st.floats(0, height / 2)),
            width / 2,
            height / 2,
        ),
        "flip": data.draw(st.booleans()),
        "interpolation": data.draw(st.sampled_from(INTERPOLATIONS)),
        "antialias": data.draw(st.booleans()),
    }
    results = [
        _engine.resize(image, out_height, out_width, kernels=name, rows_at_once=rows, **options)
        for name in _engine.resize_kernels()
        for rows in (rows_at_once, 1)
    ]
    for other in [*results[1:], _engine.resize(image, out_height, out_width, **options)]:
        assert np.array_equal(results[0], other)


@by_kernels
@by_each
def test_every_kernel_is_pillow_at_every_number_of_taps(kernels: str, interpolation: str) -> None:
    """Shrinking to 1/8 takes 17 or 33 input positions an output, growing takes 2 or 4."""
    by: dict[str, Any] = {"interpolation": interpolation}
    scales = (0.1, 0.7, 1.0, 1.2, 1.5, 1.9, 2.0, 2.6, 3.1, 4.2, 4.9, 6.3, 8.0)
    for out, scale in itertools.product([1, 3, 4, 21, 22, 64, 65], scales):
        inputs = max(round(out * scale), 1)
        for image, height, width in ((noise(inputs, 5), 5, out), (noise(5, inputs), out, 5)):
            expected = pillow(image, height, width, **by)
            for rows in (1, 3, 8):
                assert_same(
                    _engine.resize(image, height, width, kernels=kernels, rows_at_once=rows, **by),
                    expected,
                )
            assert_same(
                _engine.resize(image, height, width, kernels=kernels, flip=True, **by),
                expected[:, ::-1],
            )


@by_kernels
@by_each
def test_black_and_white_stay_in_range(kernels: str, interpolation: str) -> None:
    """Bicubic goes beyond both where they meet."""
    by: dict[str, Any] = {"interpolation": interpolation}
    fine = (
        np.where(np.indices((90, 70)).sum(0)[..., None] % 2, 255, 0)
        .astype(np.uint8)
        .repeat(3, axis=2)
    )
    for image in (fine, fine.repeat(9, axis=0).repeat(9, axis=1)):
        for out in ((3, 5), (89, 69), (200, 333)):
            assert_same(
                _engine.resize(image, *out, kernels=kernels, **by), pillow(image, *out, **by)
            )


def test_images_that_are_not_contiguous() -> None:
    image = noise(40, 30)
    view = image[::2, ::-1]
    assert np.array_equal(
        _engine.resize(view, 9, 9), _engine.resize(np.ascontiguousarray(view), 9, 9)
    )


def test_wrong_options_and_shapes() -> None:
    wrong: list[tuple[tuple[int, ...], dict[str, Any], str]] = [
        (
            (4, 4, 3),
            {"interpolation": "lanczos"},
            "interpolation: expected bilinear, bicubic or nearest, got lanczos",
        ),
        ((4, 4, 3), {"rows_at_once": 0}, "rows_at_once must be at least 1"),
        ((4, 4, 3), {"kernels": "sse9"}, "no resize kernels named sse9"),
        ((4, 4, 3), {"height": 0}, "height and width"),
        ((4, 4, 3), {"width": -1}, "height and width"),
        ((4, 4), {}, "image"),
        ((4, 4, 2), {}, "1, 3 or 4 channels"),
        (
            (4, 4, 1),
            {"fill": (1, 2, 3)},
            "fill: expected a number for each of 1 channels, from 0 to 255",
        ),
        ((4, 4, 1), {"fill": (256,)}, "from 0 to 255"),
    ]
    for shape, options, words in wrong:
        with pytest.raises(ValueError, match=words):
            _engine.resize(np.zeros(shape, np.uint8), **{"height": 2, "width": 2, **options})
    with pytest.raises(ValueError, match="uint8 or uint16"):
        _engine.resize(np.zeros((4, 4, 3), np.float32), 2, 2)
    assert "scalar" in _engine.resize_kernels()


def test_bounds_and_boxes_outside_the_image_are_refused() -> None:
    for bounds in [
        (-1, 0, 2, 2),
        (0, -1, 2, 2),
        (0, 0, 5, 2),
        (0, 3, 2, 2),
        (0, 0, 0, 1),
        (0, 0, 4, 5),
    ]:
        with pytest.raises(ValueError, match="is not inside the image"):
            _engine.resize(noise(4, 4), 2, 2, bounds=bounds)
    assert _engine.resize(noise(4, 4), 2, 2, bounds=(3, 3, 1, 1)).shape == (2, 2, 3)
    left, wide, negative, not_a_number = (
        (-100, 0, 4, 4),
        (0, 0, 9, 4),
        (0, 0, -4, 4),
        (0, 0, 4, float("nan")),
    )
    for box in (left, wide, negative, not_a_number, (0, 0, 4, 9), (0, -1, 4, 4)):
        with pytest.raises(ValueError, match="is not inside"):
            _engine.resize(noise(8, 8), 3, 3, box=box)
