"""A label file of KITTI's object detection -> the objects of the image that is called like it.

Format: readme.txt of https://s3.eu-central-1.amazonaws.com/avg-kitti/devkit_object.zip: type,
truncated, occluded, alpha, left, top, right, bottom, and the box in space.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    corners,
    number,
)

_MIN_WORDS = 8
_WORDS_WITH_SPACE = 15
_WORDS_WITH_SCORE = 16
_NO_OBJECT = "dontcare"


def parse(text: str) -> Iterator[AnnotatedImage]:
    """Yields one image, without a path. ValueError: the text is not a label file of KITTI."""
    image = AnnotatedImage("")
    for index, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) < _MIN_WORDS:
            raise ValueError(
                f"line {index}: expected a type and 14 numbers, got {line[:60]!r}"
            )
        if words[0].lower() == _NO_OBJECT:
            image.left_out["regions of DontCare"] += 1
            continue
        try:
            attributes = {
                "truncated": number(words[1]),
                "occluded": int(number(words[2])),
                "alpha": number(words[3]),
            }
            if len(words) == _WORDS_WITH_SCORE:
                attributes["score"] = number(words[15])
            image.add(corners(words[4:8]), words[0], attributes)
        except ValueError as problem:
            raise ValueError(f"line {index}: {problem}") from None
        if len(words) >= _WORDS_WITH_SPACE:
            image.left_out["boxes in space (dimensions, location, rotation_y)"] += 1
    yield image
