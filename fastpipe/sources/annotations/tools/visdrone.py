"""A label file of VisDrone's detection -> the objects of the image that is called like it.

Format: https://github.com/VisDrone/VisDrone2018-DET-toolkit: left, top, width, height, score,
category, truncation, occlusion.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    box_of_size,
)

# By the number of their category. The first one is a region to ignore.
_CATEGORIES = (
    "ignored regions",
    "pedestrian",
    "people",
    "bicycle",
    "car",
    "van",
    "truck",
    "tricycle",
    "awning-tricycle",
    "bus",
    "motor",
    "others",
)
# Regions to ignore give no box, so number 0 is the category 1.
CLASSES = _CATEGORIES[1:]
_NUM_CELLS = 8
_MAX_LEVEL = 2  # of truncation and occlusion


def parse(text: str) -> Iterator[AnnotatedImage]:
    """Yields one image, without a path. ValueError: the text is not a label file of VisDrone."""
    image = AnnotatedImage("")
    for index, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        numbers = numbers_of(line)
        if numbers is None:
            raise ValueError(
                f"line {index}: expected eight whole numbers, the sixth of 0 to 11, got {line[:60]!r}"
            )
        left, top, width, height, score, category, truncation, occlusion = numbers
        if category == 0 or score == 0:
            image.left_out["regions to ignore"] += 1
            continue
        attributes = {"truncation": truncation, "occlusion": occlusion}
        image.add(
            box_of_size([left, top, width, height]), _CATEGORIES[category], attributes
        )
    yield image


def numbers_of(line: str) -> list[int] | None:
    """The numbers in a line of VisDrone; None if it is a line of something else."""
    cells = [cell.strip() for cell in line.strip().rstrip(",").split(",")]
    if len(cells) != _NUM_CELLS:
        return None
    try:
        numbers = [int(cell) for cell in cells]
    except ValueError:
        return None
    _, _, width, height, score, category, truncation, occlusion = numbers
    is_visdrone = (
        width >= 0
        and height >= 0
        and score in (0, 1)
        and 0 <= category < len(_CATEGORIES)
        and 0 <= truncation <= _MAX_LEVEL
        and 0 <= occlusion <= _MAX_LEVEL
    )
    return numbers if is_visdrone else None
