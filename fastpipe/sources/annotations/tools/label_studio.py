"""A task of Label Studio's JSON or JSON-MIN -> the image that it is about.

Formats: https://labelstud.io/guide/export#Label-Studio-JSON-format-of-annotated-tasks and
https://labelstud.io/guide/task_format. Coordinates are in percent of the image.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.sources.annotations.tools import outline
from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    Box,
    Outline,
    box_around,
    box_around_ellipse,
    box_around_rotated,
    box_of_size,
    class_name,
    image_size,
    list_of,
    number,
    object_of,
)

# Label Studio writes it before the name of a file that is uploaded.
_UPLOAD_PREFIX = re.compile(r"[0-9a-f]{8}-")
_LEFT_OUT = {"keypointlabels": "points", "keypoint": "points", "vectorlabels": "lines"}
_BRUSHES = ("brushlabels", "brush", "bitmasklabels", "bitmask")
_SHAPES = ("rectangle", "polygon", "ellipse")
_RECTANGLES = ("rectanglelabels", "rectangle")
_WITHOUT_CLASS = "shapes without a class"
# Entries of JSON-MIN beside the columns of the task.
_NOTES_OF_MIN = (
    "id",
    "annotator",
    "annotation_id",
    "created_at",
    "updated_at",
    "lead_time",
)
_SEVERAL = (
    "images with several annotations: {}; the one that is marked as ground truth counts, else the "
    "one that was changed last"
)


def parse(task: object) -> Iterator[AnnotatedImage]:
    """Yields one image. ValueError: the entry is not a task of Label Studio."""
    entry = object_of(task, "a task")
    data = entry.get("data")
    if not isinstance(data, Mapping):
        yield _parse_min(entry)
        return
    image = AnnotatedImage("")
    try:
        _set_paths(image, _image_in(data))
        annotation = _choose_annotation(image, entry)
        if annotation is None:
            image.is_annotated = False
        else:
            _add_results(image, list_of(annotation.get("result"), "result"))
    except ValueError as problem:
        image.reject(f"task {entry.get('id')}: {problem}")
    yield image


def _parse_min(entry: Mapping[str, Any]) -> AnnotatedImage:
    """A task of JSON-MIN, whose shapes are lists under the names of their controls."""
    image = AnnotatedImage("")
    columns = {
        name: value for name, value in entry.items() if name not in _NOTES_OF_MIN
    }
    try:
        written_image = _image_in(columns)
        _set_paths(image, written_image)
        for name, value in columns.items():
            if isinstance(value, list):
                for index, shape in enumerate(value):
                    _add_value(image, f"{name} {index}", object_of(shape, "a shape"))
            elif isinstance(value, Mapping) and "choices" in value:
                image.tags += map(class_name, list_of(value["choices"], "choices"))
            elif value != written_image and value not in (None, ""):
                image.unpacked.add(name)
    except ValueError as problem:
        image.reject(f"task {entry.get('id')}: {problem}")
    return image


def _image_in(data: Mapping[str, Any]) -> str:
    """The value of a task that is the path or URL of its image."""
    image = data.get("image")
    if isinstance(image, str):
        return image
    paths = [
        value
        for value in data.values()
        if isinstance(value, str) and is_picture(_file_path(value))
    ]
    if len(set(paths)) != 1:
        raise ValueError(f"expected one image in its data, got {len(paths)}")
    return paths[0]


def _file_path(written: str) -> str:
    """The path of the file in a path or URL, without the folders of Label Studio's own storage."""
    url = urlsplit(written.replace("\\", "/"))
    path = url.path
    # /data/local-files/?d=photos/a.jpg
    local = parse_qs(url.query).get("d")
    if local:
        path = local[0]
    elif not url.scheme or len(url.scheme) == 1:  # a drive of Windows is no scheme
        path = written.replace("\\", "/").partition("?")[0]
    if "/upload/" in f"/{path}":
        # The folder is the number of the project.
        path = path.rpartition("/")[2]
    return path


def _set_paths(image: AnnotatedImage, written: str) -> None:
    image.path = _file_path(written)
    folder, slash, name = image.path.rpartition("/")
    names = [unquote(name)]
    if _UPLOAD_PREFIX.match(name):
        rest = _UPLOAD_PREFIX.sub("", name, count=1)
        names += [rest, unquote(rest)]
    image.other_paths = tuple(f"{unquote(folder)}{slash}{other}" for other in names)


