"""A label file of DOTA -> the objects of the image that is called like it.

Format: https://captain-whu.github.io/DOTA/dataset.html: the corners of a rotated box, the class, and
whether the object is difficult.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    box_around,
)

# These lines stand above the boxes.
HEADER = re.compile(r"(?:imagesource|acquisition\s?dates|gsd)\s*:.*", re.IGNORECASE)
_NUM_CORNERS = 8


def parse(text: str) -> Iterator[AnnotatedImage]:
    """Yields one image, without a path. ValueError: the text is not a label file of DOTA."""
    image = AnnotatedImage("", may_leave_image=True)
    for index, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or HEADER.match(line.strip()):
            continue
        if len(words) <= _NUM_CORNERS:
            raise ValueError(
                f"line {index}: expected eight numbers and a class, got {line[:60]!r}"
            )
        xs = words[:_NUM_CORNERS:2]
        ys = words[1:_NUM_CORNERS:2]
        points = list(zip(xs, ys, strict=True))
        is_difficult = words[-1] if len(words) > _NUM_CORNERS + 1 else "0"
        try:
            image.add(
                box_around(points), words[8], {"difficult": int(is_difficult != "0")}
            )
        except ValueError as problem:
            raise ValueError(f"line {index}: {problem}") from None
        image.around["rotated boxes"] += 1
    yield image
