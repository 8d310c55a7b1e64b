"""The kernel's log, if we may read it -> the last process that the kernel killed because memory was full."""

from __future__ import annotations

import errno
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

LOG = Path("/dev/kmsg")
_LARGEST_RECORD = 8192
# "6,1234,98765432,-;Memory cgroup out of memory: Killed process 4321 (python3) total-vm:...": the third number is
# microseconds since the start. Source: the kernel's documentation of /dev/kmsg (ABI/testing/dev-kmsg).
_KILLED = re.compile(
    rb"^\d+,\d+,(?P<micros>\d+),[^;]*;(?P<group>Memory cgroup o|O)ut of memory: Kill(?:ed)? process "
    rb"(?P<pid>\d+) \((?P<name>[^)\n]*)\)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Killed:
    """A process that is no more.

    Attributes:
        name, pid: as the kernel has them.
        seconds_ago: when.
        at_a_limit: of a container, not of the machine.
    """

    name: str
    pid: int
    seconds_ago: float
    at_a_limit: bool

    def __str__(self) -> str:
        limit = "a container's limit" if self.at_a_limit else "the limit of the machine's memory"
        return f"{self.name} ({self.pid}), {self.seconds_ago / 60:,.0f} minutes ago, at {limit}"


def last_killed() -> Killed | None:
    """None where none was, as far back as the log goes, or where it cannot be read."""
    kills = list(_KILLED.finditer(_log()))
    if not kills:
        return None
    found = kills[-1]
    seconds_ago = max(0.0, time.monotonic() - int(found["micros"]) / 1e6)
    name = found["name"].decode(errors="replace")
    return Killed(name, int(found["pid"]), seconds_ago, found["group"] != b"O")


def _log() -> bytes:
    """All that the log holds. A read gives one record, and fails where there is none left or one has been lost."""
    try:
        handle = os.open(LOG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    records = []
    try:
        while True:
            try:
                record = os.read(handle, _LARGEST_RECORD)
            except OSError as problem:
                if problem.errno == errno.EPIPE:  # the record was overwritten meanwhile; the next one is there
                    continue
                break
            if not record:
                break
            records.append(record)
    finally:
        os.close(handle)
    return b"".join(records)
