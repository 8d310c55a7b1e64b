"""A list of WIDER FACE -> its images with the boxes of faces.

Format: readme.txt of http://shuoyang1213.me/WIDERFACE: the image, the number of faces, and a line for
each: left, top, width, height, blur, expression, illumination, invalid, occlusion, pose.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    box_of_size,
    number,
)

_CLASS = "face"
_ATTRIBUTES = ("blur", "expression", "illumination", "invalid", "occlusion", "pose")
_MIN_WORDS = 4
_INVALID = (
    "faces that are marked as invalid: {}; they are boxes like the others, and the field attributes "
    "tells which they are"
)


def parse(text: str) -> Iterator[AnnotatedImage]:
    """ValueError: the text is not a list of WIDER FACE."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    position = 0
    while position < len(lines):
        image = AnnotatedImage(lines[position])
        next_position = position + 1
        count_text = lines[next_position] if next_position < len(lines) else ""
        if not count_text.isdigit():
            raise ValueError(
                f"expected the number of faces below {image.path[:60]!r}, got {count_text[:60]!r}"
            )
        position += 2
        count = int(count_text)
        faces = lines[position : position + count]
        if len(faces) < count:
            raise ValueError(f"expected {count} faces of {image.path[:60]!r}")
        position += count
        # An image without a face has a line of zeros.
        if count == 0 and position < len(lines) and _is_zeros(lines[position]):
            position += 1
        for face in faces:
            _add_face(image, face.split())
        yield image


def _is_zeros(line: str) -> bool:
    return all(word == "0" for word in line.split())


def _add_face(image: AnnotatedImage, words: list[str]) -> None:
    if len(words) < _MIN_WORDS:
        image.reject_object(
            f"expected left, top, width and height of a face, got {words!r:.60}"
        )
        return
    attributes = {}
    for name, word in zip(_ATTRIBUTES, words[_MIN_WORDS:], strict=False):
        attributes[name] = int(word) if word.isdigit() else word
    try:
        box = box_of_size(words[:_MIN_WORDS])
        if not number(words[2]) or not number(words[3]):
            image.left_out["faces without width or height"] += 1
            return
        if attributes.get("invalid") == 1:
            image.remarks[_INVALID] += 1
        image.add(box, _CLASS, attributes)
    except ValueError as problem:
        image.reject_object(str(problem))
