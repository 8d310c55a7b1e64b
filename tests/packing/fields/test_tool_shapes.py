"""Polygons whose corners are pixels, against OpenCV's fillPoly."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from fastpipe.packing.fields.tool_shapes import draw_tool_shape


@pytest.mark.parametrize("seed", range(20))
def test_polygons_are_filled_as_opencv_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_corners = int(rng.integers(3, 9))
    corners = rng.integers(0, 100, (num_corners, 2))
    points = [corners.astype(np.int32)]
    expected = np.zeros((100, 100), np.uint8)
    cv2.fillPoly(expected, points, 1)
    line = np.zeros_like(expected)
    cv2.polylines(line, points, True, 1)
    drawn = draw_tool_shape({"corners": corners.tolist(), "holes": []}, 100, 100)
    # Where an edge lies just between two pixels, the two may take another one of them.
    differs = drawn != expected
    assert np.count_nonzero(differs) <= 0.05 * np.count_nonzero(line)
    assert not differs[cv2.dilate(line, np.ones((3, 3), np.uint8)) == 0].any()


def test_corners_outside_the_image() -> None:
    corners = [[-10, 10], [30, -10], [70, 30], [20, 60]]
    whole = {"corners": [[x + 20, y + 20] for x, y in corners], "holes": []}
    expected = draw_tool_shape(whole, 100, 100)[20:60, 20:70]
    drawn = draw_tool_shape({"corners": corners, "holes": []}, 50, 40)
    assert np.array_equal(drawn, expected)


def test_the_line_around_a_polygon_is_inside() -> None:
    square = [[2, 1], [5, 1], [5, 3], [2, 3]]
    expected = np.zeros((5, 8), bool)
    expected[1:4, 2:6] = True
    drawn = draw_tool_shape({"corners": square, "holes": []}, 8, 5)
    assert np.array_equal(drawn, expected)
    point = draw_tool_shape({"corners": [[3, 2]], "holes": []}, 8, 5)
    assert np.argwhere(point).tolist() == [[2, 3]]


def test_corners_far_outside_are_refused() -> None:
    with pytest.raises(ValueError, match="expected corners near the image of 8 x 5 pixels"):
        draw_tool_shape({"corners": [[0, 0], [1e12, 0], [0, 3]], "holes": []}, 8, 5)
