"""A .pts file of landmarks -> its points, with pixels counted from 0.

Format: https://ibug.doc.ic.ac.uk/resources/facial-point-annotations/: version, number of points,
and between braces x and y on a line for each point. The left upper pixel is 1, 1.
"""

from __future__ import annotations

import re

from fastpipe.sources.annotations.tools.annotated_image import number

# The ending of such files, and how pack takes them.
ENDING = "pts"
KIND = "keypoints"
_COUNT = re.compile(r"n_points\s*:\s*(\d+)")
_VISIBLE = 2.0


def parse_points(text: str) -> list[list[list[float]]]:
    """x, y and visibility of the points of one object. ValueError: the text is something else."""
    head, brace, rest = text.partition("{")
    body, end, _ = rest.partition("}")
    if not brace or not end:
        raise ValueError("expected points between braces, as .pts files have them")
    points = []
    for line in body.splitlines():
        words = line.split()
        if not words:
            continue
        if len(words) != 2:
            raise ValueError(f"expected x and y of a point, got {line.strip()[:60]!r}")
        x, y = [number(word) for word in words]
        points.append([x - 1, y - 1, _VISIBLE])
    count = _COUNT.search(head)
    if count is not None and int(count[1]) != len(points):
        raise ValueError(f"expected {count[1]} points, got {len(points)}")
    return [points]
