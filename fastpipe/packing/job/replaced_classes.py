"""A dataset that was packed in place of another -> an assumption if classes have other numbers now."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastpipe.dataset.format.description import parse_info
from fastpipe.dataset.format.folder import Place
from fastpipe.dataset.format.layout import DATASET_FILE
from fastpipe.dataset.renumbered import find_renumbered
from fastpipe.errors import DatasetError, first_names
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.listing import Assumption

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
    moved = list(map(str, find_renumbered(replaced, info["classes"])))
    if not moved:
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
