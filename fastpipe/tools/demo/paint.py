"""Turns a random generator and a class name into a photo-like scene with an object of the class.

Natural photos have an amplitude spectrum of about 1/f (D. J. Field, "Relations between the
statistics of natural images and the response properties of cortical cells", J. Opt. Soc. Am. A
4(12), 1987). A sum of octaves of white noise, each twice as fine as the one before, has it where
all octaves weigh the same.

The order in which numbers are drawn decides every photo: a change to it makes other photos of the
same seeds.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

from fastpipe.arrays import Float32s
from fastpipe.tools.demo.shapes import Field, Shape, draw_shape

Planes = Float32s  # axes (blue-green-red, row, column), about 0..255
Colour = Float32s  # blue, green, red, about 0..255

_LUMA_BGR = np.array([0.114, 0.587, 0.299], np.float32)  # ITU-R BT.601, section 2.5.1
_CONTRAST = 62.0  # least luma distance between an object's colour and its surroundings


class Light(NamedTuple):
    """The unit vector towards the light."""

    x: float
    y: float
    z: float  # towards the camera


class Scene(NamedTuple):
    """A painted scene."""

    smooth: Planes  # all but the fine texture
    texture: Planes  # to be added with some weight
    shape: Shape  # its object


def paint_scene(rng: np.random.Generator, height: int, width: int, name: str) -> Scene:
    """Paint a scene of that many pixels, with an object of class `name`."""
    turn = rng.uniform(0.0, 2.0 * np.pi)
    # 0.6 across and 0.8 towards the camera: a vector of length 1.
    light_x = 0.6 * np.cos(turn)
    light_y = 0.6 * np.sin(turn)
    light = Light(float(light_x), float(light_y), 0.8)
    planes, rough = _paint_backdrop(rng, height, width)
    shape = draw_shape(rng, name, height, width)
    _lay_object(rng, planes, rough, shape, light)
    texture = _draw_texture(rng, planes, rough, light)
    return Scene(planes, texture, shape)


def _resize(field: Field, height: int, width: int) -> Field:
    size = (width, height)
    resized = cv2.resize(field, size, interpolation=cv2.INTER_CUBIC)
    return np.asarray(resized, np.float32)


def _blur(field: Field, sigma: float) -> Field:
    # With a size of (0, 0) cv2 derives the kernel's size from sigma.
    kernel_size = (0, 0)
    visible_sigma = max(0.8, sigma)
    blurred = cv2.GaussianBlur(field, kernel_size, visible_sigma)
    return np.asarray(blurred, np.float32)


def _step(field: Field, softness: float) -> Field:
    """A smooth step from 0 to 1 at 0, of half-width `softness`."""
    slope = 0.5 / softness
    ramp = field * slope + 0.5
    t = np.clip(ramp, 0.0, 1.0)
    # The cubic polynomial with slope 0 at both ends, "smoothstep".
    squared = t * t
    factor = 3.0 - 2.0 * t
    step = squared * factor
    return np.asarray(step, np.float32)


def _divide_up(number: int, divisor: int) -> int:
    """7 / 2 -> 4."""
    return -(-number // divisor)


def _draw_noise(
    rng: np.random.Generator,
    height: int,
    width: int,
    persistence: float,
    octaves: range,
) -> Field:
    """A sum of octaves of noise with mean 0 and deviation 1; octave n has cells of 2**n pixels.

    `persistence` is an octave's amplitude relative to the next coarser one; 0.5 is cloud-like, 1.0
    is 1/f.
    """
    field = np.zeros((2, 2), np.float32)
    amplitude = 1.0
    for octave in reversed(octaves):
        cell_size = 1 << octave
        # A corner more than cells, on each side.
        rows = _divide_up(height, cell_size) + 1
        columns = _divide_up(width, cell_size) + 1
        grid_shape = (rows, columns)
        noise = rng.standard_normal(grid_shape, dtype=np.float32)
        # The coarser octaves, as large as this one.
        coarser = _resize(field, rows, columns)
        octave_noise = amplitude * noise
        field = coarser + octave_noise
        amplitude *= persistence
    field = _resize(field, height, width)
    deviations = field - field.mean()
    normalised = deviations / field.std()
    return np.asarray(normalised, np.float32)


def _draw_colour(rng: np.random.Generator) -> Colour:
    """Draw a colour. All surfaces of all classes have this one distribution."""
    # Daylight scenes vary mostly between warm and cool, little between green and magenta, and are
    # greyish.
    warm = rng.laplace(4.0, 20.0)
    magenta = rng.laplace(-1.0, 4.0)
    blue = magenta - warm
    red = magenta + 0.8 * warm
    colour = np.array([blue, 0.0, red], np.float32)
    # Green is such that the luma is 0.
    luma_without_green = colour @ _LUMA_BGR
    luma_of_green = _LUMA_BGR[1]
    colour[1] = -luma_without_green / luma_of_green
    luma = np.float32(rng.uniform(25.0, 230.0))
    bright_colour = colour + luma
    colour = np.clip(bright_colour, 4.0, 250.0)
    return np.asarray(colour, np.float32)


def _draw_contrasting(rng: np.random.Generator, surroundings: Colour) -> Colour:
    """Draw a colour whose luma is at least _CONTRAST away from another's, so that one sees it."""
    while True:
        colour = _draw_colour(rng)
        difference = colour - surroundings
        luma_distance = float(_LUMA_BGR @ difference)
        if abs(luma_distance) >= _CONTRAST:
            return colour


