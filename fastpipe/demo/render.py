"""Turns (seed, index, label) into one photo-like JPEG file in memory, with the mask and the caption of its object.

The numbers of _KINDS were read off 300 ImageNet-like photos; docs/demo-photos.md shows both side by side.

Natural photos have an amplitude spectrum of about 1/f (D. J. Field, "Relations between the statistics of
natural images and the response properties of cortical cells", J. Opt. Soc. Am. A 4(12), 1987). A sum of
octaves of white noise, each twice as fine as the one before, has it where all octaves weigh the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.demo.shapes import CLASSES, Field, Shape, draw_shape
from fastpipe.demo.truth import caption_of
from fastpipe.errors import ConfigError
from fastpipe.sources.picture.jpeg import encode_jpeg

Planes = NDArray[np.float32]  # axes (blue-green-red, row, column), about 0..255
Colour = NDArray[np.float32]  # blue, green, red, about 0..255

_LUMA_BGR = np.array([0.114, 0.587, 0.299], np.float32)  # ITU-R BT.601, section 2.5.1
_CONTRAST = 62.0  # least luma distance between an object's colour and what lies round it
_LEAST_TEXTURE, _MOST_TEXTURE = 0.6, 7.2  # its weight; beyond, much of it is clipped to black and white


class _Kind(NamedTuple):
    """A kind of JPEG file: its share of all photos, and the share of them whose longer edge is 500 pixels."""

    share: float
    sampling: str
    qualities: tuple[int, ...]
    long_500: float


_KINDS = (
    _Kind(0.62, "444", (96,), 0.97),
    _Kind(0.115, "444", (75, 80, 85, 90, 92, 94), 0.20),
    _Kind(0.217, "420", (70, 75, 75, 80, 85, 90, 92), 0.20),
    _Kind(0.018, "422", (75, 85, 85, 89), 0.20),
    _Kind(0.030, "gray", (76, 92, 96, 96), 0.50),
)
_LANDSCAPE_SHARE = 0.73


def _resized(field: Field, height: int, width: int) -> Field:
    return np.asarray(cv2.resize(field, (width, height), interpolation=cv2.INTER_CUBIC), np.float32)


def _blurred(field: Field, sigma: float) -> Field:
    return np.asarray(cv2.GaussianBlur(field, (0, 0), max(0.8, sigma)), np.float32)


def _step(field: Field, softness: float) -> Field:
    """A smooth step from 0 to 1 at 0, of half-width `softness`."""
    t = np.clip(field * (0.5 / softness) + 0.5, 0.0, 1.0)
    return np.asarray(t * t * (3.0 - 2.0 * t), np.float32)


def _noise(rng: np.random.Generator, height: int, width: int, persistence: float, octaves: range) -> Field:
    """A sum of octaves of noise with mean 0 and deviation 1; octave n has cells of 2**n pixels.

    `persistence` is an octave's amplitude relative to the next coarser one; 0.5 is cloud-like, 1.0 is 1/f.
    """
    field = np.zeros((2, 2), np.float32)
    amplitude = 1.0
    for octave in reversed(octaves):
        cells = (-(-height >> octave) + 1, -(-width >> octave) + 1)
        field = _resized(field, *cells) + amplitude * rng.standard_normal(cells, dtype=np.float32)
        amplitude *= persistence
    field = _resized(field, height, width)
    return np.asarray((field - field.mean()) / field.std(), np.float32)


def _colour(rng: np.random.Generator) -> Colour:
    """Draw a colour; the one distribution for every surface of every class."""
    # Daylight scenes vary mostly between warm and cool, little between green and magenta, and are greyish.
    warm, magenta = rng.laplace(4.0, 20.0), rng.laplace(-1.0, 4.0)
    colour = np.array([magenta - warm, 0.0, magenta + 0.8 * warm], np.float32)
    colour[1] = -(colour @ _LUMA_BGR) / _LUMA_BGR[1]
    return np.asarray(np.clip(colour + np.float32(rng.uniform(25.0, 230.0)), 4.0, 250.0), np.float32)


def _contrasting(rng: np.random.Generator, around: Colour) -> Colour:
    """Draw a colour whose luma is at least _CONTRAST away from another's, so that the object can be seen."""
    while abs(float(_LUMA_BGR @ ((colour := _colour(rng)) - around))) < _CONTRAST:
        pass
    return colour


