"""A dataset that was packed in place of another -> an assumption if classes have other numbers now."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastpipe.dataset.format.description import parse_info
from fastpipe.dataset.format.folder import Place
from fastpipe.dataset.format.layout import DATASET_FILE
from fastpipe.errors import DatasetError, first_names
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.listing import Assumption

# If fewer of the classes stay, the dataset is about something else.
_MIN_COMMON_SHARE = 0.5
_MAX_NAMES = 5
_MAX_LIST = 20


def read_replaced_classes(destination: Place, options: PackOptions) -> list[str]:
    """The classes of the dataset that a pack replaces, if its user leaves their order to the pack."""
    if not options.overwrite or options.source.classes is not None:
        return []
    # The files behind a URL are not read for this.
    if not isinstance(destination, Path):
        return []
    # A folder that is new or damaged has no classes to keep.
    with contextlib.suppress(DatasetError, OSError, KeyError, TypeError):
        file = destination / DATASET_FILE
        return list(parse_info(file.read_bytes(), file)["classes"])
    return []


def assume_other_numbers_than_before(
    replaced: Sequence[str], info: dict[str, Any]
) -> list[Assumption]:
    """Says which classes have another number than in the dataset that was replaced.

    Args:
        replaced: the classes of that dataset.
        info: the content of dataset.json of the new one.
    """
    number_of_class = {name: number for number, name in enumerate(info["classes"])}
    num_common = 0
    moved = []
    for old_number, name in enumerate(replaced):
        # Classes that are called by numbers may be numbers without names.
        if not name or name.isdigit() or name not in number_of_class:
            continue
        num_common += 1
        number = number_of_class[name]
        if number != old_number:
            moved.append(f"{name!r} was {old_number} and is {number}")
    if not moved or num_common < _MIN_COMMON_SHARE * len(replaced):
        return []
    return [
        Assumption(
            "classes: some have other numbers than in the dataset that was replaced: "
            f"{first_names(moved, _MAX_NAMES)}. For a model of the old numbers, pack again with "
            "--overwrite (overwrite=True) and this option; FILE has a class on each line, the old ones "
            f"first, in their order: {first_names(replaced, _MAX_LIST)}",
            "--classes-from FILE",
        )
    ]
