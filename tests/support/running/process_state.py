"""What this process holds: its open files and its threads."""

from __future__ import annotations

import os
import time
from pathlib import Path


def open_files(folder: Path) -> list[str]:
    """The files below a folder that are open here, each as often as it is."""
    found = []
    for entry in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{entry}"))
        except FileNotFoundError:  # closed meanwhile
            continue
    return [file for file in found if file.startswith(f"{folder.resolve()}/")]


def open_shards(folder: Path) -> int:
    return sum("/shard-" in file for file in open_files(folder))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def threads_at_rest() -> int:
    """The system may still be clearing away threads that were joined just before, also by another test."""
    before, now = -1, threads()
    while now != before:
        time.sleep(0.1)
        before, now = now, threads()
    return now
