"""Turns the masks and colours of objects into ground truth: captions, and a file in COCO's format.

Each photo has one annotation, which is of COCO's object kind and of its caption kind at once: the
readers of both kinds take only the keys that they know. A segmentation is an uncompressed
run-length encoding, because it gives back exactly the pixels of the mask: a polygon of COCO has no
holes, as a ring has one, and each reader rounds its edges differently. Format:
https://cocodataset.org/#format-data
"""

from __future__ import annotations

import colorsys
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Bools
from fastpipe.tools.demo.shapes import CLASSES, PATTERNED_CLASSES

FIRST_CATEGORY = 1
"""A category's number is its label plus this.

0 is the background, in masks and in torchvision's detectors.
"""

# Axes: thirds of the height, thirds of the width.
_PLACES = (
    ("at the top left", "at the top", "at the top right"),
    ("on the left", "in the middle", "on the right"),
    ("at the bottom left", "at the bottom", "at the bottom right"),
)
# The first hue goes up to the first limit in degrees, and so on.
_HUES = ("red", "orange", "yellow", "green", "blue", "purple", "red")
_HUE_LIMITS = (18, 48, 70, 165, 260, 335)
# The first gray is below the first limit of luma, of 255, and so on.
_GRAYS = ("black", "dark gray", "gray", "light gray", "white")
_GRAY_LIMITS = (40, 100, 165, 225)
# A colour looks gray if its largest and its smallest channel differ by less: of 255, and of the
# largest.
_MIN_CHROMA = 20.0
_MIN_SATURATION = 0.14
_BEIGE_SATURATION = 0.4
_DARK_CHANNEL = 125.0  # the largest channel, of 255
_BROWN_LUMA = 135.0  # of 255
_LIGHT_LUMA = 175.0


def describe_object(
    name: str,
    colours: Sequence[NDArray[np.floating]],
    mask: Bools,
    *,
    gray: bool,
) -> str:
    """Describe an object: "a dark blue disc on the left", "a pebble with red stripes at the top".

    Args:
        name: the class.
        colours: one or two of BGR, about 0..255.
        mask: (height, width), where the object is.
        gray: whether the photo has no colours.
    """
    words = [_name_colour(colour, gray=gray) for colour in colours]
    words = list(dict.fromkeys(words))  # two colours may have one name
    thing = f"{words[0]} {name}"
    if name in PATTERNED_CLASSES:
        thing = f"pebble with {' and '.join(words)} {name}"
    article = "an" if thing[0] in "aeiou" else "a"
    height, width = mask.shape
    rows, columns = np.nonzero(mask)
    # The thirds of the photo that the middle of the object is in.
    row_third = int(3 * rows.mean() / height)
    column_third = int(3 * columns.mean() / width)
    place = _PLACES[row_third][column_third]
    return f"{article} {thing} {place}"


def _name_colour(colour: NDArray[np.floating], *, gray: bool) -> str:
    blue, green, red = np.clip(colour, 0.0, 255.0).tolist()
    luma = 0.114 * blue + 0.587 * green + 0.299 * red
    hue, saturation, largest = colorsys.rgb_to_hsv(red, green, blue)
    chroma = saturation * largest
    if gray or chroma < _MIN_CHROMA or saturation < _MIN_SATURATION:
        return _GRAYS[bisect_right(_GRAY_LIMITS, luma)]
    word = _HUES[bisect_left(_HUE_LIMITS, 360.0 * hue)]
    if word == "orange" and luma < _BROWN_LUMA:
        word = "brown"
    elif word == "orange" and saturation < _BEIGE_SATURATION:
        return "beige"
    elif word == "red" and luma > _LIGHT_LUMA:
        return "pink"
    if largest < _DARK_CHANNEL:
        return f"dark {word}"
    if luma > _LIGHT_LUMA:
        return f"light {word}"
    return word


def make_annotation(
    photo: int, label: int, mask: Bools, caption: str
) -> dict[str, Any]:
    """Return an entry of "annotations".

    Its box is the smallest that holds the mask: x, y, width, height in pixels.
    """
    rows = np.flatnonzero(mask.any(axis=1)).tolist()
    columns = np.flatnonzero(mask.any(axis=0)).tolist()
    x = columns[0]
    y = rows[0]
    box_width = columns[-1] - x + 1
    box_height = rows[-1] - y + 1
    return {
        "id": photo + 1,  # COCO's evaluation takes 0 for no annotation
        "image_id": photo,
        "category_id": label + FIRST_CATEGORY,
        "bbox": [x, y, box_width, box_height],
        "area": int(np.count_nonzero(mask)),
        "iscrowd": 0,
        "segmentation": {"size": list(mask.shape), "counts": measure_run_lengths(mask)},
        "caption": caption,
    }


def measure_run_lengths(mask: Bools) -> list[int]:
    """Measure a mask's runs of False, True, False, ..., down the columns; the first may be 0."""
    flat = mask.ravel(order="F")
    is_change = flat[1:] != flat[:-1]
    changes = np.flatnonzero(is_change) + 1
    edges = np.concatenate([[0], changes, [flat.size]])
    lengths: list[int] = np.diff(edges).tolist()
    # The first run has to be one of False, so an empty one comes before True.
    if flat[0]:
        return [0, *lengths]
    return lengths


def encode_coco(
    info: Mapping[str, Any], photos: Iterable[tuple[str, dict[str, Any]]]
) -> Iterator[str]:
    """Yield COCO's file in pieces, so that few annotations are in memory at a time.

    Args:
        info: the value of "info", which stands in the first line.
        photos: the file name and the annotation of each photo.
    """
    categories = []
    for category, name in enumerate(CLASSES, FIRST_CATEGORY):
        categories.append({"id": category, "name": name})
    yield f'{{"info": {json.dumps(info)},\n'
    yield f'"categories": {json.dumps(categories)},\n'
    yield '"annotations": ['
    images: list[str] = []
    for name, entry in photos:
        separator = "," if images else ""
        yield f"{separator}\n{json.dumps(entry)}"
        height, width = entry["segmentation"]["size"]
        image = {
            "id": entry["image_id"],
            "file_name": name,
            "width": width,
            "height": height,
        }
        images.append(json.dumps(image))
    yield '\n],\n"images": [\n'
    yield ",\n".join(images)
    yield "\n]}\n"
