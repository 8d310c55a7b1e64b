"""The GeoJSON of xView -> the images that it annotates.

Format: http://xviewdataset.org: `bounds_imcoords` of each feature is a box in pixels, "x0,y0,x1,y1";
`type_id` is the number of its class, of which xview_class_labels.txt has the name ("73:Building").
The coordinates of the geometry are degrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    corners,
    object_of,
)
from fastpipe.sources.json_stream import object_entries
from fastpipe.sources.numbered_classes import parse_numbered_names

CLASS_LABELS = "xview_class_labels.txt"
# The list lies beside the file, or in one of so many folders around it.
_MAX_LEVELS = 2
_CUT = "boxes: {}, in pixels (bounds_imcoords), cut off at the edge of the image"
_WITHOUT_NAME = (
    "objects whose type_id has no name: {}; the number is the name of their class. "
    f"{CLASS_LABELS} has the names"
)


def parse(path: Path) -> Iterator[AnnotatedImage]:
    """The images of a file, each with all of its features."""
    names = _read_class_names(path)
    images: dict[str, AnnotatedImage] = {}
    for list_name, number, entry in object_entries(path):
        if list_name != "features" or number < 0:
            continue
        feature = object_of(entry, "a feature")
        properties = object_of(feature.get("properties"), "properties")
        image_id = str(properties.get("image_id") or "")
        image = images.get(image_id)
        if image is None:
            image = images[image_id] = AnnotatedImage(image_id, may_leave_image=True)
        try:
            _add_feature(image, properties, names)
        except ValueError as problem:
            image.reject_object(f"feature {number}: {problem}")
    yield from images.values()


def _add_feature(
    image: AnnotatedImage, properties: Mapping[str, object], names: tuple[str, ...]
) -> None:
    type_id = properties.get("type_id")
    name = ""
    if isinstance(type_id, int) and 0 <= type_id < len(names):
        name = names[type_id]
    if not name:
        name = str(type_id)
        image.remarks[_WITHOUT_NAME] += 1
    image.add(corners(str(properties.get("bounds_imcoords")).split(",")), name)
    image.remarks[_CUT] += 1


def _read_class_names(path: Path) -> tuple[str, ...]:
    """The names of the classes by number; () if there is no list of them."""
    for folder in list(path.absolute().parents)[: 1 + _MAX_LEVELS]:
        file = folder / CLASS_LABELS
        if file.is_file():
            return parse_numbered_names(file.read_text("utf-8-sig").splitlines())
    return ()
