"""This process's threads, another process, the machine -> their CPU seconds so far."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Seconds(NamedTuple):
    """CPU seconds of some threads.

    Attributes:
        user, system: that they ran.
        queued: that they were ready to run and waited for a core.
    """

    user: float = 0.0
    system: float = 0.0
    queued: float = 0.0

    @property
    def ran(self) -> float:
        """User and system seconds."""
        return self.user + self.system

    def since(self, earlier: Seconds) -> Seconds:
        """What came after an earlier look."""
        return Seconds(*(now - then for now, then in zip(self, earlier, strict=True)))


def thread_seconds() -> dict[str, Seconds]:
    """Of this process's living threads, summed by what they do."""
    names = {each.native_id: each.name for each in threading.enumerate()}
    found: dict[str, Seconds] = {}
    for task in os.scandir("/proc/self/task"):
        try:
            stat = Path(task.path, "stat").read_text()
            queued_ns = int(Path(task.path, "schedstat").read_text().split()[1])
        except FileNotFoundError:
            continue
        comm, rest = (
            stat[stat.index("(") + 1 : stat.rindex(")")],
            stat[stat.rindex(")") + 2 :].split(),
        )
        mine = Seconds(int(rest[11]) / _TICKS, int(rest[12]) / _TICKS, queued_ns / 1e9)
        kind = _kind(names.get(int(task.name), comm))
        found[kind] = Seconds(
            *(sum(pair) for pair in zip(found.get(kind, Seconds()), mine, strict=True))
        )
    return found


def _kind(name: str) -> str:
    if name.startswith("tokio"):
        return "receiving"
    if name.startswith("fastpipe-requests"):
        return "requests and hashes"
    if name.startswith("fastpipe-write"):
        return "writing"
    return "the training loop" if name == "MainThread" else "decoding"


def process_seconds(process: int) -> float:
    """Of another process."""
    rest = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(rest[11]) + int(rest[12])) / _TICKS


def machine_seconds() -> float:
    """That the whole machine was busy."""
    user, nice, system, _, _, irq, softirq = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) / _TICKS
