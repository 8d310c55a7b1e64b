"""A packed dataset -> an assumption if the training set beside it numbers the same classes otherwise.

The sources may lie in folders that have nothing to do with each other. So this looks at the
datasets: data/val beside data/train.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastpipe.dataset.format.description import read_info
from fastpipe.dataset.format.layout import DATASET_FILE
from fastpipe.errors import DatasetError, PackError, first_names, readable
from fastpipe.packing.job.renumbered import find_renumbered
from fastpipe.sources.files import names_in, shared_folders
from fastpipe.sources.folders.splits import FEW, meaning_of_split
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import quote_for_shell

_CLASSES_FROM = "--classes-from"
# The description of more shards than this takes long to read.
_MAX_BYTES = 8 << 20
_MAX_NAMES = 5


def assume_other_numbers_beside(
    destination: Path, info: dict[str, Any], assumed: Sequence[Assumption]
) -> list[Assumption]:
    """Says that the training set beside a dataset has other numbers for the same classes.

    Args:
        destination: the folder of the dataset, whose user has not said which classes there are.
        info: the content of its dataset.json.
        assumed: what the user is told already.
    """
    # The source lies beside the source of the training set, and the same was found there.
    if any(_CLASSES_FROM in str(assumption) for assumption in assumed):
        return []
    training_info = None
    name = _name_of_training_set(destination)
    if name is not None:
        # A damaged dataset says nothing of this one.
        with contextlib.suppress(DatasetError, OSError):
            training_info = read_info(destination.parent / name)
    if name is None or training_info is None:
        return []
    classes: list[str] = info["classes"]
    known: list[str] = training_info["classes"]
    other = [renumbered.name for renumbered in find_renumbered(classes, known)]
    if not other:
        return []
    training = destination.parent / name
    shown = readable(str(training))
    verb = "has" if len(other) == 1 else "have"
    number = "another number" if len(other) == 1 else "other numbers"
    return [
        Assumption(
            f"classes: {shown}, beside this dataset, has the classes {first_names(known, _MAX_NAMES)}; "
            f"here {first_names(other, _MAX_NAMES)} {verb} {number}. If a model of {shown} is "
            "evaluated on this dataset, pack it again with this option, and --overwrite "
            "(overwrite=True)",
            f"{_CLASSES_FROM} {quote_for_shell(str(training))}",
        )
    ]


def _name_of_training_set(destination: Path) -> str | None:
    """The name of the only folder beside a dataset that is called like a training set."""
    folder = Path(os.path.abspath(destination))
    if meaning_of_split(folder.name) == "train":
        return None
    if folder.parent in shared_folders(folder):
        return None
    names = []
    try:
        for name in names_in(folder.parent, FEW).folders:
            file = folder.parent / name / DATASET_FILE
            if meaning_of_split(name) != "train" or not file.is_file():
                continue
            if file.stat().st_size <= _MAX_BYTES:
                names.append(name)
    except (PackError, OSError):
        return None  # a folder may be closed to the user
    return names[0] if len(names) == 1 else None