def _between(first: Colour, second: Colour, share: Field) -> Planes:
    """A surface that runs from one colour to another."""
    return first[:, None, None] + (second - first)[:, None, None] * share


def _backdrop(rng: np.random.Generator, height: int, width: int) -> tuple[Planes, Field]:
    """Paint a sky and ridges before it; returns the planes, and how strong the fine texture is at each pixel (0..1)."""
    octaves = range(2, int(np.log2(max(height, width))))
    down: Field = np.linspace(-1.0, 1.0, height, dtype=np.float32)[:, None]
    sky = 0.45 * _noise(rng, height, width, 0.55, octaves) + rng.uniform(-0.8, 0.8) * down
    planes = _between(_colour(rng), _colour(rng), _step(sky, 1.2))
    rough = np.full((height, width), rng.uniform(0.02, 0.3), np.float32)
    for level in sorted(rng.uniform(-0.5, 0.9, rng.integers(1, 4)).tolist()):
        body = 0.5 * _noise(rng, height, width, rng.uniform(0.35, 0.6), octaves) + 4.0 * (down - level)
        mask = _step(body, rng.uniform(0.02, 0.12))
        # Deeper inside a body less light falls in: a dark rim below its lit edge.
        depth = _step(0.6 * _noise(rng, height, width, 0.6, octaves) + 0.5 * body - 0.3, 1.5)
        first = _colour(rng)
        planes += mask * (_between(first, 0.65 * first + 0.25 * _colour(rng), depth) - planes)
        rough += mask * (rng.uniform(0.05, 1.0) - rough)
    return planes, rough


