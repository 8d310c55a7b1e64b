"""Turns a class name and a random generator into the coverage mask and the surface pattern of an object."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]
"""A plane of float32 values with axes (row, column)."""

Outline = NDArray[np.complex128]  # vertices, x + iy with y down

_ONE = 16  # the unit of the fixed-point vertices that cv2.fillPoly takes, in 1/16 pixel
_TURN = np.linspace(0.0, 2.0 * np.pi, 96, endpoint=False)


def _regular(sides: int) -> Outline:
    return np.asarray(np.exp(2j * np.pi * np.arange(sides) / sides))


def _crescent() -> Outline:
    """The arc of a circle, and between its tips the arc of a smaller one."""
    outer = np.exp(1j * np.linspace(-0.78 * np.pi, 0.78 * np.pi, 64))
    tip = outer[-1] + 0.3
    return np.concatenate([outer, abs(tip) * np.exp(1j * np.linspace(np.angle(tip), -np.angle(tip), 64)) - 0.3])


def _pebble(rng: np.random.Generator) -> Outline:
    """A round free form, so that the outline of a patterned object tells nothing of its class."""
    waves = (rng.uniform(-0.16, 0.16) / k * np.cos((k + 1) * _TURN + rng.uniform(0.0, 6.3)) for k in range(1, 5))
    return np.asarray((1.0 + sum(waves)) * np.exp(1j * _TURN))


_DISC = np.exp(1j * _TURN)
_OUTLINES: dict[str, list[Outline]] = {  # the second of two is a hole; empty: a pebble
    "arrow": [np.array([1.0, 0.15 + 0.85j, 0.15 + 0.32j, -1 + 0.32j, -1 - 0.32j, 0.15 - 0.32j, 0.15 - 0.85j])],
    "checks": [],
    "crescent": [_crescent()],
    "cross": [(_regular(4)[:, None] * [1 - 0.34j, 1 + 0.34j, 0.34 + 0.34j]).ravel()],
    "disc": [_DISC],
    "ring": [_DISC, 0.56 * _DISC],
    "square": [_regular(4)],
    "star": [_regular(10) * np.tile([1.0, 0.42], 5)],
    "stripes": [],
    "triangle": [_regular(3)],
}
CLASSES = tuple(_OUTLINES)
"""The ten classes, sorted; a class's label is its place here."""


class Shape(NamedTuple):
    """An object in a photo."""

    cover: Field  # how much of each pixel it covers, 0 to 1
    second: Field | None  # the share of its second colour at each pixel, 0 to 1; None for a class of one colour
    side: float  # square root of its area, pixels


def draw_shape(rng: np.random.Generator, name: str, height: int, width: int) -> Shape:
    """Draw an object of class `name` at a random place, size, angle and shear, wholly or mostly inside the photo.

    Its area has the same distribution for every class, so that it tells nothing of the class.
    """
    side = rng.uniform(0.34, 0.54) * min(height, width)
    middle = [rng.uniform(0.72 * side, edge - 0.72 * side) for edge in (width, height)]
    angle = rng.uniform(0.0, 2.0 * np.pi)
    shear = np.eye(2) + rng.uniform(-0.12, 0.12, (2, 2))
    turn = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    linear = shear @ turn / np.sqrt(np.linalg.det(shear))

    outlines = [np.stack([line.real, line.imag], axis=1) for line in _OUTLINES[name] or [_pebble(rng)]]
    areas = [cv2.contourArea(line.astype(np.float32)) for line in outlines]
    linear *= side / np.sqrt(areas[0] - sum(areas[1:]))
    points = [np.rint((line @ linear.T + middle) * _ONE).astype(np.int32) for line in outlines]
    mask = np.zeros((height, width), np.uint8)
    cv2.fillPoly(mask, points, 255, cv2.LINE_AA, 4)
    return Shape(mask.astype(np.float32) / np.float32(255.0), _pattern(name, linear, middle, height, width), side)


def _pattern(name: str, linear: NDArray[np.float64], middle: list[float], height: int, width: int) -> Field | None:
    """Waves across a pebble, about five of them, that turn with it."""
    if name not in ("checks", "stripes"):
        return None
    y, x = np.ogrid[:height, :width]
    along, across = np.linalg.inv(linear) * 8.0
    waves = [np.sin(turn[0] * (x - middle[0]) + turn[1] * (y - middle[1])) for turn in (along, across)]
    wave = waves[0] * waves[1] if name == "checks" else waves[0]
    # This gain leaves an edge about two pixels soft.
    return np.asarray(np.clip(wave * (0.5 / np.hypot(*along)) + 0.5, 0.0, 1.0), np.float32)
