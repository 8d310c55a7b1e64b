"""A list of ICDAR's scene texts -> the texts in the picture that the file is called after.

Format: https://rrc.cvc.uab.es/?ch=4&com=tasks: gt_img_1.txt has the words of img_1.jpg, each on a
line: x and y of four corners, and the text, which may have commas in it. Multi-lingual sets (MLT)
have the script before the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    box_around,
    number,
)

# The name of the file has this before that of the picture.
PREFIX = "gt_"
_CLASS = "text"
_NUM_CORNERS = 8
_SCRIPTS = {
    "Arabic",
    "Bangla",
    "Chinese",
    "Hindi",
    "Japanese",
    "Korean",
    "Latin",
    "Mixed",
    "None",
    "Symbols",
}
_UNREADABLE = "###"
_UNREADABLE_REMARK = (
    "texts that are written as ###, which nobody can read or which do not count: {}; they are "
    "boxes like the others, and the field attributes has their texts"
)


def is_list_of_texts(lines: Sequence[str]) -> bool:
    """Whether all lines have the corners of a box and a text, and not all texts are numbers."""
    texts = []
    for line in lines:
        cells = line.split(",", _NUM_CORNERS)
        if len(cells) <= _NUM_CORNERS or not all(map(_is_number, cells[:-1])):
            return False
        texts.append(cells[-1])
    # MOT has nine or ten numbers in each line.
    return not all(_is_number(cell) for text in texts for cell in text.split(","))


def parse(text: str) -> Iterator[AnnotatedImage]:
    """Yields one image, without a path. ValueError: the text is no list of ICDAR."""
    image = AnnotatedImage("", may_leave_image=True)
    corners_of_lines = []
    texts = []
    for index, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        cells = line.split(",", _NUM_CORNERS)
        if len(cells) <= _NUM_CORNERS:
            raise ValueError(
                f"line {index}: expected eight numbers and a text between commas, got {line[:60]!r}"
            )
        try:
            corners_of_lines.append([number(cell) for cell in cells[:-1]])
        except ValueError as problem:
            raise ValueError(f"line {index}: {problem}") from None
        texts.append(cells[-1].strip())

    parts = [text_of_line.partition(",") for text_of_line in texts]
    has_scripts = all(comma and script in _SCRIPTS for script, comma, _ in parts)
    for corners, written, (script, _, rest) in zip(
        corners_of_lines, texts, parts, strict=True
    ):
        attributes = {"text": written}
        if has_scripts:
            attributes = {"text": rest.strip(), "script": script}
        points = list(zip(corners[::2], corners[1::2], strict=True))
        box = box_around(points)
        image.add(box, _CLASS, attributes, outline=[corners])
        left, top, right, bottom = box
        if set(points) != {(left, top), (right, top), (right, bottom), (left, bottom)}:
            image.around["quadrilaterals"] += 1
            image.outlined_count += 1
        if attributes["text"] == _UNREADABLE:
            image.remarks[_UNREADABLE_REMARK] += 1
    yield image


def _is_number(cell: str) -> bool:
    try:
        number(cell)
    except ValueError:
        return False
    return True
