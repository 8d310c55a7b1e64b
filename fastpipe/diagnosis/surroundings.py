"""The machine now -> the CPUs and memory that a loader may use."""

from __future__ import annotations

from dataclasses import dataclass

from fastpipe.machine.cpus import granted_cpus
from fastpipe.machine.state import container_memory_bytes, container_oom_kills, memory_bytes, oom_kills


@dataclass(frozen=True)
class Surroundings:
    """What a diagnosis compares with.

    Attributes:
        cpus: granted to this process.
        free_bytes: memory that programs, and this container, can still have; None: not known.
        oom_kills: as `kills` counts them.
    """

    cpus: int
    free_bytes: int | None
    oom_kills: int | None


def surroundings() -> Surroundings:
    """Those of now."""
    memory, limit = memory_bytes(), container_memory_bytes()
    free = [memory[0]] if memory is not None else []
    if limit is not None:
        free.append(limit[1] - limit[0])
    return Surroundings(granted_cpus(), min(free) if free else None, kills())


def kills() -> int | None:
    """Processes that the kernel has killed for want of memory, here or in this container; None: it does not say."""
    counts = [count for count in (oom_kills(), container_oom_kills()) if count is not None]
    return sum(counts) if counts else None
