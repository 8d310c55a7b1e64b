"""Folders of pictures with other channels and bits than RGB of 8, and Pillow's reading of them."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from support.pictures import pngs
from support.pictures.drawn import smooth_noise

SIZE = 40, 32  # width and height of all of them: a loader of that size neither crops nor resizes


def colour(seed: int) -> Image.Image:
    return smooth_noise(*SIZE, seed=seed)


def with_alpha(seed: int) -> Image.Image:
    image = colour(seed)
    image.putalpha(smooth_noise(*SIZE, seed=seed + 100).convert("L"))
    return image


def transparent_palette(seed: int) -> Image.Image:
    image = colour(seed).quantize(32)
    image.info["transparency"] = bytes(range(0, 256, 8))
    return image


# Name -> its picture: JPEGs and PNGs as a folder has them.
MIXED: dict[str, Callable[[], Image.Image]] = {
    "colour.jpg": lambda: colour(0),
    "gray.jpg": lambda: colour(1).convert("L"),
    "colour.png": lambda: colour(2),
    "alpha.png": lambda: with_alpha(3),
    "gray_alpha.png": lambda: with_alpha(4).convert("LA"),
    "gray.png": lambda: colour(5).convert("L"),
    "bits.png": lambda: colour(6).convert("1"),
    "palette.png": lambda: colour(7).quantize(64),
    "transparent_palette.png": lambda: transparent_palette(8),
}
# As stored.
CHANNELS = {
    "colour.jpg": 3,
    "gray.jpg": 1,
    "colour.png": 3,
    "alpha.png": 4,
    "gray_alpha.png": 4,
    "gray.png": 1,
}
CHANNELS |= {"bits.png": 1, "palette.png": 3, "transparent_palette.png": 4}


def write_mixed(folder: Path, names: object = tuple(MIXED)) -> Path:
    """Writes some of MIXED."""
    folder.mkdir(parents=True)
    for name, make in MIXED.items():
        if name in names:  # type: ignore[operator]
            image = make()
            transparency = (
                {"transparency": image.info["transparency"]} if "transparency" in image.info else {}
            )
            image.save(
                folder / name, **({"quality": 90} if name.endswith(".jpg") else transparency)
            )
    return folder


def write_deep(folder: Path, color: int, count: int = 4) -> list[NDArray[np.uint16]]:
    """Writes PNGs of 16 bits; their samples (height, width, channels)."""
    folder.mkdir(parents=True)
    channels = pngs.CHANNELS[color]
    width, height = SIZE
    found = []
    for number in range(count):
        samples = np.random.default_rng(number).integers(
            0, 2**16, (height, width, channels), dtype=np.uint16
        )
        (folder / f"{number}.png").write_bytes(pngs.png(samples, bits=16, color=color))
        found.append(samples)
    return found


def by_pillow(source: Path | bytes, mode: str) -> Image.Image:
    """A picture as Pillow's `convert` has it; a JPEG in gray as its decoder has it, which is its luma."""
    image = Image.open(io.BytesIO(source if isinstance(source, bytes) else source.read_bytes()))
    if mode == "L" and image.format == "JPEG":
        image.draft("L", image.size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of palettes with transparency, which lose it
        return image.convert(mode)


def as_array(image: Image.Image) -> NDArray[np.uint8]:
    """(height, width, channels)."""
    array = np.asarray(image)
    return array if array.ndim == 3 else array[..., None]
