"""A packed dataset -> an assumption if the training set beside it numbers the same classes otherwise.

The sources may lie in folders that have nothing to do with each other. So this looks at the
datasets: data/val beside data/train, and data/train_v2 beside data/train.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastpipe.dataset.format.description import read_info
from fastpipe.dataset.renumbered import Renumbered, find_renumbered
from fastpipe.errors import DatasetError, first_names, format_count, readable
from fastpipe.packing.job.datasets_beside import find_other_version, find_training_set
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import quote_for_shell

_CLASSES_FROM = "--classes-from"
_MAX_NAMES = 5
_MAX_LIST = 20
# Two datasets may have a class in common though they are about different things.
_MIN_COMMON_OF_VERSIONS = 2


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
    folder = Path(os.path.abspath(destination))
    classes: list[str] = info["classes"]
    training = find_training_set(folder)
    if training is not None:
        known = _read_classes(training)
        renumbered = find_renumbered(classes, known)
        if renumbered:
            return [_describe(destination, training, known, classes, renumbered)]
    version = find_other_version(folder)
    if version is not None:
        known = _read_classes(version)
        renumbered = _find_renumbered_of_versions(classes, known)
        if renumbered:
            return [_describe(destination, version, known, classes, renumbered)]
    return []


def _read_classes(folder: Path) -> list[str]:
    # A damaged dataset says nothing of another one.
    with contextlib.suppress(DatasetError, OSError):
        return list(read_info(folder)["classes"])
    return []


def _find_renumbered_of_versions(
    classes: Sequence[str], known: Sequence[str]
) -> list[Renumbered]:
    """As find_renumbered, if one of the two lists may have grown out of the other one."""
    num_common = len({*classes} & {*known})
    if num_common < _MIN_COMMON_OF_VERSIONS:
        return []
    if len(classes) <= len(known):
        return find_renumbered(classes, known)
    # A version may have many new classes, so it counts which of the old ones are still there.
    renumbered = []
    for name, old_number, number in find_renumbered(known, classes):
        renumbered.append(Renumbered(name, number, old_number))
    return renumbered


def _describe(
    destination: Path,
    beside: Path,
    known: Sequence[str],
    classes: Sequence[str],
    renumbered: Sequence[Renumbered],
) -> Assumption:
    """Says which numbers differ, and how to pack the dataset with those of the one beside it.

    Args:
        destination: the folder of the dataset, as the user has written it.
        beside: the folder of the other dataset.
        known: the classes of the other dataset.
        classes: those of this one.
        renumbered: the classes of both that have different numbers.
    """
    shown_path = _as_written(beside, destination)
    shown = readable(str(shown_path))
    name, number, known_number = renumbered[0]
    difference = f"classes: {shown}, beside this dataset, numbers {name!r} {known_number}; here it is {number}"
    if len(renumbered) > 1:
        difference += f" ({format_count(len(renumbered), 'class')} have other numbers)"
    again = f"For a model of {shown}, pack again with --overwrite (overwrite=True) and this option"
    if {*classes} <= {*known}:
        option = f"{_CLASSES_FROM} {quote_for_shell(str(shown_path))}"
        return Assumption(f"{difference}. {again}", option)
    new_classes = [name for name in classes if name not in {*known}]
    return Assumption(
        f"{difference}. To keep the numbers, let {shown} grow: fastpipe add SRC "
        f"{quote_for_shell(str(shown_path))}. {again}; FILE has a class on each line, those of "
        f"{shown} first, in their order ({first_names(known, _MAX_LIST)}), then the new ones "
        f"({first_names(new_classes, _MAX_NAMES)})",
        f"{_CLASSES_FROM} FILE",
    )


def _as_written(beside: Path, destination: Path) -> Path:
    """The path of the folder beside another one, relative if the other one's is."""
    if destination.is_absolute():
        return beside
    return Path(os.path.relpath(beside))
