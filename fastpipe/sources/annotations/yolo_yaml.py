"""YOLO's data.yaml -> names of the classes, form of the keypoints, and folders of the splits.

Formats: https://docs.ultralytics.com/datasets/detect/ and .../pose/
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_folders import FolderPair
from fastpipe.sources.annotations.darknet import find_by_end
from fastpipe.sources.annotations.numbered_names import list_numbered_names
from fastpipe.sources.files import Names, SourcePath, names_in
from fastpipe.sources.folders.splits import FEW, split_of_name
from fastpipe.sources.listing import Assumption

YOLO_FOLDERS = ("images", "labels")
YAML_FILES = ("data.yaml", "dataset.yaml", "data.yml")
# YAML of another name describes the folder if it has the names of classes.
_CLASS_NAMES = re.compile(r"^names[ \t]*:", re.MULTILINE)
_SPLITS = ("train", "val", "test")
_MAX_CLASSES = 100_000
_ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]")


class PointShape(NamedTuple):
    """kpt_shape of Ultralytics' pose format."""

    num_points: int  # of an object
    num_dims: int  # of a point: x and y, or also its visibility


class DataYaml(NamedTuple):
    names: tuple[str, ...] = ()  # of the classes, by number; "" where one is missing
    points: PointShape | None = None  # None: objects have no keypoints
    # The point that takes the place of each in a mirrored image.
    flip_index: tuple[int, ...] = ()

    @property
    def flip_pairs(self) -> tuple[tuple[int, int], ...]:
        pairs: list[tuple[int, int]] = []
        for point, mirrored in enumerate(self.flip_index):
            # The pair comes a second time, in the other order, at its other point.
            if point < mirrored:
                pairs.append((point, mirrored))
        return tuple(pairs)


def read_data_yaml(folders: Sequence[Path]) -> DataYaml:
    """The data.yaml of the first folder that has one; without such a file, empty values.

    PackError: the file has no valid names.
    """
    for folder in folders:
        file = find_yaml(folder, names_in(folder).files)
        if file is not None:
            return _read_file(file)
    return DataYaml()


def find_yaml(folder: Path, file_names: Collection[str]) -> Path | None:
    """The file that describes a folder: data.yaml, or the only YAML file with names of classes.

    Ultralytics takes the path of the file, so people call it after the dataset, as coco128.yaml.
    """
    for name in YAML_FILES:
        if name in file_names:
            return folder / name
    with_classes = []
    for name in file_names:
        if name.lower().endswith((".yaml", ".yml")):
            try:
                text = (folder / name).read_text("utf-8")
            except (OSError, ValueError):
                continue
            if _CLASS_NAMES.search(text):
                with_classes.append(folder / name)
    return with_classes[0] if len(with_classes) == 1 else None


def _read_file(file: Path) -> DataYaml:
    content = _load_yaml(file)
    try:
        points = _parse_points(content.get("kpt_shape"))
        written_names = content["names"]
        names = _parse_names(written_names)
        if "nc" in content and content["nc"] not in (len(names), len(written_names)):
            raise ValueError(
                f"nc is {content['nc']!r:.20}, and there are {len(written_names)} names"
            )
        return DataYaml(
            names, points, _parse_flip_index(content.get("flip_idx"), points)
        )
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise PackError(
            f"{readable(str(file))}: expected names of the classes: {problem}"
        ) from problem


