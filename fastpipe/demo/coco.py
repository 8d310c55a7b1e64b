"""Turns masks and captions of demo photos into one file of COCO's format: boxes, segmentations, captions.

Each photo has one annotation, which is of COCO's object kind and of its caption kind at once: the readers of both kinds
take only the keys that they know. A segmentation is an uncompressed run-length encoding, because it gives back exactly
the pixels of the mask: a polygon of COCO has no holes, as a ring has one, and each reader rounds its edges differently.
Format: https://cocodataset.org/#format-data
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.demo.shapes import CLASSES

__all__ = ["FIRST_CATEGORY", "annotation", "coco_lines", "run_lengths"]

FIRST_CATEGORY = 1
"""A category's number is its label plus this: 0 is the background, in masks and in torchvision's detectors."""


def annotation(photo: int, label: int, mask: NDArray[np.bool_], caption: str) -> dict[str, Any]:
    """The annotation of a photo.

    Args:
        photo: its number.
        label: the object's class.
        mask: (height, width), True where the object is; somewhere it is.
        caption: of the photo.

    Returns:
        An entry of "annotations"; its box is the smallest that holds the mask: x, y, width, height in pixels.
    """
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
    """The lines of the file; few of them are in memory at a time.

    Args:
        info: about the data set; alone in the first line.
        photos: for each photo its file's name and its annotation.
    """
    categories = [{"id": label + FIRST_CATEGORY, "name": name} for label, name in enumerate(CLASSES)]
    yield f'{{"info": {json.dumps(info)},\n"categories": {json.dumps(categories)},\n"annotations": ['
    images: list[tuple[int, str, list[int]]] = []
    for name, entry in photos:
        yield f"{',' if images else ''}\n{json.dumps(entry)}"
        images.append((entry["image_id"], name, entry["segmentation"]["size"]))
    yield '\n],\n"images": ['
    for number, (photo, name, (height, width)) in enumerate(images):
        image = {"id": photo, "file_name": name, "width": width, "height": height}
        yield f"{',' if number else ''}\n{json.dumps(image)}"
    yield "\n]}\n"
