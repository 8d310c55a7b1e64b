"""The folder of a dataset -> the datasets beside it that a model may have been trained on.

The training set: data/train beside data/val. Earlier versions: data/train beside data/train_v2, and
data/train beside data_v2/train.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fastpipe.dataset.format.layout import DATASET_FILE
from fastpipe.errors import PackError
from fastpipe.sources.files import names_in, shared_folders
from fastpipe.sources.folders.splits import (
    FEW,
    is_for_evaluation,
    meaning_of_split,
    split_of_name,
)

# The description of more shards than this takes long to read.
_MAX_BYTES = 8 << 20
# A number at the end of a name: _v2, -3, 2024
_VERSION = re.compile(r"[-_. ]?v?\d+$", re.IGNORECASE)
# A name of numbers alone: v2, 2024
_IS_VERSION = re.compile(r"v\d|\d{4}", re.IGNORECASE)


def find_training_set(destination: Path) -> Path | None:
    """The only dataset beside another one that is called like a training set.

    Of data/train and data/coco-train it is the first one.
    """
    if meaning_of_split(destination.name) == "train":
        return None
    training_sets = []
    for folder in _folders_beside(destination):
        if meaning_of_split(folder.name) == "train" and _is_dataset(folder):
            training_sets.append(folder)
    if len(training_sets) > 1:
        training_sets = [
            folder for folder in training_sets if split_of_name(folder.name) == "train"
        ]
    return training_sets[0] if len(training_sets) == 1 else None


def find_other_version(destination: Path) -> Path | None:
    """The dataset whose name, or whose folder's name, differs from another one's by a number alone.

    Of several it is the one that was packed last.
    """
    if is_for_evaluation(destination.name):
        return None
    versions = []
    for folder in _folders_beside(destination):
        if _are_versions(folder.name, destination.name) and _is_dataset(folder):
            versions.append(folder)
    for parent in _folders_beside(destination.parent):
        folder = parent / destination.name
        if _are_versions(parent.name, destination.parent.name) and _is_dataset(folder):
            versions.append(folder)
    return max(versions, key=_packing_time, default=None)


def _are_versions(name: str, other_name: str) -> bool:
    """Whether two names differ in a number at their end: train and train_v2, 2024-05 and 2025-01."""
    if is_for_evaluation(name) or _stem(name) != _stem(other_name):
        return False
    # Folders 0, 1 and 2 are parts or folds.
    return _stem(name) != "" or bool(_IS_VERSION.match(name))


def _stem(name: str) -> str:
    """A name without the numbers at its end."""
    while number := _VERSION.search(name):
        name = name[: number.start()]
    return name.lower()


def _folders_beside(folder: Path) -> Iterator[Path]:
    """The other folders of the folder that one lies in; none of the top of a disk or a home."""
    folder = Path(os.path.abspath(folder))
    if folder.parent in shared_folders(folder):
        return
    try:
        names = names_in(folder.parent, FEW).folders
    except (PackError, OSError):
        return  # a folder may be closed to the user
    for name in names:
        if name != folder.name:
            yield folder.parent / name


def _is_dataset(folder: Path) -> bool:
    """Whether a folder has a packed dataset whose description is soon read."""
    try:
        return (folder / DATASET_FILE).stat().st_size <= _MAX_BYTES
    except OSError:
        return False


def _packing_time(folder: Path) -> int:
    try:
        return (folder / DATASET_FILE).stat().st_mtime_ns
    except OSError:  # removed meanwhile
        return 0
