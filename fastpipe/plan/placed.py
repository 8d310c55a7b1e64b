"""Boxes and points on images: the user's options, and how crops and mirroring move them.

Note [torchvision's order]
Results equal those of torchvision.transforms.v2 on tv_tensors to the last bit of float32, because
each operation is done in the same order and rounded at the same places: a resize multiplies by a
ratio that is rounded to float32, padding adds, a crop subtracts and clips boxes to the canvas, and
mirroring comes last, in the output. Boxes are clipped to the output once more, as by
v2.ClampBoundingBoxes: a ratio that was rounded up moves an edge beyond the border by a bit.
Source: torchvision/transforms/v2/functional/_geometry.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np

from fastpipe.arguments import refusing_unknown_fields
from fastpipe.arrays import Bools, Float32s, Int64s
from fastpipe.errors import ConfigError, choice, real_number, whole
from fastpipe.plan.crop_boxes import Crops, canvas_of
from fastpipe.plan.crops import Crop, CropAt
from fastpipe.plan.whole_images import WholeImages

_MAX_POINTS = 2**31
_PAIRS_HINT = (
    "pass pairs of points' numbers, counted from 0: flip_pairs=[(1, 2), (3, 4)]"
)


_FORMAT = (
    "boxes come as x0, y0, x1, y1 in pixels of the row; for x, y, width, height write "
    'torchvision.ops.box_convert(boxes, "xyxy", "xywh")'
)


@refusing_unknown_fields(
    "fastpipe.Boxes", {"format": _FORMAT, "fmt": _FORMAT, "box_format": _FORMAT}
)
@dataclass(frozen=True)
class Boxes:
    """A field of boxes, in `fields=` of fastpipe.loader, or in `data.with_fields`.

    Its name alone means these defaults.

    Args:
        name: the field's name.
        form: how boxes come: "list", one tensor (M, 4) for each sample; "flat", one tensor (all,
            4), and NAME_offsets; "pad", one tensor (N, most, 4), and NAME_counts. Labels of boxes
            come as NAME_labels.
        min_size: boxes are dropped, with their labels, if their width or height in the output is
            smaller, in pixels. With 0, and min_area=0, no box is dropped: a box outside the crop
            has no area.
        min_area: boxes are dropped if their area in the output is smaller, in pixels.

    Example:
        >>> fields = ("image", fastpipe.Boxes("boxes", form="flat"))
        >>> batch = next(iter(fastpipe.loader("data/objects", batch_size=8, size=32, fields=fields)))
        >>> batch["boxes"].shape[1], len(batch["boxes_offsets"])
        (4, 9)
    """

    name: str
    _: KW_ONLY
    form: str = "list"
    min_size: float = 1.0
    min_area: float = 0.0

    def __post_init__(self) -> None:
        choice("Boxes(form=)", self.form, ("list", "flat", "pad"))
        for option in ("min_size", "min_area"):
            value = getattr(self, option)
            number = real_number(value)
            if number is None or not 0 <= number < float("inf"):
                raise ConfigError(
                    f"Boxes({option}=): expected a number of pixels, 0 or more, got {value!r}"
                )


@refusing_unknown_fields("fastpipe.Points")
@dataclass(frozen=True)
class Points:
    """A field of points, in `fields=` of fastpipe.loader, or in `data.with_fields`.

    Args:
        name: the field's name.
        flip_pairs: the points of an object that change places in a mirrored image, in pairs: [(1,
            2)] for a left and a right eye with the numbers 1 and 2; []: there are none. Mirrored
            points need it. None: the pairs that the field has itself, as a dataset packed from COCO
            has.

    Example:
        >>> joints = fastpipe.Points("joints", flip_pairs=[(0, 1)])  # a mirrored left eye is a right one
        >>> loader = fastpipe.loader("data/objects", batch_size=8, size=32, fields=("image", joints))
        >>> batch = next(iter(loader))
        >>> len(batch["joints"]), batch["joints"][0].shape
        (8, torch.Size([1, 2, 3]))
    """

    name: str
    _: KW_ONLY
    flip_pairs: Sequence[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        pairs = self.flip_pairs
        if pairs is None:
            return
        if isinstance(pairs, str) or not isinstance(pairs, Iterable):
            raise ConfigError(f"Points(flip_pairs=): got {pairs!r}; {_PAIRS_HINT}")

        checked = []
        points: set[int] = set()
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ConfigError(
                    f"Points(flip_pairs=): got {pair!r} as a pair; {_PAIRS_HINT}"
                )
            first, second = (check_point(point, _MAX_POINTS) for point in pair)
            checked.append((first, second))
            points.update((first, second))
        if len(points) < 2 * len(checked):
            raise ConfigError(
                f"Points(flip_pairs=): got {pairs!r}, in which a point is listed twice; "
                f"{_PAIRS_HINT}"
            )
        object.__setattr__(self, "flip_pairs", tuple(checked))


def check_point(number: object, points: int) -> int:
    """Checks the number of a point of an object that has so many points."""
    return whole(
        "Points(flip_pairs=)", number, least=0, most=points - 1, hint=_PAIRS_HINT
    )


@dataclass(frozen=True)
class Placed:
    """Boxes, or objects of K points each, on the rows of a batch, in pixels of the row."""

    # Boxes (M, 4) x0, y0, x1, y1; points (M, K, 3) x, y, and a visibility.
    values: Float32s
    rows: Int64s  # (M,) ascending: the row of each box or object
    labels: Int64s | None = None  # (M,) of boxes
    # The pairs of points that change places in a mirrored image.
    flip_pairs: Sequence[tuple[int, int]] = ()

    @property
    def are_boxes(self) -> bool:
        return self.values.ndim == 2

    def take(self, chosen: Bools) -> Placed:
        """The boxes or objects for which `chosen`, (M,), is True."""
        labels = None if self.labels is None else self.labels[chosen]
        values = self.values[chosen]
        rows = self.rows[chosen]
        return Placed(values, rows, labels, self.flip_pairs)


def places_in_row(rows: Int64s, count: int) -> Int64s:
    """(M,) ascending rows -> (M,) 0 for the first box or object of a row, 1 for the second, ..."""
    sizes = np.bincount(rows, minlength=count)
    # (count,) the position of the first box or object of each row among all.
    first_of_row = np.cumsum(sizes) - sizes
    positions = np.arange(len(rows), dtype=np.int64)
    positions -= first_of_row[rows]
    return positions


class Geometry(NamedTuple):
    """How n images become rows: resized, padded, cropped, resized, mirrored.

    A ratio of 1 is no resize.
    """

    before: Float32s  # (n, 2) ratios x, y of the resize before the crop
    padded: Float32s  # (n, 2) pixels of padding left and above, added after this resize
    left_top: Float32s  # (n, 2) of the crop, in pixels of the resized and padded image
    cut: Float32s  # (n, 2) width and height of the crop, in the same pixels
    after: Float32s  # (n, 2) ratios x, y of the resize of the crop
    flips: Bools  # (n,) mirrored left and right
    sizes: Float32s  # (n, 2) width and height of the rows


def geometry_of(
    crop: Crop | WholeImages,
    crops: Crops,
    widths: Int64s,
    heights: Int64s,
    flips: Bools,
) -> Geometry:
    """The geometry of n images that become one row each; `crop` is the kind that `crops` were
    planned with.
    """
    if crops.row_sizes is None:
        sizes = np.broadcast_to(crops.size[::-1], (len(crops.boxes), 2))
    else:
        sizes = crops.row_sizes[:, ::-1]
    canvas = canvas_of(crop, crops.size, widths, heights)
    # In float64, as in torchvision; rounded to float32 at the end. The boxes of crops, x, y, width,
    # height, are in pixels of the stored image. In pixels of the canvas they are whole numbers,
    # except for rounding errors; only CropAt cuts between two pixels.
    canvas_scale = canvas.resized / canvas.image_sizes
    left_top = crops.boxes[:, :2] * canvas_scale
    cut = crops.boxes[:, 2:] * canvas_scale
    if not isinstance(crop, CropAt):
        left_top = np.rint(left_top)
        cut = np.rint(cut)
    left_top = left_top + canvas.padding_before
    after = sizes / cut
    return Geometry(
        before=canvas_scale.astype(np.float32),
        padded=canvas.padding_before.astype(np.float32),
        left_top=left_top.astype(np.float32),
        cut=cut.astype(np.float32),
        after=after.astype(np.float32),
        flips=flips,
        sizes=sizes.astype(np.float32),
    )


def move_boxes(boxes_xyxy: Float32s, rows: Int64s, geometry: Geometry) -> Float32s:
    """Moves boxes (M, 4), x0, y0, x1, y1, as images become rows; clips them to the output.

    Args:
        boxes_xyxy: in pixels of the images.
        rows: (M,) the image of each box.
        geometry: of the images.
    """
    # (M, 2, 2): left top and right bottom, x and y.
    both_corners = boxes_xyxy.reshape(-1, 2, 2)
    corners = _resized_and_cut(both_corners, rows, geometry, clip=True)
    is_mirrored = geometry.flips[rows]
    sizes = geometry.sizes[rows]  # (M, 2)
    widths = sizes[is_mirrored, :1]
    # The right edge becomes the left one, so the corners change places in x.
    swapped_x = corners[is_mirrored, ::-1, 0]
    corners[is_mirrored, :, 0] = widths - swapped_x
    np.clip(corners, 0, sizes[:, None], out=corners)
    return corners.reshape(-1, 4)


def is_large_enough(boxes_xyxy: Float32s, min_size: float, min_area: float) -> Bools:
    """(M,) which boxes have at least this width and height, and this area:
    v2.SanitizeBoundingBoxes's rule.
    """
    sides = boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]  # (M, 2) widths and heights
    areas = sides[:, 0] * sides[:, 1]
    has_size = (sides >= min_size).all(axis=1)
    has_area = areas >= min_area
    return np.asarray(has_size & has_area)


def move_points(
    points: Float32s,
    rows: Int64s,
    geometry: Geometry,
    flip_pairs: Sequence[tuple[int, int]],
) -> Float32s:
    """Moves points (M, K, 3), x, y and visibility, as `move_boxes` moves boxes.

    Points outside the output stay there.

    The points of each of `flip_pairs` change places in a mirrored image.
    """
    moved = points.copy()
    places = points[..., :2]
    moved[..., :2] = _resized_and_cut(places, rows, geometry, clip=False)
    is_mirrored = geometry.flips[rows]
    sizes = geometry.sizes[rows]  # (M, 2)
    widths = sizes[is_mirrored, :1]
    # Points are counted from the centre of the first pixel, boxes from its edge.
    x = moved[is_mirrored, :, 0]
    moved[is_mirrored, :, 0] = (widths - 1) - x
    return swap_pairs(moved, is_mirrored, flip_pairs)


def swap_pairs(
    points: Float32s, mirrored: Bools, flip_pairs: Sequence[tuple[int, int]]
) -> Float32s:
    """Points (M, K, 3), with the points of each pair swapped in the mirrored objects, (M,)."""
    # (K,) which point takes the place of each.
    order = np.arange(points.shape[1])
    for first, second in flip_pairs:
        order[first] = second
        order[second] = first
    swapped = points[:, order]
    return np.where(mirrored[:, None, None], swapped, points)


def _resized_and_cut(
    points: Float32s, rows: Int64s, geometry: Geometry, *, clip: bool
) -> Float32s:
    """Points (M, K, 2) x, y after all but mirroring. See Note [torchvision's order]."""
    # Each [rows, None] is (M, 1, 2): the image's numbers for all points of a box or object.
    moved: Float32s = points * geometry.before[rows, None]
    moved += geometry.padded[rows, None]
    moved -= geometry.left_top[rows, None]
    if clip:
        limits = geometry.cut[rows, None]
        np.clip(moved, 0, limits, out=moved)
    moved *= geometry.after[rows, None]
    return moved