def _mix(first: Colour, second: Colour, share: Field) -> Planes:
    """A surface that runs from one colour to another, with a share of the second."""
    # (channels, 1, 1)
    first_plane = first[:, None, None]
    second_plane = second[:, None, None]
    difference = second_plane - first_plane
    return first_plane + difference * share


def _paint_backdrop(
    rng: np.random.Generator, height: int, width: int
) -> tuple[Planes, Field]:
    """Paint a sky, and bodies such as ridges before it.

    Returns:
        The planes, and how strong the fine texture is at each pixel, 0 to 1.
    """
    longer_side = max(height, width)
    end_octave = int(np.log2(longer_side))
    # From cells of 4 pixels; what is finer is the texture's.
    octaves = range(2, end_octave)
    # (height, 1) from -1 at the top to 1 at the bottom.
    rows = np.linspace(-1.0, 1.0, height, dtype=np.float32)
    down: Field = rows[:, None]
    clouds = _draw_noise(rng, height, width, 0.55, octaves)
    slope = rng.uniform(-0.8, 0.8)
    sky = 0.45 * clouds
    sky += slope * down
    first_colour = _draw_colour(rng)
    second_colour = _draw_colour(rng)
    sky_share = _step(sky, 1.2)
    planes = _mix(first_colour, second_colour, sky_share)
    roughness = rng.uniform(0.02, 0.3)
    shape = (height, width)
    rough = np.full(shape, roughness, np.float32)

    body_count = rng.integers(1, 4)
    levels = rng.uniform(-0.5, 0.9, body_count)
    for level in sorted(levels.tolist()):
        persistence = rng.uniform(0.35, 0.6)
        # Positive inside the body: below its level, up to an uneven edge.
        edge = _draw_noise(rng, height, width, persistence, octaves)
        below_level = down - level
        unevenness_of_edge = 0.5 * edge
        body = unevenness_of_edge + 4.0 * below_level
        softness = rng.uniform(0.02, 0.12)
        mask = _step(body, softness)
        # Deeper inside a body less light falls in: it gets darker below its lit edge.
        unevenness = _draw_noise(rng, height, width, 0.6, octaves)
        uneven = 0.6 * unevenness
        inside = uneven + 0.5 * body
        below_lit_edge = inside - 0.3
        depth = _step(below_lit_edge, 1.5)
        lit_colour = _draw_colour(rng)
        tint = _draw_colour(rng)
        darkened_colour = 0.65 * lit_colour
        dark_colour = darkened_colour + 0.25 * tint
        surface = _mix(lit_colour, dark_colour, depth)
        roughness = rng.uniform(0.05, 1.0)
        _lay_over(planes, rough, surface, roughness, mask)
    return planes, rough


def _lay_over(
    planes: Planes, rough: Field, surface: Planes, roughness: float, mask: Field
) -> None:
    """Lay a surface over planes, in place: where the mask is 1, it replaces what is behind it."""
    difference = surface - planes
    planes += mask * difference
    rough_difference = roughness - rough
    rough += mask * rough_difference


