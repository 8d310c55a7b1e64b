"""Crops and mirroring of pictures -> the same for the boxes and points on them, as torchvision's v2 does it.

Note [torchvision's order]
Results equal those of torchvision.transforms.v2 on tv_tensors to the last bit of float32, because each operation is
done in the same order and rounded at the same places: a resize multiplies by a ratio that is rounded to float32,
padding adds, a crop subtracts and cuts boxes off at the canvas, and mirroring comes last, in the output. Boxes are cut
off at the output once more, as v2.ClampBoundingBoxes does: a ratio that was rounded up moves an edge beyond the border
by a bit.
Source: torchvision/transforms/v2/functional/_geometry.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crop_boxes import Crops, canvas_of
from fastpipe.plan.crops import Crop
from fastpipe.plan.draws import Bools, Int64s

Float32s = NDArray[np.float32]


@dataclass(frozen=True)
class Geometry:
    """How n pictures become rows: resized, padded, cropped, resized, mirrored. A resize by 1 is none."""

    before: Float32s  # (n, 2) the ratios x, y of the resize before the crop
    padded: Float32s  # (n, 2) pixels left and above that are added then
    left_top: Float32s  # (n, 2) of the crop, in pixels of what it is cut from
    cut: Float32s  # (n, 2) its width and height
    after: Float32s  # (n, 2) the ratios of the resize after it
    flips: Bools  # (n,) mirrored left and right
    size: tuple[int, int]  # (width, height) of the output


def geometry_of(crop: Crop | Buckets, crops: Crops, widths: Int64s, heights: Int64s, flips: Bools) -> Geometry:
    """What a plan of one row a picture does to n pictures; `crop` is the kind that `crops` were planned with."""
    canvas = canvas_of(crop, crops.size, widths, heights)
    before = canvas.resized / canvas.pictures
    left_top = np.rint(crops.boxes[:, :2] * before) + canvas.before
    cut = np.rint(crops.boxes[:, 2:] * before)
    after = np.array(crops.size[::-1]) / cut
    moves = before, canvas.before, left_top, cut, after
    first, added, corner, extent, last = (each.astype(np.float32) for each in moves)
    return Geometry(first, added, corner, extent, last, flips, crops.size[::-1])


def move_boxes(boxes: Float32s, rows: Int64s, geometry: Geometry) -> Float32s:
    """Boxes (M, 4), x0, y0, x1, y1 in pixels of the pictures `rows`, (M,) -> of the output, cut off at its border."""
    corners = _resized_and_cut(boxes.reshape(-1, 2, 2), rows, geometry, clamp=True)
    mirrored = geometry.flips[rows]
    corners[mirrored, :, 0] = geometry.size[0] - corners[mirrored, ::-1, 0]
    np.clip(corners, 0, np.array(geometry.size, dtype=np.float32), out=corners)
    return corners.reshape(-1, 4)


def large_enough(boxes: Float32s, min_size: float, min_area: float) -> Bools:
    """(M,) which boxes have at least this width and height, and this area: v2.SanitizeBoundingBoxes's rule."""
    sides = boxes[:, 2:] - boxes[:, :2]
    return np.asarray((sides >= min_size).all(axis=1) & (sides[:, 0] * sides[:, 1] >= min_area))


def move_points(points: Float32s, rows: Int64s, geometry: Geometry, flip_pairs: Sequence[tuple[int, int]]) -> Float32s:
    """As `move_boxes`, (M, K, 3) x, y, visibility, also outside; `flip_pairs` change places in a mirrored picture."""
    moved = points.copy()
    moved[..., :2] = _resized_and_cut(points[..., :2], rows, geometry, clamp=False)
    mirrored = geometry.flips[rows]
    moved[mirrored, :, 0] = (geometry.size[0] - 1) - moved[mirrored, :, 0]
    return swap_pairs(moved, mirrored, flip_pairs)


def swap_pairs(points: Float32s, mirrored: Bools, flip_pairs: Sequence[tuple[int, int]]) -> Float32s:
    """Points (M, K, 3) -> the same, with those of each pair in each other's place in the mirrored objects (M,)."""
    order = np.arange(points.shape[1])
    for one, other in flip_pairs:
        order[one], order[other] = other, one
    return np.where(mirrored[:, None, None], points[:, order], points)


def _resized_and_cut(points: Float32s, rows: Int64s, geometry: Geometry, *, clamp: bool) -> Float32s:
    """(M, K, 2) points x, y, all but mirrored. See Note [torchvision's order]."""
    moved: Float32s = points * geometry.before[rows, None]
    moved += geometry.padded[rows, None]
    moved -= geometry.left_top[rows, None]
    if clamp:
        np.clip(moved, 0, geometry.cut[rows, None], out=moved)
    moved *= geometry.after[rows, None]
    return moved
