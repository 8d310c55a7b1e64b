"""The datasets of two ranks that share an epoch, but not its data -> words for an error."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from fastpipe.dataset.dataset import Dataset

_COPY = (
    "all ranks have to read the same files: a rank may have an older or unfinished copy"
)


class RankDataset(NamedTuple):
    """The dataset of a rank."""

    rank: int
    machine: str  # its host name
    fingerprint: str
    paths: Sequence[str]  # of the stored datasets that it consists of


def paths_of(data: Dataset) -> list[str]:
    return [str(stored.index.path) for stored in data.stored]


def describe_datasets(low: RankDataset, high: RankDataset) -> str:
    """How the datasets of two ranks differ: by their paths, if these are different ones."""
    low_name = " + ".join(low.paths)
    high_name = " + ".join(high.paths)
    if low_name == high_name:
        low_name = low.fingerprint
        high_name = high.fingerprint
    return f"the dataset is {low_name!r} on rank {low.rank} and {high_name!r} on rank {high.rank}"


def advise_on_datasets(low: RankDataset, high: RankDataset, world_size: int) -> str:
    """What to do: if each rank has opened a part of the data, to open all parts on all ranks."""
    if not _are_parts(low, high):
        return _COPY
    parts = f"{low.paths[0]!r}, {high.paths[0]!r}"
    if world_size > 2:
        parts += ", ..."
    return (
        "all ranks have to read the same files, and the loader shares them out itself. To train on all "
        f"parts: fastpipe.concat({parts}) on all ranks"
    )


def _are_parts(low: RankDataset, high: RankDataset) -> bool:
    """Whether each rank has a dataset of its own, and not a copy of one of them."""
    if len(low.paths) != 1 or len(high.paths) != 1:
        return False
    low_path = low.paths[0]
    high_path = high.paths[0]
    if low.machine == high.machine:
        return low_path != high_path
    # A copy on a disk of each machine has the same name.
    return os.path.basename(low_path) != os.path.basename(high_path)
