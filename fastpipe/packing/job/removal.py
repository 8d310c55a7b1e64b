"""Samples of a dataset -> the command that removes them, for messages."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import readable

# A message names the paths of so many samples.
MAX_KEYS = 5
# The files of larger datasets are not looked for, as that takes long.
_MAX_LOOKED_AT = 100_000


def removal_command(index: PackedIndex, rows: Sequence[int]) -> str:
    """The command that removes the samples in these rows of an index, and what is in its file."""
    place = shlex.quote(readable(str(index.path)))
    command = f"fastpipe remove {place} --keys FILE"
    if len(rows) > MAX_KEYS:
        return f"{command}, with the path of each of them on a line of FILE"
    paths = sorted(index.source_path_of(row) for row in rows)
    lines = "this line" if len(paths) == 1 else "these lines"
    return f"{command}, with {lines} in FILE: {', '.join(paths)}"


def removal_of_missing(index: PackedIndex, rows: Sequence[int], root: object) -> str:
    """As `removal_command`, of samples whose files are not in the source any more.

    Args:
        index: of the dataset.
        rows: of the samples.
        root: the folder or URL of the source.
    """
    if len(rows) <= MAX_KEYS or not _are_files_below(index, rows, root):
        return removal_command(index, rows)
    data = repr(str(index.path))
    return (
        f"fastpipe.remove({data}, keys=[key for key in fastpipe.open({data})['key'] if not "
        f"pathlib.Path({str(root)!r}, key).exists()])"
    )


def _are_files_below(index: PackedIndex, rows: Sequence[int], root: object) -> bool:
    """Whether files are missing below the folder `root` for these samples, and for no others."""
    if not isinstance(root, Path) or not root.is_dir() or len(index) > _MAX_LOOKED_AT:
        return False
    missing = set(rows)
    for row in range(len(index)):
        is_there = (root / index.source_path_of(row)).exists()
        if is_there == (row in missing):
            return False
    return True