def _parse_names(value: Any) -> tuple[str, ...]:
    """Names in a list, or in a mapping by number."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    names: dict[int, str] = {}
    for number, name in value.items():
        text = name
        if type(name) is int:
            # YAML reads a class that is called 7 as a number.
            text = str(name)
        if not isinstance(text, str) or int(number) > _MAX_CLASSES:
            raise ValueError(
                f"got numbers over {_MAX_CLASSES:,}, or names that are no texts"
            )
        names[int(number)] = text
    return list_numbered_names(names)


def _parse_points(value: Any) -> PointShape | None:
    if value is None:
        return None
    # [17, 3] means 17 points with x, y and visibility.
    num_points, num_dims = map(int, value)
    if num_points < 1 or num_dims not in (2, 3):
        raise ValueError(
            "kpt_shape: expected the number of points, and 2 or 3 numbers a point; got "
            f"{value!r:.60}"
        )
    return PointShape(num_points, num_dims)


def _parse_flip_index(value: Any, points: PointShape | None) -> tuple[int, ...]:
    if not value or points is None:
        return ()
    if sorted(value) != list(range(points.num_points)):
        raise ValueError(
            f"flip_idx: expected the numbers 0 to {points.num_points - 1} in another order, got "
            f"{value!r:.60}"
        )
    return tuple(value)


def find_yaml_folders(root: SourcePath, names: Names) -> list[FolderPair]:
    """The splits in data.yaml whose folders or lists of images exist; none without such a file.

    Paths are as for Ultralytics: below `path`, or below the folder of the file. "../train/images"
    is also looked for as "train/images", because Roboflow writes this.
    """
    if not isinstance(root, Path):
        return []
    file = find_yaml(root, names.files)
    if file is None:
        return []
    try:
        content = _load_yaml(file)
    except PackError:
        return []  # it is raised again where the names of the classes are read

    tops = _list_tops(root, content)
    splits: list[FolderPair] = []
    for split in _SPLITS:
        key = _key_of_split(split, content)
        places = _split_places(file, tops, key, content.get(key))
        if len(places) == 1 and places[0].is_file():
            # A list of images, which lie in images/.
            images = root / YOLO_FOLDERS[0]
            if images.is_dir():
                images = _inner_images(images)
                labels = _label_folder(images)
                splits.append(FolderPair("yolo", images, labels, split, places[0]))
        elif len(places) == 1:
            images = _inner_images(places[0])
            splits.append(FolderPair("yolo", images, _label_folder(images), split))
        elif places:
            splits.append(_split_of_folders(file, split, places))

    # Some tools write one folder for all splits, which is no split then. A file that has one split
    # alone, or of which the others do not exist, says which one it is.
    contents = {(split.images, split.image_list, split.folders) for split in splits}
    if len(contents) == 1 and len(splits) > 1:
        return [splits[0]._replace(split="")]
    return splits


def find_misnamed_splits(root: Path, names: Names) -> list[Assumption]:
    """Says which splits of data.yaml do not exist, while folders of their names do."""
    file = find_yaml(root, names.files)
    # Where no split of the file exists, the folders themselves are the splits.
    if file is None or not find_yaml_folders(root, names):
        return []
    content = _load_yaml(file)
    assumed: list[Assumption] = []
    for split in _SPLITS:
        key = _key_of_split(split, content)
        written = content.get(key)
        is_missing = isinstance(written, str) and not _split_places(
            file, _list_tops(root, content), key, written
        )
        folder = _find_split_folder(root, split) if is_missing else None
        if folder is not None:
            text = (
                f"{file.name}: {key}: {readable(str(written))} does not exist, and "
                f"{readable(str(folder))} does, which is not read. If it is this split, write its "
                "path into the file"
            )
            assumed.append(Assumption(text))
    return assumed


def _find_split_folder(root: Path, split: str) -> Path | None:
    """The folder that is called after a split, in a folder of YOLO or in its folder of images."""
    for around in (root, root / YOLO_FOLDERS[0]):
        if not around.is_dir():
            continue
        for name in names_in(around, FEW).folders:
            if split_of_name(name) == split:
                return around / name
    return None


def _list_tops(root: Path, content: Mapping[Any, Any]) -> list[Path]:
    """The folders that the paths in data.yaml may be relative to."""
    if isinstance(content.get("path"), str):
        return [root / content["path"], root]
    return [root]


def _key_of_split(split: str, content: Mapping[Any, Any]) -> str:
    """The name of a split in data.yaml."""
    if split == "val" and "val" not in content:
        return "valid"  # the name in some exports
    return split


def _split_places(
    file: Path, tops: Sequence[Path], key: str, value: object
) -> list[Path]:
    """The folders or lists of images of a split; none where they do not exist.

    Raises:
        PackError: an entry is not a path, or only some exist. Else images would be lost unseen.
    """
    if not isinstance(value, (str, list)) or not value:
        return []
    written_paths = [value]
    if isinstance(value, list):
        written_paths = value
    places: list[Path] = []
    missing: list[str] = []
    for written_path in written_paths:
        if not isinstance(written_path, str) or not written_path:
            raise PackError(
                f"{readable(str(file))}: {key}: expected the paths of folders, got "
                f"{written_path!r:.60}"
            )
        path = _existing_path(tops, written_path)
        if path is None:
            missing.append(written_path)
        elif path not in places:
            places.append(path)
    if places and missing:
        raise PackError(
            f"{readable(str(file))}: {key}: {readable(missing[0])} does not exist, and "
            f"{readable(str(places[0]))} does. Put it there, or remove it from the file"
        )
    return places


def _split_of_folders(file: Path, split: str, folders: Sequence[Path]) -> FolderPair:
    """A split of several folders. PackError: one of them is a list of images."""
    for folder in folders:
        if not folder.is_dir():
            raise PackError(
                f"{readable(str(file))}: {split}: expected several folders or one list of images; "
                f"{readable(str(folder))} is a file beside others. Join the lists to one"
            )
    pairs: list[tuple[Path, Path]] = []
    for folder in folders:
        images = _inner_images(folder)
        pairs.append((images, _label_folder(images)))
    around_images = Path(os.path.commonpath([images for images, _ in pairs]))
    around_labels = Path(os.path.commonpath([labels for _, labels in pairs]))
    return FolderPair("yolo", around_images, around_labels, split, folders=tuple(pairs))


def _existing_path(tops: Sequence[Path], written_path: str) -> Path | None:
    for top in tops:
        # Roboflow writes "../train/images" for a folder beside the file.
        for relative_path in (written_path, written_path.removeprefix("../")):
            path = Path(os.path.normpath(top / relative_path))
            if path.exists():
                return path
    # An absolute path may be of another machine. It is found by its end.
    if _ABSOLUTE.match(written_path):
        return find_by_end(tops, written_path)
    return None


def _inner_images(folder: Path) -> Path:
    """The folder images in a folder, or else the folder itself.

    Some tools name the folder of the split, which holds images/ and labels/.
    """
    inner = folder / YOLO_FOLDERS[0]
    if inner.is_dir():
        return inner
    return folder


def _label_folder(images: Path) -> Path:
    """The folder of images with "labels" in place of the last "images" in its path."""
    parts = list(images.parts)
    for index in reversed(range(len(parts))):
        if parts[index] == YOLO_FOLDERS[0]:
            parts[index] = YOLO_FOLDERS[1]
            break
        if parts[index] == YOLO_FOLDERS[0].capitalize():
            parts[index] = YOLO_FOLDERS[1].capitalize()
            break
    return Path(*parts)


def _load_yaml(file: Path) -> dict[Any, Any]:
    """PackError: it cannot be read, or is not a mapping in YAML."""
    try:
        import yaml
    except ImportError as problem:
        raise PackError(
            f"{readable(str(file))} needs PyYAML ({problem}): pip install pyyaml"
        ) from problem
    try:
        content = yaml.safe_load(file.read_text("utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"got {content!r:.60}")
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as problem:
        raise PackError(
            f"{readable(str(file))}: expected names of the classes: {problem}"
        ) from problem
    return content
