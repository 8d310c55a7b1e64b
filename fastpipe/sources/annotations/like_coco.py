"""JSON files that look like COCO's and are not: the tool that writes them, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

_JSONL = (
    'make a .jsonl file with a line for each image: {"path": "a.jpg", "label": "cat"}'
)


def describe_image_entry(entry: Mapping[str, Any]) -> str:
    """What is wrong with an entry of "images" that has no id; "" if no tool is known by it.

    MegaDetector's batch output has the path as "file" and the boxes as "detections".
    """
    if "file" in entry and ("detections" in entry or "failure" in entry):
        return (
            "these are MegaDetector's detections, which pack does not read. Write them as COCO's "
            "JSON, with an id for each image; or " + _JSONL
        )
    return ""


def describe_category_entry(entry: Mapping[str, Any]) -> str:
    """What is wrong with an entry of "categories"; "" if no tool is known by it.

    Datumaro's format has an object of kinds of categories, and of them "label" has the classes.
    """
    kinds = entry.get("label")
    if isinstance(kinds, dict) and "labels" in kinds:
        return (
            "these are Datumaro's annotations, which pack does not read. Export them as COCO or as "
            "CVAT, or convert them: datum convert -if datumaro -i FOLDER -f coco -- --save-media"
        )
    return ""


def describe_lists(names: Collection[str]) -> str:
    """What a file without images is, by the names in its JSON object.

    FiftyOne's FiftyOneImageClassificationDataset has "classes" and "labels".
    """
    if {"classes", "labels"} <= set(names):
        return (
            "it looks like FiftyOne's labels of images, which pack does not read. Export the "
            "dataset as ImageClassificationDirectoryTree, a folder for each class, or "
            + _JSONL
        )
    return (
        'expected COCO\'s "images" and "annotations". To pack another JSON file, '
        + _JSONL
    )