def _choose_annotation(
    image: AnnotatedImage, task: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """The annotation of a task that counts; None if there is none. Cancelled ones do not count."""
    written = task.get("annotations", task.get("completions"))
    annotations: list[Mapping[str, Any]] = []
    for annotation in list_of(written, "annotations"):
        if not object_of(annotation, "an annotation").get("was_cancelled"):
            annotations.append(annotation)
    if not annotations:
        return None
    if len(annotations) > 1:
        image.remarks[_SEVERAL] += 1
    truths = [
        annotation for annotation in annotations if annotation.get("ground_truth")
    ]
    candidates = truths or annotations
    return max(
        candidates,
        key=lambda annotation: str(
            annotation.get("updated_at") or annotation.get("created_at") or ""
        ),
    )


def _add_results(image: AnnotatedImage, results: Sequence[Any]) -> None:
    """Adds what an annotation says of its image: shapes, and the classes of the whole image."""
    regions: dict[str, dict[str, Any]] = {}
    for index, result in enumerate(results):
        entry = object_of(result, "a result")
        if entry.get("type") == "relation":
            continue
        value = object_of(entry.get("value") or {}, "a value")
        kind = str(entry.get("type"))
        is_region = any(
            name in value for name in ("x", "points", "rle", "imageDataURL")
        )
        if kind == "choices" and not is_region:
            image.tags += map(class_name, list_of(value.get("choices"), "choices"))
            continue
        if not is_region:
            image.unpacked.add(str(entry.get("from_name") or kind))
            continue
        # A region and its labels may be two results of one id. Two results of one kind are two
        # regions, whatever their ids are.
        key = str(entry.get("id") or f"result {index}")
        if key in regions and regions[key].get("type") == kind:
            key = f"{key} {index}"
        region = regions.setdefault(key, {**entry, "value": {}})
        region["value"].update(value)
        # Of the two, the type of the shape counts.
        if kind.startswith(_SHAPES):
            region["type"] = kind
        for name in ("original_width", "original_height", "image_rotation"):
            region.setdefault(name, entry.get(name))
    for name, region in regions.items():
        _add_value(image, name, {**region, **region["value"]})


def _add_value(image: AnnotatedImage, where: str, value: Mapping[str, Any]) -> None:
    """Adds a shape with its sides in percent."""
    labels: list[Any] = []
    kind = str(value.get("type") or "")
    for name, names in value.items():
        if name.endswith("labels") and isinstance(names, list):
            labels += names
            kind = name if name != "labels" else kind
    if value.get("item_index"):
        raise ValueError(f"{where}: expected one image, got several pages (item_index)")
    if kind in _LEFT_OUT:
        image.left_out[_LEFT_OUT[kind]] += 1
        return
    if kind in _BRUSHES or "rle" in value:
        image.left_out["brushes (in Label Studio, export them as COCO or as PNG)"] += 1
        image.unread_outlines = "brushes"
        return
    if value.get("image_rotation"):
        raise ValueError(
            f"{where}: expected an image that is not turned in Label Studio, got image_rotation "
            f"{value['image_rotation']}"
        )
    size = image_size(value.get("original_width"), value.get("original_height"))
    if size is None:
        raise ValueError(f"{where}: expected original_width and original_height")
    image.size = size
    if not labels:
        image.left_out[_WITHOUT_CLASS] += 1
        return
    box = _box_of(image, value, size)
    shape_outline = _outline_of(value, size)
    if kind not in _RECTANGLES:
        image.outlined_count += 1
    attributes = {
        name: value[name] for name in ("choices", "text", "rating") if name in value
    }
    for label in labels:
        image.add(box, label, attributes, shape_outline)
    if len(labels) > 1:
        text = "shapes with several classes: {}; each class has a box"
        image.remarks[text] += 1


def _from_percent(box: Box, size: tuple[int, int]) -> Box:
    """A box in percent of the image's size -> in pixels."""
    left, top, right, bottom = box
    across = size[0] / 100
    down = size[1] / 100
    return (left * across, top * down, right * across, bottom * down)


def _outline_of(value: Mapping[str, Any], size: tuple[int, int]) -> Outline:
    """What a shape covers, in pixels. A rectangle is filled."""
    across = size[0] / 100
    down = size[1] / 100
    if "points" in value:
        points = [
            (number(point[0]) * across, number(point[1]) * down)
            for point in list_of(value["points"], "points")
        ]
        return outline.polygon(points)
    degrees = number(value.get("rotation") or 0)
    corner = (number(value.get("x")) * across, number(value.get("y")) * down)
    if "radiusX" in value:
        radii = (number(value["radiusX"]) * across, number(value["radiusY"]) * down)
        return outline.ellipse(corner, radii, degrees)
    sides = [value.get(name) for name in ("x", "y", "width", "height")]
    box = _from_percent(box_of_size(sides), size)
    # Label Studio turns a box around its left upper corner.
    return outline.rectangle(box, degrees, corner)


def _box_of(
    image: AnnotatedImage, value: Mapping[str, Any], size: tuple[int, int]
) -> Box:
    if "points" in value:
        image.around["polygons"] += 1
        points = list_of(value["points"], "points")
        return _from_percent(box_around(points), size)
    degrees = number(value.get("rotation") or 0)
    if "radiusX" in value:
        image.around["ellipses"] += 1
        across = size[0] / 100
        down = size[1] / 100
        x = number(value.get("x")) * across
        y = number(value.get("y")) * down
        radius_x = number(value["radiusX"]) * across
        radius_y = number(value["radiusY"]) * down
        return box_around_ellipse((x, y), (radius_x, radius_y), degrees)
    box = box_of_size([value.get(name) for name in ("x", "y", "width", "height")])
    box = _from_percent(box, size)
    if not degrees:
        return box
    image.around["rotated boxes"] += 1
    # Label Studio turns a box around its left upper corner.
    return box_around_rotated(box, degrees, box[:2])