def _lay_object(rng: np.random.Generator, planes: Planes, rough: Field, shape: Shape, light: list[float]) -> None:
    """Lay the object with its shadow, shading and highlight, in place; `light` is the unit vector towards it."""
    height, width = rough.shape
    around = (planes * shape.cover).sum(axis=(1, 2)) / shape.cover.sum()
    first = _contrasting(rng, around)
    second = _contrasting(rng, first)
    # Shadow and light are smooth, so they are found on a coarser grid.
    step = max(1, int(0.02 * shape.side))
    side = shape.side / step
    grid = (-(-width // step), -(-height // step))
    small = np.asarray(cv2.resize(shape.cover, grid, interpolation=cv2.INTER_AREA), np.float32)
    shift = np.array([[1.0, 0.0, -0.09 * light[0] * side], [0.0, 1.0, -0.09 * light[1] * side]])
    shadow = _blurred(np.asarray(cv2.warpAffine(small, shift, grid), np.float32), 0.04 * side)
    planes *= 1.0 - rng.uniform(0.25, 0.6) * _resized(shadow, height, width)
    # The object bulges: its blurred mask is its height. Its brightness is Lambert's law.
    bulge = side * (0.07 * _blurred(small, 0.06 * side) + 0.45 * _blurred(small, 0.22 * side))
    slope_y, slope_x = np.gradient(bulge)
    lit = (light[2] - light[0] * slope_x - light[1] * slope_y) / np.sqrt(1.0 + slope_x**2 + slope_y**2)
    lit = np.clip(_resized(lit, height, width), 0.0, 1.0)
    gloss = rng.uniform(0.0, 360.0) * np.clip(lit - 0.93, 0.0, 1.0)
    flat = np.zeros((1, 1), np.float32)
    surface = _between(first, second, flat if shape.second is None else shape.second) * (0.45 + 0.62 * lit) + gloss
    mask = _blurred(shape.cover, 0.0)  # a lens leaves every edge a little soft
    planes += mask * (surface - planes)
    rough += mask * (rng.uniform(0.05, 0.45) - rough)


def _texture(rng: np.random.Generator, planes: Planes, rough: Field, light: list[float]) -> Planes:
    """Draw fine texture: a rough relief lit from the side, and coloured grain."""
    height, width = rough.shape
    relief = _noise(rng, height, width, rng.uniform(0.9, 1.4), range(5))
    slope_y, slope_x = np.gradient(relief)
    luma = 11.0 * rough * (2.0 * (light[0] * slope_x + light[1] * slope_y) + 0.6 * relief)
    # A sensor's grain is everywhere, in focus or not.
    luma += rng.uniform(1.5, 5.5) * rng.standard_normal(rough.shape, dtype=np.float32)
    texture = luma * (planes * (0.6 / 128.0) + 0.4)
    for channel in (0, 2):
        hue = _noise(rng, -(-height // 2), -(-width // 2), 1.1, range(5))
        texture[channel] += _resized(hue, height, width) * (2.0 * rough + 1.0)
    return np.asarray(texture, np.float32)


def _paint(rng: np.random.Generator, height: int, width: int, name: str) -> tuple[Planes, Planes, Shape]:
    """Paint a scene of that many pixels: all but its fine texture; this, to be added with some weight; its object."""
    turn = rng.uniform(0.0, 2.0 * np.pi)
    light = [float(0.6 * np.cos(turn)), float(0.6 * np.sin(turn)), 0.8]
    planes, rough = _backdrop(rng, height, width)
    shape = draw_shape(rng, name, height, width)
    _lay_object(rng, planes, rough, shape, light)
    return planes, _texture(rng, planes, rough, light), shape


def _draw_edges(rng: np.random.Generator, long_500: float) -> tuple[float, float]:
    """Draw the longer and the shorter edge, pixels."""
    at = rng.random()
    if rng.random() < long_500:  # a compact camera's 4:3, a reflex camera's 3:2, or cut by hand
        cut = float(np.clip(rng.normal(370.0, 50.0), 240.0, 500.0))
        return 500.0, 375.0 if at < 0.43 else float(rng.integers(332, 335)) if at < 0.70 else cut
    if at < 0.57:
        long = rng.uniform(150.0, 470.0)
    elif at < 0.95:
        long = float(rng.choice((640.0, 600.0, 800.0, rng.uniform(510.0, 860.0))))
    else:
        long = float(np.exp(rng.uniform(np.log(900.0), np.log(1900.0))))
    aspect = float(rng.choice((1.0, 4 / 3, 4 / 3, 3 / 2))) * rng.uniform(0.97, 1.08)
    return long, min(max(100.0, long / aspect), long)


@dataclass(frozen=True)
class DemoPhoto:
    """One generated photo."""

    jpeg: bytes  # the complete baseline file
    width: int
    height: int
    mask: NDArray[np.bool_] = field(compare=False, repr=False)  # (height, width): where the object is
    caption: str


def make_photo(seed: int, index: int, label: int, scale: float = 1.0) -> DemoPhoto:
    """Make photo `index` of a dataset's seed, of class CLASSES[label], in memory. A scale of 0.35 makes width and
    height that much smaller than ImageNet's, in a quarter of the time. The same arguments give the same bytes on the
    same versions of numpy, OpenCV and libjpeg-turbo.
    """
    if seed < 0 or index < 0:
        raise ConfigError(f"expected a seed and an index of 0 or more, got seed {seed} and index {index}")
    if not 0 <= label < len(CLASSES):
        raise ConfigError(f"expected a label from 0 to {len(CLASSES) - 1}, got {label}")
    rng = np.random.default_rng((seed, index, label))
    kind = _KINDS[int(rng.choice(len(_KINDS), p=[kind.share for kind in _KINDS]))]
    long, short = (round(scale * edge) for edge in _draw_edges(rng, kind.long_500))
    width, height = (long, short) if rng.random() < _LANDSCAPE_SHARE else (short, long)
    weight = _LEAST_TEXTURE * (_MOST_TEXTURE / _LEAST_TEXTURE) ** rng.random()
    quality = int(rng.choice(kind.qualities))
    planes, texture, shape = _paint(rng, height, width, CLASSES[label])
    mask = shape.cover >= 0.5  # the pixels of which the object covers at least half
    parts = [mask] if shape.second is None else [mask & (shape.second < 0.5), mask & (shape.second >= 0.5)]
    colours = [planes[:, part].mean(axis=1) for part in parts if part.any()]  # of the object's surface, as it is lit
    smooth, fine = (np.ascontiguousarray(layer.transpose(1, 2, 0)) for layer in (planes, texture))
    bgr = cv2.addWeighted(smooth, 1.0, fine, weight, 0.0, dtype=cv2.CV_8U)
    jpeg = encode_jpeg(np.ascontiguousarray(bgr[:, :, ::-1]), quality=quality, sampling=kind.sampling)
    caption = caption_of(CLASSES[label], colours, mask, gray=kind.sampling == "gray")
    return DemoPhoto(jpeg, width, height, mask, caption)
