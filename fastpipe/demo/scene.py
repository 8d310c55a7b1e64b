"""Turns a random generator, a size and a class name into the layers of a photo-like scene."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.demo.noise import Field, fractal, resized, smoothstep
from fastpipe.demo.shapes import coverage, draw_pose, pattern

__all__ = ["Scene", "paint_scene"]

Planes = NDArray[np.float32]
"""Colour planes with axes (blue-green-red, row, column), about 0..255."""

# Luma weights of blue, green, red (ITU-R BT.601, section 2.5.1).
_LUMA_BGR = np.array([0.114, 0.587, 0.299])
_CONTRAST = 62.0  # least luma distance between an object's colour and what lies round it
_REFERENCE_EDGE = 375.0  # shorter edge, in pixels, at which blurs and strips have their nominal width


@dataclass(frozen=True)
class Scene:
    """A photo before its texture is weighed.

    Attributes:
        smooth: float32 (height, width, 3), BGR, about 0..255: everything but the fine texture.
        texture: float32 (height, width, 3), BGR: fine texture and grain, to be added with some weight.
        mask: bool (height, width): the pixels of which the object covers at least half.
        colours: one or two BGR colours, about 0..255: the means of the object's surface, as it is lit.
    """

    smooth: NDArray[np.float32]
    texture: NDArray[np.float32]
    mask: NDArray[np.bool_]
    colours: list[NDArray[np.float64]]


def _colour(rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw a BGR colour; the one distribution for every surface of every class."""
    luma = rng.uniform(25.0, 230.0)
    # Daylight scenes vary mostly between warm and cool, little between green and magenta, and are greyish.
    warm, magenta = rng.laplace(4.0, 20.0), rng.laplace(-1.0, 4.0)
    blue, red = magenta - warm, magenta + 0.8 * warm
    green = -(_LUMA_BGR[0] * blue + _LUMA_BGR[2] * red) / _LUMA_BGR[1]
    return np.clip(luma + np.array([blue, green, red]), 4.0, 250.0)


def _blend(planes: Planes, mask: Field, first: NDArray[np.float64], second: NDArray[np.float64], mix: Field) -> None:
    """Lay a surface that runs from one colour to another over the planes, in place."""
    for plane, start, end in zip(planes, first, second, strict=True):
        plane += mask * (np.float32(start) + np.float32(end - start) * mix - plane)