def _lay_object(
    rng: np.random.Generator, planes: Planes, rough: Field, shape: Shape, light: Light
) -> None:
    """Lay the object with its shadow, shading and highlight, in place."""
    height, width = rough.shape
    # (blue-green-red,) the mean colour of the pixels that it covers.
    covered = planes * shape.cover
    area = shape.cover.sum()
    colour_sums = covered.sum(axis=(1, 2))
    behind = colour_sums / area
    first = _draw_contrasting(rng, behind)
    second = _draw_contrasting(rng, first)

    # Shadow and light are smooth, so a coarser grid is enough for them.
    exact_step = 0.02 * shape.side
    step = max(1, int(exact_step))
    side = shape.side / step
    grid_width = _divide_up(width, step)
    grid_height = _divide_up(height, step)
    grid = (grid_width, grid_height)
    resized = cv2.resize(shape.cover, grid, interpolation=cv2.INTER_AREA)
    small_cover = np.asarray(resized, np.float32)
    shadow = _cast_shadow(small_cover, side, light)
    large_shadow = _resize(shadow, height, width)
    darkness = rng.uniform(0.25, 0.6)
    shading = darkness * large_shadow
    planes *= 1.0 - shading

    small_lit = _light_bulge(small_cover, side, light)
    lit = _resize(small_lit, height, width)
    lit = np.clip(lit, 0.0, 1.0)
    glossiness = rng.uniform(0.0, 360.0)
    above_threshold = lit - 0.93
    highlight = np.clip(above_threshold, 0.0, 1.0)
    gloss = glossiness * highlight
    share = shape.second
    if share is None:
        share = np.zeros((1, 1), np.float32)
    brightness = 0.45 + 0.62 * lit
    colours = _mix(first, second, share)
    lit_colours = colours * brightness
    surface = lit_colours + gloss
    mask = _blur(shape.cover, 0.0)  # a lens leaves every edge a little soft
    roughness = rng.uniform(0.05, 0.45)
    _lay_over(planes, rough, surface, roughness, mask)


def _cast_shadow(cover: Field, side: float, light: Light) -> Field:
    """The shadow of an object on the coarse grid, 0 to 1. It lies away from the light."""
    away_x = -0.09 * light.x
    away_y = -0.09 * light.y
    shift_x = away_x * side
    shift_y = away_y * side
    # (2, 3), as cv2.warpAffine takes it: a move without a turn.
    x_row = [1.0, 0.0, shift_x]
    y_row = [0.0, 1.0, shift_y]
    shift = np.array([x_row, y_row])
    height, width = cover.shape
    size = (width, height)
    shifted = cv2.warpAffine(cover, shift, size)
    hard_shadow = np.asarray(shifted, np.float32)
    softness = 0.04 * side
    return _blur(hard_shadow, softness)


def _light_bulge(cover: Field, side: float, light: Light) -> Field:
    """The brightness of a bulging object on the coarse grid.

    Its blurred mask is its height. Its brightness is Lambert's law: the cosine of the angle between
    the light and the surface's normal, (-slope_x, -slope_y, 1) divided by its length.
    """
    near_edge = _blur(cover, 0.06 * side)
    wide = _blur(cover, 0.22 * side)
    rim = 0.07 * near_edge
    dome = 0.45 * wide
    bulge = side * (rim + dome)
    slope_y, slope_x = np.gradient(bulge)
    squared_x = slope_x**2
    squared_y = slope_y**2
    squared_length = 1.0 + squared_x + squared_y
    normal_length = np.sqrt(squared_length)
    across = light.x * slope_x
    down = light.y * slope_y
    towards_light = light.z - across - down
    return np.asarray(towards_light / normal_length)


def _draw_texture(
    rng: np.random.Generator, planes: Planes, rough: Field, light: Light
) -> Planes:
    """Draw fine texture: a rough relief lit from the side, and coloured grain."""
    height, width = rough.shape
    persistence = rng.uniform(0.9, 1.4)
    octaves = range(5)  # cells of up to 16 pixels
    relief = _draw_noise(rng, height, width, persistence, octaves)
    slope_y, slope_x = np.gradient(relief)
    across = light.x * slope_x
    down = light.y * slope_y
    lit = across + down
    tone_of_height = 0.6 * relief  # higher is brighter, wherever the light comes from
    shading = 2.0 * lit + tone_of_height
    luma = 11.0 * rough * shading
    # A sensor's grain is everywhere, in focus or not.
    grain_luma = rng.uniform(1.5, 5.5)
    grain = rng.standard_normal(rough.shape, dtype=np.float32)
    luma += grain_luma * grain
    # Stronger where the photo is bright.
    weight_per_level = 0.6 / 128.0
    weight = planes * weight_per_level + 0.4
    texture = luma * weight
    # Colour is coarser than luma: half as many pixels each way.
    half_height = _divide_up(height, 2)
    half_width = _divide_up(width, 2)
    for channel in (0, 2):  # blue and red
        hue = _draw_noise(rng, half_height, half_width, 1.1, octaves)
        hue_weight = 2.0 * rough + 1.0
        large_hue = _resize(hue, height, width)
        texture[channel] += large_hue * hue_weight
    return np.asarray(texture, np.float32)
