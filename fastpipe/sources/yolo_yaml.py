"""YOLO's data.yaml -> what it says, and the folders of the splits.

Format: https://docs.ultralytics.com/datasets/detect/
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotation_folders import Beside
from fastpipe.sources.files import Names, SourcePath

YOLO_FOLDERS = ("images", "labels")
YAML_FILES = ("data.yaml", "dataset.yaml", "data.yml")
_SPLIT_KEYS = ("train", "val", "test")


def yaml_folders(root: SourcePath, names: Names) -> list[Beside]:
    """The splits that data.yaml says, where its folders or lists of images are there; none if there is no such file.

    As Ultralytics looks for them: below `path`, or below the folder of the file; "../train/images" also as
    "train/images", for Roboflow writes this.
    """
    file = next((root / name for name in YAML_FILES if name in names.files), None)
    if file is None or not isinstance(file, Path) or not isinstance(root, Path):
        return []
    try:
        said = load_yaml(file)
    except PackError:
        return []  # whoever needs the names of its classes says so
    tops = [root / said["path"], root] if isinstance(said.get("path"), str) else [root]
    found: list[Beside] = []
    for key in _SPLIT_KEYS:
        place = said.get("val", said.get("valid")) if key == "val" else said.get(key)
        if not isinstance(place, str) or not place:
            continue
        places = (
            Path(os.path.normpath(top / each))
            for top in tops
            for each in (place, place.removeprefix("../"))
        )
        there = next((each for each in places if each.exists()), None)
        if there is None:
            continue
        only = there if there.is_file() else None
        images = there if only is None else root / YOLO_FOLDERS[0]
        if images.is_dir():
            images = images / YOLO_FOLDERS[0] if (images / YOLO_FOLDERS[0]).is_dir() else images
            found.append(Beside("yolo", images, _labels_of(images), key, only))
    if len({(each.images, each.only) for each in found}) == 1:
        return [found[0]._replace(part="")]
    return found


def _labels_of(images: Path) -> Path:
    """The folder of labels: that of the images, with "labels" in place of the last "images" in its path."""
    parts = list(images.parts)
    last = next((at for at in reversed(range(len(parts))) if parts[at] == YOLO_FOLDERS[0]), None)
    if last is None:
        return images
    return Path(*parts[:last], YOLO_FOLDERS[1], *parts[last + 1 :])


def load_yaml(file: Path) -> dict[Any, Any]:
    """What the file says. PackError: it cannot be read, or is no YAML with names of classes."""
    try:
        import yaml
    except ImportError as problem:
        raise PackError(
            f"{readable(str(file))} needs PyYAML ({problem}): pip install pyyaml"
        ) from problem
    try:
        return {**yaml.safe_load(file.read_text("utf-8"))}
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as problem:
        raise PackError(
            f"{readable(str(file))}: expected names of the classes: {problem}"
        ) from problem
