"""What a user says of fields of boxes and points; their values, each with the row of a batch that it is on; crops and
mirroring of pictures -> the same for what is on them, as torchvision's v2 does it.

Note [torchvision's order]
Results equal those of torchvision.transforms.v2 on tv_tensors to the last bit of float32, because each operation is
done in the same order and rounded at the same places: a resize multiplies by a ratio that is rounded to float32,
padding adds, a crop subtracts and cuts boxes off at the canvas, and mirroring comes last, in the output. Boxes are cut
off at the output once more, as v2.ClampBoundingBoxes does: a ratio that was rounded up moves an edge beyond the border
by a bit.
Source: torchvision/transforms/v2/functional/_geometry.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError, choice, real_number, whole
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crop_boxes import Crops, canvas_of
from fastpipe.plan.crops import Crop
from fastpipe.plan.draws import Bools, Int64s

Float32s = NDArray[np.float32]

_MOST_POINTS = 2**31
_PAIRS_HINT = "pass pairs of points' numbers, counted from 0: flip_pairs=[(1, 2), (3, 4)]"


@dataclass(frozen=True)
class Boxes:
    """A field of boxes, in `fields=` of fastpipe.loader, or in `data.with_fields`. Its name alone means these defaults.

    Args:
        name: of the field.
        form: how boxes come: "list", one tensor (M, 4) for each sample; "flat", one tensor (all, 4), and NAME_offsets;
            "pad", one tensor (N, most, 4), and NAME_counts. Labels of boxes come as NAME_labels.
        min_size: boxes are dropped, with their labels, if their width or height in the output is smaller, in pixels.
            With 0, and min_area=0, no box is dropped: a box outside the crop has no area.
        min_area: boxes are dropped if their area in the output is smaller, in pixels.
    """

    name: str
    _: KW_ONLY
    form: str = "list"
    min_size: float = 1.0
    min_area: float = 0.0

    def __post_init__(self) -> None:
        choice("Boxes(form=)", self.form, ("list", "flat", "pad"))
        for option in ("min_size", "min_area"):
            number = real_number(given := getattr(self, option))
            if number is None or not 0 <= number < float("inf"):
                raise ConfigError(f"Boxes({option}=): expected a number of pixels, 0 or more, got {given!r}")


@dataclass(frozen=True)
class Points:
    """A field of points, in `fields=` of fastpipe.loader, or in `data.with_fields`.

    Args:
        name: of the field.
        flip_pairs: the points of an object that change places in a mirrored image, in pairs: [(1, 2)] for a left and a
            right eye with the numbers 1 and 2; []: there are none. Mirrored points need it. None: the pairs that the
            field has itself, as a dataset packed from COCO has.
    """

    name: str
    _: KW_ONLY
    flip_pairs: Sequence[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        if (given := self.flip_pairs) is None:
            return
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ConfigError(f"Points(flip_pairs=): got {given!r}; {_PAIRS_HINT}")
        for pair in (pairs := tuple(given)):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ConfigError(f"Points(flip_pairs=): got {pair!r} as a pair; {_PAIRS_HINT}")
        flat = [check_point(point, _MOST_POINTS) for pair in pairs for point in pair]
        if len(set(flat)) < len(flat):
            raise ConfigError(f"Points(flip_pairs=): got {given!r}, in which a point is there twice; {_PAIRS_HINT}")
        object.__setattr__(self, "flip_pairs", tuple(zip(flat[::2], flat[1::2], strict=True)))


def check_point(number: object, points: int) -> int:
    """Checks the number of a point, of an object of so many."""
    return whole("Points(flip_pairs=)", number, least=0, most=points - 1, hint=_PAIRS_HINT)


@dataclass(frozen=True)
class Placed:
    """Boxes, or objects of K points each, on the rows of a batch, in pixels of the row."""

    values: Float32s  # boxes (M, 4) x0, y0, x1, y1; points (M, K, 3) x, y, and a visibility
    rows: Int64s  # (M,) ascending: which row each is on
    labels: Int64s | None = None  # (M,) of boxes
    flip_pairs: Sequence[tuple[int, int]] = ()  # of points that change places in a mirrored picture

    @property
    def are_boxes(self) -> bool:
        return self.values.ndim == 2

    def take(self, chosen: Bools) -> Placed:
        labels = None if self.labels is None else self.labels[chosen]
        return Placed(self.values[chosen], self.rows[chosen], labels, self.flip_pairs)


def places_in_row(rows: Int64s, count: int) -> Int64s:
    """(M,) which of its row's things each is; the rows are ascending, below `count`."""
    sizes = np.bincount(rows, minlength=count)
    return np.asarray(np.arange(len(rows)) - (np.cumsum(sizes) - sizes)[rows])


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
