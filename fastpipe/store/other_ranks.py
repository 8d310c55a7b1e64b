"""A program that a launcher has started on several ranks -> advice for where each of them writes."""

from __future__ import annotations

import re

from fastpipe.dataset.format.folder import Place
from fastpipe.errors import readable
from fastpipe.machine.environment import count_ranks, read_number
from fastpipe.warnings_once import warn_once


def describe_folder_of_each_rank(destination: Place) -> str:
    """How each rank writes samples of its own with a Writer, and how they are read."""
    name = "f" + repr(readable(f"{destination}-{{rank}}"))
    return (
        f"give each rank a folder of its own and the same classes, fastpipe.Writer({name}, "
        "classes=CLASSES), and read them as one dataset: "
        f"fastpipe.concat(*[{name} for rank in range({count_ranks()})])"
    )


def warn_of_replacing_ranks(destination: Place) -> None:
    """Logs that a Writer with overwrite=True may replace what another rank has written.

    A Writer of rank 0 may be the only one, and a folder with the number of the rank is its own.
    """
    rank = read_number("RANK") or 0
    # A number further up in the path, as of /mnt/disk1, is that of something else.
    names = str(destination).rstrip("/").split("/")[-2:]
    numbers = map(int, re.findall(r"[0-9]+", "/".join(names)))
    if count_ranks() == 1 or rank < 1 or rank in numbers:
        return
    warn_once(
        "writer replaces other ranks",
        f"{destination}: rank {rank} of {count_ranks()} writes here with overwrite=True. If other ranks "
        "write to the same place, each replaces the samples of the one before: "
        f"{describe_folder_of_each_rank(destination)}",
    )
