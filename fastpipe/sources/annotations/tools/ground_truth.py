"""A line of an augmented manifest of SageMaker Ground Truth -> the image with its labels.

Format: https://docs.aws.amazon.com/sagemaker/latest/dg/sms-data-output.html. A line has "source-ref",
and for each labeling job an attribute with labels, and "ATTRIBUTE-metadata". Rekognition Custom Labels
and Lookout for Vision have such manifests, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    box_of_sides,
    class_name,
    image_size,
    list_of,
    object_of,
)

_SOURCE = "source-ref"
_METADATA = "-metadata"
_REFERENCE = "-ref"
_BOXES = "object-detection"
_CLASS = "image-classification"
# The kind of values that no labeling job has written.
_NO_JOB = "without metadata"
_CLASSES = "image-classification-multilabel"
_UNREAD = (
    "labels of the type {kind}, which fastpipe does not read. Write a CSV or JSONL file with a row "
    "for each image, such as path,mask (--field mask=mask:mask), or pass samples to fastpipe.Writer"
)
_SEVERAL_JOBS = (
    "images with boxes of several labeling jobs: {{}}; the boxes of {name} are packed, the newest "
    "or last ones"
)


class _Labels(NamedTuple):
    """The labels that one labeling job has given to an image.

    Attributes:
        name: of the attribute.
        kind: the type of the job, such as object-detection.
        value: the labels, as the job writes them.
        metadata: what the job writes about them.
    """

    name: str
    kind: str
    value: Any
    metadata: Mapping[str, Any]


def parse(line: object) -> Iterator[AnnotatedImage]:
    """Yields one image. ValueError: the entry is not a line of Ground Truth, or of another task."""
    entry = object_of(line, "a line")
    path = str(entry.get(_SOURCE) or "")
    image = AnnotatedImage(path.rpartition("://")[2], is_annotated=False)
    if not image.path:
        image.reject(f"expected the path of an image as {_SOURCE}, got none")
    boxes: list[_Labels] = []
    has_failed_job = False
    for labels in _labels_in(entry):
        if _has_failed(labels):
            has_failed_job = True
            continue
        if labels.kind == _BOXES:
            boxes.append(labels)
            continue
        if labels.kind in (_CLASS, _CLASSES):
            _add_classes(image, labels)
        else:
            image.unpacked.add(f"{labels.name} ({labels.kind})")
            continue
        image.is_annotated = True
    if boxes:
        image.is_annotated = True
        # An adjustment job writes its boxes beside those that it adjusts, and behind them. max takes
        # the first of those with equal dates.
        newest = max(reversed(boxes), key=_creation_date)
        if len(boxes) > 1:
            image.remarks[_SEVERAL_JOBS.format(name=newest.name)] += 1
        _add_boxes(image, newest)
    if image.unpacked and not image.is_annotated and not has_failed_job:
        raise ValueError(_UNREAD.format(kind=", ".join(sorted(image.unpacked))))
    yield image


def _labels_in(entry: Mapping[str, Any]) -> Iterator[_Labels]:
    """The labels in a line, and its other values."""
    for name, value in entry.items():
        if name == _SOURCE or name.endswith(_METADATA):
            continue
        if name + _METADATA not in entry:
            # Ground Truth copies all values of the manifest that a job gets.
            yield _Labels(name, _NO_JOB, value, {})
            continue
        metadata = object_of(entry[name + _METADATA], name + _METADATA)
        kind = str(metadata.get("type") or "").rpartition("/")[2]
        yield _Labels(name, kind or _kind_of(name, value), value, metadata)


def _has_failed(labels: _Labels) -> bool:
    """Whether the job has not labelled this image."""
    return "failure-reason" in labels.metadata


def _creation_date(labels: _Labels) -> str:
    """When a job has written labels, as a text that sorts by time; "" if it does not say so."""
    return str(labels.metadata.get("creation-date") or "")


def _kind_of(name: str, value: object) -> str:
    """The type of labels, where the metadata do not say it."""
    if isinstance(value, Mapping) and "annotations" in value:
        return _BOXES
    if name.endswith(_REFERENCE):
        return "semantic-segmentation"
    return _CLASSES if isinstance(value, list) else _CLASS


def _add_classes(image: AnnotatedImage, labels: _Labels) -> None:
    """Adds the class, or the classes, of the whole image."""
    try:
        if labels.kind == _CLASS:
            names = [class_name(labels.metadata.get("class-name"))]
        else:
            numbers = list_of(labels.value, labels.name)
            names = [_class_of(image, labels, number) for number in numbers]
    except ValueError as problem:
        image.reject(f"{labels.name}: {problem}")
        return
    number = labels.value
    if labels.kind == _CLASS and isinstance(number, int):
        image.class_numbers[names[0]] = number
    for name in names:
        if name not in image.tags:
            image.tags.append(name)


def _class_of(image: AnnotatedImage, labels: _Labels, number: object) -> str:
    """The name of the class of a number. ValueError: the metadata do not have it.

    The image notes the number.
    """
    class_map = object_of(labels.metadata.get("class-map"), "class-map")
    name = class_map.get(str(number))
    if name is None:
        known = ", ".join(class_map)
        raise ValueError(
            f"expected a class of class-map ({known:.60}), got {number!r:.60}"
        )
    if str(number).isdigit():
        image.class_numbers[class_name(name)] = int(str(number))
    return class_name(name)


def _add_boxes(image: AnnotatedImage, labels: _Labels) -> None:
    try:
        value = object_of(labels.value, labels.name)
        boxes = list_of(value.get("annotations"), "annotations")
        sizes = list_of(value.get("image_size"), "image_size")
        confidences = list_of(labels.metadata.get("objects"), "objects")
        if sizes:
            size = object_of(sizes[0], "image_size")
            image.size = image_size(size.get("width"), size.get("height"))
    except ValueError as problem:
        image.reject(f"{labels.name}: {problem}")
        return
    for index, annotation in enumerate(boxes):
        attributes: Mapping[str, Any] = {}
        if len(confidences) == len(boxes) and isinstance(confidences[index], Mapping):
            attributes = confidences[index]
        try:
            item = object_of(annotation, "an annotation")
            box = box_of_sides(item)
            name = _class_of(image, labels, item.get("class_id"))
        except ValueError as problem:
            image.reject_object(f"{labels.name}, object {index}: {problem}")
            continue
        image.add(box, name, attributes)
