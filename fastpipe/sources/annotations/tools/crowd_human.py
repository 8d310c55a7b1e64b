"""A line of CrowdHuman's annotations -> the image with its persons.

Format: https://www.crowdhuman.org/download.html. A person has three boxes: fbox is the whole body,
also where it is hidden or outside the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    add_objects,
    box_of_size,
    list_of,
    object_of,
)

_WHOLE_BODY = (
    "boxes: {}, of whole persons (fbox), also of their hidden parts, cut off at the "
    "edge of the image; vbox (visible) and hbox (head) are not packed"
)


def parse(line: object) -> Iterator[AnnotatedImage]:
    """Yields one image. ValueError: the entry is not a line of CrowdHuman."""
    entry = object_of(line, "a line")
    image = AnnotatedImage(str(entry.get("ID") or ""), may_leave_image=True)
    add_objects(image, entry.get("gtboxes"), "gtboxes", "a box", _add_person)
    yield image


def _add_person(image: AnnotatedImage, box: Mapping[str, Any]) -> None:
    extra = box.get("extra")
    is_ignored = isinstance(extra, Mapping) and bool(extra.get("ignore"))
    if is_ignored or box.get("tag") == "mask":
        image.left_out["regions to ignore"] += 1
        return
    values = list_of(box.get("fbox"), "fbox")
    image.add(box_of_size(values), box.get("tag"))
    image.remarks[_WHOLE_BODY] += 1
