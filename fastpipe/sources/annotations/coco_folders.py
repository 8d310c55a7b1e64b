"""A folder -> its files of COCO, by the split that they are about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fastpipe.sources.files import Names, SourcePath, names_in, open_binary

# COCO has a file of each of these for a split.
_TASKS = ("instances", "person_keypoints", "captions")
# The start of a file of COCO: an object whose first entry is one of COCO's lists, or "info".
_COCO_START = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"'
    rb'(?:info"\s*:\s*\{|(?:images|annotations|categories|licenses)"\s*:\s*\[)'
)
# The questions and answers of VQA begin as COCO's files do, and have no boxes or captions.
_QUESTION = re.compile(rb'"question_id"\s*:')
_IMAGES = re.compile(rb'"(?:images|annotations)"\s*:')
_START_BYTES = 1 << 16
# In a folder with more JSON files than this, each file belongs to one image, as many tools write
# them.
_MAX_JSON_FILES = 16
_FOLDER = "annotations"  # in which COCO has its files
# Label Studio's exports for YOLO have both of these files. notes.json begins as COCO's files do,
# but has no annotations.
_NAME_LIST = "classes.txt"
_NOTES = "notes.json"


def group_coco_files(
    folder: SourcePath, names: Sequence[str]
) -> dict[str, list[SourcePath]]:
    """Split -> the files of a folder that COCO calls after it, such as instances_val2017.json.

    The files of a split are in the order of the tasks.
    """
    files: dict[str, list[SourcePath]] = {}
    for task in _TASKS:
        for name in names:
            split = name.removeprefix(f"{task}_").removesuffix(".json")
            if split and name == f"{task}_{split}.json":
                files.setdefault(split, []).append(folder / name)
    return dict(sorted(files.items()))


def find_coco_files(root: SourcePath, names: Names) -> dict[str, list[SourcePath]]:
    """Split -> the files about its images; "" for an only file, whose name may say no split."""
    files = _files_in(root, names.files)
    if not files and _FOLDER in names.folders:
        folder = root / _FOLDER
        files = _files_in(folder, names_in(folder).files)
    return files


def _files_in(folder: SourcePath, names: Sequence[str]) -> dict[str, list[SourcePath]]:
    """Files that COCO has named; else those that begin as its files do.

    Roboflow calls them _annotations.coco.json, for example.
    """
    by_split = group_coco_files(folder, names)
    if by_split:
        return by_split
    candidates = [name for name in names if name.lower().endswith(".json")]
    if _NAME_LIST in names and _NOTES in candidates:
        candidates.remove(_NOTES)
    if len(candidates) > _MAX_JSON_FILES:
        return {}
    exports = [name for name in candidates if begins_like_coco(folder / name)]
    if len(exports) == 1:
        return {"": [folder / exports[0]]}
    return {Path(name).stem: [folder / name] for name in exports}


def begins_like_coco(path: SourcePath) -> bool:
    """Whether a file begins as COCO's do."""
    try:
        with open_binary(path) as file:
            start = file.read(_START_BYTES)
    except OSError:
        return False
    # iMaterialist has the names of its classes alone in label_descriptions.json.
    if len(start) < _START_BYTES and _IMAGES.search(start) is None:
        return False
    return _COCO_START.match(start) is not None and _QUESTION.search(start) is None
