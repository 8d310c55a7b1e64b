"""SVHN's digitStruct.json -> its images with the boxes of the digits.

Format: the usual conversion of digitStruct.mat of http://ufldl.stanford.edu/housenumbers/ to JSON:
an array of {"filename": ..., "boxes": [{"left", "top", "width", "height", "label"}]}. Labels
are 1 to 10; 10 is the digit 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    add_objects,
    box_of_sides,
    number,
    object_of,
)

FILE_NAME = re.compile(r"digit_?struct.*\.json", re.IGNORECASE)
_LABEL_OF_ZERO = 10
# By number, so that the numbers are the labels of the file. No digit has the number 0.
CLASSES = ("none", *map(str, range(1, _LABEL_OF_ZERO)), "0")
_ZEROS = (
    "digits with the label 10: {}; in SVHN it is the digit 0. The classes keep the numbers of the "
    "file: number 10 is called 0, and number 0 is of no digit"
)
_CUT = "boxes: {}, cut off at the edge of the image, for some of SVHN's end outside"


def parse(entry: Any) -> Iterator[AnnotatedImage]:
    """The image of an entry of the array. ValueError: it is something else."""
    fields = object_of(entry, "an image")
    # Some boxes of SVHN begin at -1 or end outside.
    image = AnnotatedImage(str(fields.get("filename") or ""), may_leave_image=True)
    add_objects(image, fields.get("boxes"), "boxes", "a digit", _add_digit)
    yield image


def _add_digit(image: AnnotatedImage, digit: Mapping[str, Any]) -> None:
    label = number(digit.get("label"))
    if label not in range(1, _LABEL_OF_ZERO + 1):
        raise ValueError(f"expected a label of 1 to {_LABEL_OF_ZERO}, got {label:g}")
    if label == _LABEL_OF_ZERO:
        image.remarks[_ZEROS] += 1
    image.remarks[_CUT] += 1
    image.add(box_of_sides(digit), CLASSES[int(label)])
