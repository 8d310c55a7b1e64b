"""Turns a class name and a random generator into an object's coverage mask and surface pattern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Float32s, Float64s

Field = Float32s
"""A plane of float32 values with axes (row, column)."""

Outline = NDArray[np.complex128]  # vertices, x + iy with y down
Points = Float64s  # vertices, axes (vertex, x and y)

# cv2.fillPoly takes vertices in fixed point: in 1/16 pixel, with 4 fractional bits.
_FRACTIONAL_BITS = 4
_SUBPIXELS = 1 << _FRACTIONAL_BITS
_MIN_SIDE = 0.34  # of the photo's shorter edge
_MAX_SIDE = 0.54
_MIN_DISTANCE = 0.72  # of the middle from the photo's edges, in sides
_WAVE_NUMBER = 8.0  # about five waves across a pebble
_TURN = np.linspace(0.0, 2.0 * np.pi, 96, endpoint=False)


def _make_polygon(corners: int) -> Outline:
    """A regular polygon: the corners-th roots of 1."""
    angles_j = 2j * np.pi * np.arange(corners) / corners
    return np.asarray(np.exp(angles_j))


def _make_arrow() -> Outline:
    """It points to the right: the tip and its lower edge, the shaft, and the upper edge."""
    tip = 1.0
    lower_edge = [0.15 + 0.85j, 0.15 + 0.32j]
    shaft_end = [-1 + 0.32j, -1 - 0.32j]
    upper_edge = [0.15 - 0.32j, 0.15 - 0.85j]
    return np.array([tip, *lower_edge, *shaft_end, *upper_edge])


def _make_crescent() -> Outline:
    """The arc of a circle, and between its tips the arc of a smaller one."""
    outer_turn = np.linspace(-0.78 * np.pi, 0.78 * np.pi, 64)
    outer = np.exp(1j * outer_turn)
    # The smaller circle has its middle at -0.3 and goes through both tips.
    tip = outer[-1] + 0.3
    inner_turn = np.linspace(np.angle(tip), -np.angle(tip), 64)
    inner = abs(tip) * np.exp(1j * inner_turn) - 0.3
    return np.concatenate([outer, inner])


def _make_cross() -> Outline:
    """The end of one arm and the corner beside it, turned four times by a right angle."""
    corner = [1 - 0.34j, 1 + 0.34j, 0.34 + 0.34j]
    # (arms, 3): to multiply by a root of 1 is to turn.
    vertices = _make_polygon(4)[:, None] * corner
    return np.asarray(vertices.ravel())


def _make_star() -> Outline:
    """Five points: every second vertex is nearer to the middle."""
    radii = np.tile([1.0, 0.42], 5)
    return np.asarray(_make_polygon(10) * radii)


def _draw_pebble(rng: np.random.Generator) -> Outline:
    """A round free form, so that the outline of a patterned object tells nothing of its class."""
    # A circle whose radius has waves: 2 to 5 of them around it, the finer the lower.
    waves = np.zeros_like(_TURN)
    for k in range(1, 5):
        height = rng.uniform(-0.16, 0.16) / k
        phase = rng.uniform(0.0, 6.3)
        angles = (k + 1) * _TURN + phase
        waves += height * np.cos(angles)
    radii = 1.0 + waves
    circle = np.exp(1j * _TURN)
    return np.asarray(radii * circle)


@dataclass(frozen=True)
class _ObjectClass:
    """A class of objects, which is told by its outline or by its pattern."""

    name: str
    # None: each object has the outline of another pebble, and a pattern.
    outline: Outline | None
    hole: Outline | None = None


_DISC = np.exp(1j * _TURN)
_OBJECT_CLASSES = (
    _ObjectClass("arrow", _make_arrow()),
    _ObjectClass("checks", None),
    _ObjectClass("crescent", _make_crescent()),
    _ObjectClass("cross", _make_cross()),
    _ObjectClass("disc", _DISC),
    _ObjectClass("ring", _DISC, hole=0.56 * _DISC),
    _ObjectClass("square", _make_polygon(4)),
    _ObjectClass("star", _make_star()),
    _ObjectClass("stripes", None),
    _ObjectClass("triangle", _make_polygon(3)),
)
_CLASS_BY_NAME = {object_class.name: object_class for object_class in _OBJECT_CLASSES}
CLASSES = tuple(_CLASS_BY_NAME)
"""The ten classes, sorted; a class's label is its place here."""
PATTERNED_CLASSES = ("checks", "stripes")
"""The classes of objects that have two colours."""


