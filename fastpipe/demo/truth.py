"""Turns the masks and colours of objects into the ground truth of demo photos: captions, and one file of COCO's format.

Each photo has one annotation, which is of COCO's object kind and of its caption kind at once: the readers of both kinds
take only the keys that they know. A segmentation is an uncompressed run-length encoding, because it gives back exactly
the pixels of the mask: a polygon of COCO has no holes, as a ring has one, and each reader rounds its edges differently.
Format: https://cocodataset.org/#format-data
"""

from __future__ import annotations

import colorsys
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.demo.shapes import CLASSES

FIRST_CATEGORY = 1
"""A category's number is its label plus this: 0 is the background, in masks and in torchvision's detectors."""

_PLACES = (
    ("at the top left", "at the top", "at the top right"),
    ("on the left", "in the middle", "on the right"),
    ("at the bottom left", "at the bottom", "at the bottom right"),
)
# Hues up to these degrees; red again beyond the last.
_HUES = ((18, "red"), (48, "orange"), (70, "yellow"), (165, "green"), (260, "blue"), (335, "purple"), (360, "red"))
_GRAYS = ((40, "black"), (100, "dark gray"), (165, "gray"), (225, "light gray"), (256, "white"))
# Difference of the largest and the smallest channel below which a colour looks gray: of 255, and of the largest.
_LEAST_CHROMA, _LEAST_SATURATION, _BEIGE = 20.0, 0.14, 0.4
_DARK = 125.0  # largest channel, of 255
_BROWN, _LIGHT = 135.0, 175.0  # luma, of 255


def caption_of(name: str, colours: Sequence[NDArray[np.floating]], mask: NDArray[np.bool_], *, gray: bool) -> str:
    """Describe an object: "a dark blue disc on the left", "a pebble with red and light gray stripes at the top".

    `colours` are one or two of BGR, about 0..255; a gray photo has none.
    """
    words = list(dict.fromkeys(_colour_word(colour, gray=gray) for colour in colours))
    thing = f"pebble with {' and '.join(words)} {name}" if name in ("checks", "stripes") else f"{words[0]} {name}"
    row, column = (int(3 * at.mean() / edge) for at, edge in zip(np.nonzero(mask), mask.shape, strict=True))
    return f"{'an' if thing[0] in 'aeiou' else 'a'} {thing} {_PLACES[row][column]}"


def _colour_word(colour: NDArray[np.floating], *, gray: bool) -> str:
    blue, green, red = np.clip(colour, 0.0, 255.0).tolist()
    luma = 0.114 * blue + 0.587 * green + 0.299 * red
    hue, saturation, most = colorsys.rgb_to_hsv(red, green, blue)
    if gray or saturation * most < _LEAST_CHROMA or saturation < _LEAST_SATURATION:
        return next(word for limit, word in _GRAYS if luma < limit)
    word = next(word for limit, word in _HUES if 360.0 * hue <= limit)
    if word == "orange" and luma < _BROWN:
        word = "brown"
    elif word == "orange" and saturation < _BEIGE:
        return "beige"
    elif word == "red" and luma > _LIGHT:
        return "pink"
    return f"dark {word}" if most < _DARK else f"light {word}" if luma > _LIGHT else word


def annotation(photo: int, label: int, mask: NDArray[np.bool_], caption: str) -> dict[str, Any]:
    """An entry of "annotations"; its box is the smallest that holds the mask: x, y, width, height in pixels."""
    rows, columns = np.flatnonzero(mask.any(axis=1)).tolist(), np.flatnonzero(mask.any(axis=0)).tolist()
    return {
        "id": photo + 1,  # COCO's evaluation takes 0 for no annotation
        "image_id": photo,
        "category_id": label + FIRST_CATEGORY,
        "bbox": [columns[0], rows[0], columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1],
        "area": int(np.count_nonzero(mask)),
        "iscrowd": 0,
        "segmentation": {"size": list(mask.shape), "counts": run_lengths(mask)},
        "caption": caption,
    }


def run_lengths(mask: NDArray[np.bool_]) -> list[int]:
    """The lengths of a mask's runs of False, True, False, ..., down the columns; the first may be 0."""
    flat = mask.ravel(order="F")
    edges = np.concatenate([[0], np.flatnonzero(flat[1:] != flat[:-1]) + 1, [flat.size]])
    return [0] * bool(flat[0]) + np.diff(edges).tolist()  # type: ignore[no-any-return]


def coco_lines(info: Mapping[str, Any], photos: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """The file, of each photo's file name and annotation, few of them in memory at a time; `info` is its first line."""
    categories = [{"id": label + FIRST_CATEGORY, "name": name} for label, name in enumerate(CLASSES)]
    yield f'{{"info": {json.dumps(info)},\n"categories": {json.dumps(categories)},\n"annotations": ['
    images: list[str] = []
    for name, entry in photos:
        yield f"{',' if images else ''}\n{json.dumps(entry)}"
        height, width = entry["segmentation"]["size"]
        images.append(json.dumps({"id": entry["image_id"], "file_name": name, "width": width, "height": height}))
    yield '\n],\n"images": [\n' + ",\n".join(images) + "\n]}\n"
