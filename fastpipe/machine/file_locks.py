"""/proc/locks -> the process that has locked a file."""

from __future__ import annotations

import os
from pathlib import Path

_LOCKS = Path("/proc/locks")


def holder_of_lock(file: Path) -> int | None:
    """The process that holds a lock of flock on a file; None: none does, or nobody can tell.

    To try the lock would keep out a program that wants it at this moment, so the kernel's list of
    locks is read.
    """
    try:
        state = os.stat(file)
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    device = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}"
    place = f"{device}:{state.st_ino}"
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF. A lock that is waited for has -> in it.
        words = line.split()
        if len(words) < 6 or words[1] != "FLOCK":
            continue
        if words[5] == place and words[4].isdecimal() and int(words[4]) > 0:
            return int(words[4])
    return None
