"""Turns a class name and a pose into the coverage mask and surface pattern of an object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.demo.noise import Field

__all__ = ["CLASSES", "Pose", "coverage", "draw_pose", "pattern"]

CLASSES: tuple[str, ...] = (
    "arrow",
    "checks",
    "crescent",
    "cross",
    "disc",
    "ring",
    "square",
    "star",
    "stripes",
    "triangle",
)
"""The ten classes, sorted; a class's label is its place here."""

Outline = NDArray[np.float64]  # vertices (n, 2) as x, y; right-handed with y down

_SUBPIXEL_BITS = 4  # fixed-point bits of the vertices that cv2.fillPoly takes


@dataclass(frozen=True)
class Pose:
    """Where and how large an object lies in the photo.

    Attributes:
        center: x, y of its middle, pixels.
        side: square root of its painted area, pixels; the same distribution for every class.
        linear: 2x2 matrix, rotation and a slight shear, that maps unit-area shape coordinates to the photo.
        wobble: eight numbers in -1..1 that bend free-form outlines.
    """

    center: tuple[float, float]
    side: float
    linear: NDArray[np.float64]
    wobble: NDArray[np.float64]


def draw_pose(rng: np.random.Generator, height: int, width: int) -> Pose:
    """Draw a place, size, angle and shear for an object that lies wholly or mostly inside the photo.

    Args:
        rng: source of the draw.
        height: photo's height, pixels.
        width: photo's width, pixels.

    Returns:
        The pose; its side is 0.34 to 0.54 of the photo's shorter edge.
    """
    side = rng.uniform(0.34, 0.54) * min(height, width)
    margin = 0.72 * side
    center = (rng.uniform(margin, width - margin), rng.uniform(margin, height - margin))
    angle = rng.uniform(0.0, 2.0 * np.pi)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shear = np.eye(2) + rng.uniform(-0.12, 0.12, (2, 2))
    shear /= np.sqrt(abs(np.linalg.det(shear)))
    return Pose(center, side, shear @ rotation, rng.uniform(-1.0, 1.0, 8))


def _circle(radius: float = 1.0, vertices: int = 96) -> Outline:
    turn = np.linspace(0.0, 2.0 * np.pi, vertices, endpoint=False)
    return radius * np.stack([np.cos(turn), np.sin(turn)], axis=1)


def _polygon(sides: int) -> Outline:
    return _circle(1.0, sides)


def _star() -> Outline:
    outline = _circle(1.0, 10)
    outline[1::2] *= 0.42
    return outline


def _cross() -> Outline:
    arm = 0.34
    quarter = np.array([[1.0, -arm], [1.0, arm], [arm, arm]])
    return np.concatenate([quarter @ np.array([[c, s], [-s, c]]) for c, s in ((1, 0), (0, 1), (-1, 0), (0, -1))])


def _arrow() -> Outline:
    return np.array([[1.0, 0.0], [0.15, 0.85], [0.15, 0.32], [-1.0, 0.32], [-1.0, -0.32], [0.15, -0.32], [0.15, -0.85]])


def _crescent() -> Outline:
    outer = np.linspace(-0.78 * np.pi, 0.78 * np.pi, 64)
    limb = np.stack([np.cos(outer), np.sin(outer)], axis=1)
    # The inner edge is an arc through the same two tips, flattened towards the outer one.
    inner = np.stack([(limb[:, 0] - limb[0, 0]) * 0.40 + limb[0, 0], limb[:, 1] * 0.72], axis=1)
    tips = np.clip(np.abs(np.linspace(-1.0, 1.0, 64)) ** 6, 0.0, 1.0)[:, None]
    return np.concatenate([limb, (inner * (1.0 - tips) + limb * tips)[::-1]])


def _pebble(wobble: NDArray[np.float64]) -> Outline:
    """A round free form, so that the outline of a patterned object tells nothing of its class."""
    turn = np.linspace(0.0, 2.0 * np.pi, 96, endpoint=False)
    radius = np.ones_like(turn)
    for k in range(4):
        radius += 0.16 / (k + 1) * wobble[2 * k] * np.cos((k + 2) * turn + np.pi * wobble[2 * k + 1])
    outline: Outline = radius[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    return outline


_OUTLINES: dict[str, Callable[[Pose], list[Outline]]] = {
    "arrow": lambda pose: [_arrow()],
    "checks": lambda pose: [_pebble(pose.wobble)],
    "crescent": lambda pose: [_crescent()],
    "cross": lambda pose: [_cross()],
    "disc": lambda pose: [_circle()],
    "ring": lambda pose: [_circle(), _circle(0.56)],
    "square": lambda pose: [_polygon(4)],
    "star": lambda pose: [_star()],
    "stripes": lambda pose: [_pebble(pose.wobble)],
    "triangle": lambda pose: [_polygon(3)],
}


def _signed_area(outline: Outline) -> float:
    following = np.roll(outline, -1, axis=0)
    return float(0.5 * np.sum(outline[:, 0] * following[:, 1] - outline[:, 1] * following[:, 0]))


def coverage(name: str, pose: Pose, height: int, width: int) -> Field:
    """Paint the object's outline, antialiased.

    Every outline is scaled to the same painted area first, so that area tells nothing of the class.

    Args:
        name: one of CLASSES.
        pose: place, size, angle.
        height: rows, pixels.
        width: columns, pixels.

    Returns:
        float32 of shape (height, width), 0 outside to 1 inside.
    """
    outlines = _OUTLINES[name](pose)
    area = abs(_signed_area(outlines[0])) - sum(abs(_signed_area(hole)) for hole in outlines[1:])
    scale = pose.side / np.sqrt(area)
    one = 1 << _SUBPIXEL_BITS
    points = [np.rint(((outline * scale) @ pose.linear.T + pose.center) * one).astype(np.int32) for outline in outlines]
    mask = np.zeros((height, width), np.uint8)
    cv2.fillPoly(mask, points, 255, cv2.LINE_AA, _SUBPIXEL_BITS)
    return mask.astype(np.float32) * np.float32(1.0 / 255.0)


def pattern(name: str, pose: Pose, height: int, width: int) -> Field | None:
    """Give the share of the second colour on the object's surface.

    Args:
        name: one of CLASSES.
        pose: place, size, angle; the pattern turns with the object.
        height: rows, pixels.
        width: columns, pixels.

    Returns:
        float32 of shape (height, width), 0 to 1; None for a class of one colour.
    """
    if name not in ("checks", "stripes"):
        return None
    turn = np.linalg.inv(pose.linear) * (2.0 * np.pi / (0.44 * pose.side))
    x = np.arange(width, dtype=np.float32)[None, :] - np.float32(pose.center[0])
    y = np.arange(height, dtype=np.float32)[:, None] - np.float32(pose.center[1])
    wave: Field = np.sin(np.float32(turn[0, 0]) * x + np.float32(turn[0, 1]) * y)
    if name == "checks":
        wave = wave * np.sin(np.float32(turn[1, 0]) * x + np.float32(turn[1, 1]) * y)
    # A wave moves by 2 pi / period a pixel: this gain leaves an edge about two pixels soft.
    gain = np.float32(0.44 * pose.side / 8.0)
    return np.asarray(np.clip(wave * gain + np.float32(0.5), 0.0, 1.0), dtype=np.float32)
