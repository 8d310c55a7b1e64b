"""Boxes and points of a batch -> the same after its augmentation has moved the images; on the host.

Note [points on the host]: the parameters of kornia's modules are drawn there, so points are moved there too, with the
same parameters, before they go to the device. Small boxes are dropped there, too: on the device, nobody would know how
many are left without waiting for it.

Note [edges and centres]: kornia counts from the centre of the first pixel, boxes here from its edge. So half a pixel is
taken off before, and put back afterwards: kornia's RandomHorizontalFlip takes x to width - x, as the loader's own does.
Points are counted from the centre, in kornia as here. Rotated boxes stay rotated from the first module to the last, and
only then become the upright boxes around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.augment.operation import AugmentPlan
from fastpipe.plan.placed import Float32s, Placed, places_in_row, swap_pairs

Mover = Callable[[torch.Tensor], torch.Tensor]
_CORNERS = [[0, 1], [2, 1], [2, 3], [0, 3]]  # of x0, y0, x1, y1, around the box


def moved(plan: AugmentPlan, places: Mapping[str, Placed], move: Mover) -> dict[str, Placed]:
    """Moves boxes and points as `move` moves points (n, P, 2); Augment.move_places."""
    height, width = plan.sizes[0]
    ordered = sorted(places.items(), key=lambda named: not named[1].are_boxes)  # boxes first
    before = [
        each.values[:, _CORNERS] - np.float32(0.5) if each.are_boxes else each.values[..., :2] for _, each in ordered
    ]
    # Three corners of each image say whether it becomes its mirror image.
    triangle = np.array([[0, 0], [width - 1, 0], [0, height - 1]], dtype=np.float32)
    triangles = np.broadcast_to(triangle, (plan.count, 1, 3, 2)).reshape(-1, 3, 2)
    rows = [np.arange(plan.count), *(each.rows for _, each in ordered)]
    turned, *made = _all_at_once(plan, list(zip([triangles, *before], rows, strict=True)), move)
    one, other = turned[:, 1] - turned[:, 0], turned[:, 2] - turned[:, 0]
    mirrored = one[:, 0] * other[:, 1] < one[:, 1] * other[:, 0]
    found = {}
    for (name, old), here, there in zip(ordered, before, made, strict=True):
        if old.are_boxes:
            values = _upright(old.values, here, there, plan.sizes[-1])
        else:
            points = np.concatenate([there, old.values[..., 2:]], axis=2)
            values = swap_pairs(points, mirrored[old.rows], old.flip_pairs)
        found[name] = replace(old, values=values)
    return found


def _all_at_once(plan: AugmentPlan, things: list[tuple[Float32s, NDArray[np.int64]]], move: Mover) -> list[Float32s]:
    """Moves things of V points each, (M, V, 2), with the rows that they are on: all in one tensor (n, points, 2)."""
    places: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    begin = 0
    for values, rows in things:
        place, each = places_in_row(rows, plan.count), values.shape[1]
        places.append((rows[:, None], begin + place[:, None] * each + np.arange(each)))
        begin += (int(place.max(initial=-1)) + 1) * each
    canvas = np.zeros((plan.count, begin, 2), dtype=np.float32)
    for (values, _), where in zip(things, places, strict=True):
        canvas[where] = values
    made = move(torch.from_numpy(canvas)).numpy()
    return [made[where] for where in places]


def _upright(edges: Float32s, before: Float32s, corners: Float32s, size: tuple[int, int]) -> Any:
    """The boxes (M, 4) around the corners (M, 4, 2), cut off at the border of an image of `size` (height, width)."""
    half = np.float32(0.5)
    low, high = corners.min(axis=1, initial=np.inf) + half, corners.max(axis=1, initial=-np.inf) + half
    still = (corners == before).all(axis=(1, 2))  # taking off and putting back half a pixel may change the last bit
    low[still], high[still] = edges[still, :2], edges[still, 2:]
    limit = np.array(size[::-1], dtype=np.float32)
    low, high = np.clip(low, 0, limit), np.clip(high, 0, limit)
    gone = (edges[:, :2] >= edges[:, 2:]).any(axis=1)  # outside the crop: no rotation may bring it back
    high[gone] = low[gone]
    return np.concatenate([low, high], axis=1)