def _lens_blur(field: Field, sigma: float) -> Field:
    """Blur by sigma pixels; a wide blur runs at reduced size, which is many times faster."""
    step = max(1, int(sigma // 3.0))
    if step == 1:
        return np.asarray(cv2.GaussianBlur(field, (0, 0), sigma), dtype=np.float32)
    height, width = field.shape
    small = cv2.resize(field, (-(-width // step), -(-height // step)), interpolation=cv2.INTER_AREA)
    blurred = np.asarray(cv2.GaussianBlur(small, (0, 0), sigma / step), dtype=np.float32)
    return resized(blurred, height, width)


def _backdrop(rng: np.random.Generator, height: int, width: int) -> tuple[Planes, Field]:
    """Paint sky, ridges, patches and strips.

    Returns:
        The colour planes, and how strong the fine texture is at each pixel (0..1).
    """
    unit = min(height, width) / _REFERENCE_EDGE
    coarse = max(0, round(np.log2(4.0 * max(unit, 0.25))))
    down: Field = np.linspace(-1.0, 1.0, height, dtype=np.float32)[:, None]
    cloud = fractal(rng, height, width, persistence=0.55, finest=coarse)
    planes = np.empty((3, height, width), np.float32)
    mix = smoothstep(np.float32(0.45) * cloud + np.float32(rng.uniform(-0.8, 0.8)) * down, 1.2)
    for plane, start, end in zip(planes, _colour(rng), _colour(rng), strict=True):
        plane[:] = np.float32(start) + np.float32(end - start) * mix
    rough = np.full((height, width), rng.uniform(0.02, 0.3), np.float32)

    landscape = rng.random() < 0.6
    for level in np.sort(rng.uniform(-0.5, 0.9, rng.integers(1, 4))):
        edge = fractal(rng, height, width, persistence=rng.uniform(0.35, 0.6), finest=max(0, coarse - 1))
        body: Field = edge * np.float32(0.5 if landscape else 1.0)
        body += (down - np.float32(level)) * np.float32(4.0) if landscape else np.float32(level - 0.6)
        mask = smoothstep(body, rng.uniform(0.02, 0.12))
        tone = fractal(rng, height, width, persistence=0.6, finest=coarse)
        # Deeper inside a body less light falls in: a dark rim below its lit edge.
        mix = smoothstep(np.float32(0.6) * tone + np.float32(0.5) * body - np.float32(0.3), 1.5)
        first = _colour(rng)
        _blend(planes, mask, first, 0.65 * first + 0.35 * _colour(rng) * rng.uniform(0.4, 1.0), mix)
        rough += mask * (np.float32(rng.uniform(0.05, 1.0)) - rough)

    for _ in range(rng.poisson(1.2)):
        _lay_strip(rng, planes, rough, unit)
    return planes, rough


def _lay_strip(rng: np.random.Generator, planes: Planes, rough: Field, unit: float) -> None:
    """Lay a straight strip (pole, plank, wall edge) across the whole photo, in place."""
    _, height, width = planes.shape
    angle = rng.choice([0.0, np.pi / 2.0]) + rng.normal(0.0, 0.15)
    along = np.array([np.cos(angle), np.sin(angle)]) * (height + width)
    across = np.array([-np.sin(angle), np.cos(angle)]) * unit * rng.uniform(4.0, 26.0)
    middle = np.array([rng.uniform(0.0, width), rng.uniform(0.0, height)])
    corners = np.array(
        [middle - along - across, middle + along - across, middle + along + across, middle - along + across]
    )
    mask8 = np.zeros((height, width), np.uint8)
    cv2.fillPoly(mask8, [np.rint(corners * 16).astype(np.int32)], 255, cv2.LINE_AA, 4)
    mask = _lens_blur(mask8.astype(np.float32) * np.float32(1.0 / 255.0), 0.7 * unit + 0.3)
    normal = across / float(across @ across)
    x = (np.arange(width, dtype=np.float32)[None, :] - np.float32(middle[0])) * np.float32(normal[0])
    y = (np.arange(height, dtype=np.float32)[:, None] - np.float32(middle[1])) * np.float32(normal[1])
    colour = _colour(rng)
    _blend(planes, mask, colour, 0.45 * colour, np.clip((x + y) * 0.5 + 0.5, 0.0, 1.0))
    rough += mask * (np.float32(rng.uniform(0.02, 0.5)) - rough)


def _contrasting(rng: np.random.Generator, around: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draw a colour whose luma is at least _CONTRAST away from another's, so that the object can be seen."""
    for _ in range(32):
        colour = _colour(rng)
        if abs(float(_LUMA_BGR @ (colour - around))) >= _CONTRAST:
            return colour
    return np.full(3, 230.0 if float(_LUMA_BGR @ around) < 128.0 else 25.0)


def _lit(cover: Field, side: float, light: NDArray[np.float64]) -> Field:
    """Light a bulging surface: the blurred mask is its height, whose slope against the light is the shading.

    Args:
        cover: the object's mask, 0..1.
        side: the object's size, pixels.
        light: unit vector towards the light, x right, y down, z to the eye.

    Returns:
        Cosine between the surface's normal and the light (Lambert's law), clipped at 0.
    """
    height, width = cover.shape
    # Slopes, not heights, are scaled up: the slope of an interpolated height would show the grid.
    step = max(1, int(0.02 * side))
    small = np.asarray(
        cv2.resize(cover, (-(-width // step), -(-height // step)), interpolation=cv2.INTER_AREA), np.float32
    )
    small_side = side / step
    bulge = _lens_blur(small, max(0.8, 0.06 * small_side)) * np.float32(0.07 * small_side)
    bulge += cv2.GaussianBlur(small, (0, 0), max(0.8, 0.22 * small_side)) * np.float32(0.45 * small_side)
    slope_x = cv2.Sobel(bulge, cv2.CV_32F, 1, 0, scale=1.0 / 8.0)
    slope_y = cv2.Sobel(bulge, cv2.CV_32F, 0, 1, scale=1.0 / 8.0)
    lit = np.float32(light[2]) - np.float32(light[0]) * slope_x - np.float32(light[1]) * slope_y
    lit *= 1.0 / np.sqrt(1.0 + slope_x * slope_x + slope_y * slope_y)
    return np.clip(resized(lit, height, width), 0.0, 1.0)


def _lay_object(
    rng: np.random.Generator, planes: Planes, rough: Field, name: str, light: NDArray[np.float64]
) -> tuple[Field, Field | None]:
    """Lay the object with its shadow, shading and highlight, in place.

    Args:
        rng: source of every draw.
        planes: colour planes, changed.
        rough: texture strength, changed.
        name: one of CLASSES.
        light: unit vector towards the light, x right, y down, z to the eye.

    Returns:
        How much of each pixel the object covers, and the share of its second colour there, if it has one.
    """
    _, height, width = planes.shape
    unit = min(height, width) / _REFERENCE_EDGE
    pose = draw_pose(rng, height, width)
    cover = coverage(name, pose, height, width)
    # A lens leaves every edge a little soft.
    mask = np.asarray(cv2.GaussianBlur(cover, (0, 0), 0.5 + rng.uniform(0.1, 0.8) * unit), dtype=np.float32)

    ring = np.asarray(cv2.dilate(cover, np.ones((5, 5), np.uint8)), dtype=np.float32)
    weight = float(ring.sum())
    around = np.array([float((plane * ring).sum()) / weight for plane in planes])
    first = _contrasting(rng, around)
    second = _contrasting(rng, first)

    reach = rng.uniform(0.03, 0.10) * pose.side
    shift = np.array([[1.0, 0.0, -light[0] * reach * 1.4], [0.0, 1.0, -light[1] * reach * 1.4]])
    shadow = _lens_blur(np.asarray(cv2.warpAffine(cover, shift, (width, height)), np.float32), max(1.0, reach * 0.6))
    planes *= 1.0 - np.float32(rng.uniform(0.25, 0.6)) * shadow

    lit = _lit(cover, pose.side, light)
    mottle = fractal(rng, height, width, persistence=0.65, finest=2)
    shade = np.float32(0.45) + np.float32(0.62) * lit + np.float32(0.05) * mottle
    gloss = np.float32(rng.uniform(0.0, 90.0)) * np.clip(lit - 0.93, 0.0, 1.0) * np.float32(4.0)

    second_share = pattern(name, pose, height, width)
    for plane, start, end in zip(planes, first, second, strict=True):
        surface = np.float32(start) * shade + gloss
        if second_share is not None:
            surface += np.float32(end - start) * second_share * shade
        plane += mask * (surface - plane)
    rough += mask * (np.float32(rng.uniform(0.05, 0.45)) - rough)
    return cover, second_share


def _colours_of(planes: Planes, mask: NDArray[np.bool_], second_share: Field | None) -> list[NDArray[np.float64]]:
    """The mean colour of the object, or of each of its two colours."""
    parts = [mask] if second_share is None else [mask & (second_share < 0.5), mask & (second_share >= 0.5)]
    return [planes[:, part].mean(axis=1, dtype=np.float64) for part in parts if part.any()]


def _texture(rng: np.random.Generator, planes: Planes, rough: Field, light: NDArray[np.float64]) -> Planes:
    """Draw fine texture: a rough relief lit from the side, uneven patches of it, and coloured grain."""
    height, width = rough.shape
    stretch = float(rng.choice([1.0, 1.0, 1.8, 3.0]))
    relief = fractal(rng, height, width, persistence=rng.uniform(0.9, 1.4), coarsest=4, stretch=stretch)
    kernel = np.outer([1.0, 2.0, 1.0], [-1.0, 0.0, 1.0]) * light[0]
    kernel += np.outer([-1.0, 0.0, 1.0], [1.0, 2.0, 1.0]) * light[1]
    luma = cv2.filter2D(relief, cv2.CV_32F, kernel * 0.25) + np.float32(0.6) * relief
    patches = fractal(rng, height, width, persistence=0.7, finest=3, coarsest=7)
    strength = rough * np.clip(patches * np.float32(0.45) + np.float32(0.8), 0.1, 2.0)
    luma *= strength * np.float32(11.0)
    # A sensor's grain is everywhere, in focus or not.
    luma += rng.standard_normal((height, width), dtype=np.float32) * np.float32(rng.uniform(1.5, 5.5))
    half = (-(-height // 2), -(-width // 2))
    textures = np.empty_like(planes)
    for channel, (texture, plane) in enumerate(zip(textures, planes, strict=True)):
        np.multiply(luma, plane * np.float32(0.6 / 128.0) + np.float32(0.4), out=texture)
        if channel != 1:
            hue = resized(fractal(rng, *half, persistence=1.1, coarsest=4), height, width, smooth=False)
            texture += hue * (strength * np.float32(2.0) + np.float32(1.0))
    return textures


def paint_scene(rng: np.random.Generator, height: int, width: int, name: str) -> Scene:
    """Paint one scene with one object.

    Args:
        rng: source of every draw; the same state gives the same scene.
        height: rows, pixels.
        width: columns, pixels.
        name: the object's class, one of CLASSES.

    Returns:
        The scene's smooth part and its texture.
    """
    turn = rng.uniform(0.0, 2.0 * np.pi)
    light = np.array([0.6 * np.cos(turn), 0.6 * np.sin(turn), 0.8])
    planes, rough = _backdrop(rng, height, width)
    unit = min(height, width) / _REFERENCE_EDGE
    if rng.random() < 0.45:  # a photo with a shallow depth of field
        sigma = rng.uniform(0.8, 5.0) * unit
        for plane in planes:
            plane[:] = _lens_blur(plane, max(0.3, sigma))
        rough *= np.float32(rng.uniform(0.1, 0.7))
    cover, second_share = _lay_object(rng, planes, rough, name, light)
    x = np.linspace(-1.0, 1.0, width, dtype=np.float32)[None, :]
    y = np.linspace(-1.0, 1.0, height, dtype=np.float32)[:, None]
    planes *= np.float32(1.06) - np.float32(rng.uniform(0.02, 0.14)) * (x * x + y * y)
    textures = _texture(rng, planes, rough, light)
    mask = cover >= 0.5
    return Scene(
        np.asarray(cv2.merge(list(planes))),
        np.asarray(cv2.merge(list(textures))),
        mask,
        _colours_of(planes, mask, second_share),
    )