class Shape(NamedTuple):
    """An object in a photo."""

    cover: Field  # how much of each pixel it covers, 0 to 1
    # The share of its second colour at each pixel, 0 to 1; None for a class of one colour
    second: Field | None
    side: float  # square root of its area, pixels


def draw_shape(rng: np.random.Generator, name: str, height: int, width: int) -> Shape:
    """Draw an object of class `name` at a random place, size, angle and shear.

    It is wholly or mostly inside the photo.

    Its area has the same distribution for every class, so that it tells nothing of the class.
    """
    side = rng.uniform(_MIN_SIDE, _MAX_SIDE) * min(height, width)
    distance = _MIN_DISTANCE * side
    middle_x = rng.uniform(distance, width - distance)
    middle_y = rng.uniform(distance, height - distance)
    middle = np.array([middle_x, middle_y])
    linear = _draw_turn_and_shear(rng)

    # The outlines have any area. Scaled by this matrix they have that of a square of `side`.
    outlines = [_to_points(outline) for outline in _list_outlines(rng, name)]
    side_of_outlines = np.sqrt(_measure_area(outlines))
    linear *= side / side_of_outlines
    cover = _fill(outlines, linear, middle, height, width)
    second = None
    if name in PATTERNED_CLASSES:
        second = _draw_pattern(name, linear, middle, height, width)
    return Shape(cover, second, side)


def _fill(
    outlines: list[Points],
    linear: Float64s,
    middle: Float64s,
    height: int,
    width: int,
) -> Field:
    """How much of each pixel lies within the outlines, placed by a matrix (2, 2) and a middle."""
    polygons = []
    for points in outlines:
        pixels = points @ linear.T + middle  # (vertices, 2) x and y
        subpixels = np.rint(pixels * _SUBPIXELS)
        polygons.append(subpixels.astype(np.int32))
    mask = np.zeros((height, width), np.uint8)
    # A pixel within two polygons, as in the hole of a ring, is outside.
    cv2.fillPoly(mask, polygons, 255, cv2.LINE_AA, _FRACTIONAL_BITS)
    return mask.astype(np.float32) / np.float32(255.0)


def _draw_turn_and_shear(rng: np.random.Generator) -> Float64s:
    """Draw a matrix (2, 2) that turns and shears points, and keeps areas."""
    angle = rng.uniform(0.0, 2.0 * np.pi)
    deviations = rng.uniform(-0.12, 0.12, (2, 2))
    shear = np.eye(2) + deviations
    cosine = np.cos(angle)
    sine = np.sin(angle)
    turn = [[cosine, -sine], [sine, cosine]]
    # The determinant is the factor of areas; a turn has 1.
    area_factor = np.linalg.det(shear)
    length_factor = np.sqrt(area_factor)
    return np.asarray(shear @ turn / length_factor)


def _list_outlines(rng: np.random.Generator, name: str) -> list[Outline]:
    """The outline of an object, then that of its hole if it has one."""
    object_class = _CLASS_BY_NAME[name]
    if object_class.outline is None:
        return [_draw_pebble(rng)]
    if object_class.hole is None:
        return [object_class.outline]
    return [object_class.outline, object_class.hole]


def _to_points(outline: Outline) -> Points:
    return np.stack([outline.real, outline.imag], axis=1)


def _measure_area(outlines: list[Points]) -> float:
    """The area within an outline, without that of its hole."""
    areas = []
    for points in outlines:
        areas.append(cv2.contourArea(points.astype(np.float32)))
    outer, *holes = areas
    return float(outer - sum(holes))


def _draw_pattern(
    name: str,
    linear: Float64s,
    middle: Float64s,
    height: int,
    width: int,
) -> Field:
    """Draw waves across a pebble: in one direction for stripes, in two for checks."""
    # Pixels, from the middle of the pebble: (height, 1) and (1, width).
    y, x = np.ogrid[:height, :width]
    middle_x, middle_y = middle
    x = x - middle_x
    y = y - middle_y
    # (2,) each: radians a pixel, for x and y. The inverse of `linear` leads from pixels back to the
    # outline, which is about 1 wide from its middle.
    along, across = np.linalg.inv(linear) * _WAVE_NUMBER
    phase = along[0] * x + along[1] * y
    wave = np.sin(phase)
    if name == "checks":
        phase_across = across[0] * x + across[1] * y
        wave = wave * np.sin(phase_across)
    # This gain leaves an edge about two pixels soft.
    gain = 0.5 / np.hypot(*along)
    share = np.clip(wave * gain + 0.5, 0.0, 1.0)
    return np.asarray(share, np.float32)
