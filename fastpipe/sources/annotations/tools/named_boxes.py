"""A label file with a class and the sides of a box on each line -> the objects of the image called like it.

Format: https://github.com/EscVM/OIDv4_ToolKit: the class, which may have spaces in it, and left, top,
right and bottom in pixels, in Apple/Label/0a1b.txt for Apple/0a1b.jpg. The ground truth of
https://github.com/Cartucho/mAP is written so, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    corners,
)

READER = "OIDv4"
FOLDER = "Label"  # in the folder of the images of a class
_NUMBER = r"-?\d+(?:\.\d*)?"
_LINE = re.compile(
    rf"(\S(?:.*\S)?)\s+({_NUMBER})\s+({_NUMBER})\s+({_NUMBER})\s+({_NUMBER})"
)
_NUMBER_AT_END = re.compile(rf"(?:.*\s)?{_NUMBER}")


def is_list_of_boxes(lines: Sequence[str]) -> bool:
    """Whether each line has a class and a box, and no line the name of an image."""
    for line in lines:
        match = _LINE.fullmatch(line)
        # Five numbers behind a name are something else, as the lines of KITTI are.
        if match is None or _NUMBER_AT_END.fullmatch(match[1]):
            return False
        if any(map(is_picture, match[1].split())):
            return False
        left, top, right, bottom = map(float, match.groups()[1:])
        # Left, top, width and height would be another form.
        if right < left or bottom < top:
            return False
    return bool(lines)


def parse(text: str) -> Iterator[AnnotatedImage]:
    """Yields one image, without a path. ValueError: a line has no class and box."""
    image = AnnotatedImage("")
    for index, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise ValueError(
                f"line {index}: expected a class and left, top, right, bottom, got {line[:60]!r}"
            )
        try:
            image.add(corners(match.groups()[1:]), match[1])
        except ValueError as problem:
            raise ValueError(f"line {index}: {problem}") from None
    yield image
