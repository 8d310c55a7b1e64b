"""Boxes and points of a batch -> the same after its augmentation has moved the images; on the host.

Note [points on the host]
The parameters of kornia's modules are drawn on the host, so points are moved there too, with the
same parameters, before they go to the device. Small boxes are also dropped there: on the device,
nobody would know how many are left without waiting for it.

Note [edges and centres]
kornia counts from the centre of the first pixel, boxes here from its edge. So half a pixel is
subtracted before and added afterwards: kornia's RandomHorizontalFlip takes x to width - x, as the
loader's own does. Points are counted from the centre, in kornia as here. Rotated boxes stay rotated
from the first module to the last, and only then become the upright boxes around them.

Boxes are (M, 4) x0, y0, x1, y1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fastpipe.arrays import Bools, Float32s, Int64s
from fastpipe.device.augment.operation import AugmentPlan
from fastpipe.plan.crops import Size
from fastpipe.plan.placed import Placed, places_in_row, swap_pairs

Mover = Callable[[torch.Tensor], torch.Tensor]
# The entries of x0, y0, x1, y1 that are x and y of each corner, around the box.
_CORNERS = [
    [0, 1],  # left top
    [2, 1],  # right top
    [2, 3],  # right bottom
    [0, 3],  # left bottom
]
_HALF_PIXEL = np.float32(0.5)


def move_places(
    plan: AugmentPlan, places: Mapping[str, Placed], move: Mover
) -> dict[str, Placed]:
    """Moves boxes and points, by name of their field.

    Args:
        plan: of the augmentation.
        places: in pixels of the images before it.
        move: moves points (n, P, 2), P of each image, as the augmentation moves pixels.
    """
    # Three corners of each image go along as points, to show which images are mirrored.
    triangle = _triangle(plan.sizes[0])
    triangles = np.broadcast_to(triangle, (plan.count, 3, 2))
    # Of each field vertices (M, V, 2) and rows (M,). All are moved in one call, boxes first.
    names = sorted(places, key=lambda name: not places[name].are_boxes)
    vertices = [triangles]
    rows = [np.arange(plan.count)]
    for name in names:
        placed = places[name]
        if placed.are_boxes:
            # (M, 4, 2): four corners of each box.
            corners = placed.values[:, _CORNERS]
            corners_from_centres = corners - _HALF_PIXEL
            vertices.append(corners_from_centres)
        else:
            points = placed.values[..., :2]  # without their visibility
            vertices.append(points)
        rows.append(placed.rows)

    moved_triangles, *moved = _move_all(plan.count, vertices, rows, move)
    is_mirrored = _are_mirrored(moved_triangles)
    vertices_of_fields = vertices[1:]
    last_size = plan.sizes[-1]
    result = {}
    for name, before, after in zip(names, vertices_of_fields, moved, strict=True):
        placed = places[name]
        if placed.are_boxes:
            values = _upright_boxes(placed.values, before, after, last_size)
        else:
            visibility = placed.values[..., 2:]
            moved_points = np.concatenate([after, visibility], axis=2)
            # Left and right points of an object change places in a mirror image.
            is_object_mirrored = is_mirrored[placed.rows]
            values = swap_pairs(moved_points, is_object_mirrored, placed.flip_pairs)
        result[name] = replace(placed, values=values)
    return result


def _triangle(size: Size) -> Float32s:
    """(3, 2) the top left, top right and bottom left pixel of an image, x and y."""
    height, width = size
    right = width - 1
    bottom = height - 1
    top_left = (0, 0)
    top_right = (right, 0)
    bottom_left = (0, bottom)
    corners = [top_left, top_right, bottom_left]
    return np.array(corners, dtype=np.float32)


def _are_mirrored(triangles: Float32s) -> Bools:
    """(n,) which of the moved triangles (n, 3, 2) belong to a mirror image.

    The cross product of two sides changes its sign in a mirror image.
    """
    # (n, 2) each
    top_left = triangles[:, 0]
    top_right = triangles[:, 1]
    bottom_left = triangles[:, 2]
    to_right = top_right - top_left
    to_bottom = bottom_left - top_left
    # (n,) each
    right_x, right_y = to_right.T
    bottom_x, bottom_y = to_bottom.T
    first_product = right_x * bottom_y
    second_product = right_y * bottom_x
    return np.asarray(first_product < second_product)


def _move_all(
    count: int, vertices: list[Float32s], rows: list[Int64s], move: Mover
) -> list[Float32s]:
    """Moves the vertices of several fields, (M, V, 2), of rows (M,), in one tensor.

    `move` wants as many points of each row, so rows with fewer are filled up with zeros.
    """
    # Of each field, where its vertices are in the tensor: (M, 1) rows, (M, V) points.
    indices: list[tuple[Int64s, Int64s]] = []
    point_count = 0
    for field_vertices, field_rows in zip(vertices, rows, strict=True):
        vertex_count = field_vertices.shape[1]
        # (M,) 0 for the first box or object of a row, 1 for the second.
        order_in_row = places_in_row(field_rows, count)
        # Each row has its first box or object first, with all its vertices.
        vertices_before = order_in_row * vertex_count
        first_points = point_count + vertices_before
        vertex_numbers = np.arange(vertex_count)
        points = first_points[:, None] + vertex_numbers
        index = (field_rows[:, None], points)
        indices.append(index)
        last_in_row = int(order_in_row.max(initial=-1))
        most_in_row = last_in_row + 1
        point_count += most_in_row * vertex_count

    shape = (count, point_count, 2)
    all_points = np.zeros(shape, dtype=np.float32)
    for field_vertices, index in zip(vertices, indices, strict=True):
        all_points[index] = field_vertices
    moved_tensor = move(torch.from_numpy(all_points))
    moved_points = moved_tensor.numpy()
    return [moved_points[index] for index in indices]


def _upright_boxes(
    boxes_xyxy: Float32s, before: Float32s, after: Float32s, size: Size
) -> Any:
    """The upright boxes around moved ones, clipped to an image of `size`.

    Args:
        boxes_xyxy: (M, 4) before they were moved.
        before, after: (M, 4, 2) their corners before and after.
        size: (height, width).
    """
    # (M, 2) each, x and y: the left top and the right bottom.
    left_top = boxes_xyxy[:, :2]
    right_bottom = boxes_xyxy[:, 2:]
    least = after.min(axis=1, initial=np.inf)
    greatest = after.max(axis=1, initial=-np.inf)
    low = least + _HALF_PIXEL
    high = greatest + _HALF_PIXEL
    # Subtracting and adding half a pixel may change the last bit of a box that did not move.
    is_same_coordinate = after == before
    is_unmoved = is_same_coordinate.all(axis=(1, 2))
    low[is_unmoved] = left_top[is_unmoved]
    high[is_unmoved] = right_bottom[is_unmoved]
    width_and_height = size[::-1]
    limit = np.array(width_and_height, dtype=np.float32)
    low = np.clip(low, 0, limit)
    high = np.clip(high, 0, limit)
    # A box that was outside the crop has no area. No rotation may bring it back.
    has_no_side = left_top >= right_bottom
    is_gone = has_no_side.any(axis=1)
    high[is_gone] = low[is_gone]
    return np.concatenate([low, high], axis=1)
