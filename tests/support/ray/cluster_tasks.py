"""Functions for tasks; workers import them by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from fastpipe.tools.verify.check_shards import ShardFindings
from fastpipe.tools.verify.verification import SharedDataset, check_group


def squared(number: int) -> int:
    return number * number


def slow(number: int) -> int:
    time.sleep(150)
    return number


def slow_or_fast(number: int) -> int:
    return slow(number) if number else number


def refused(number: int) -> int:
    raise ValueError(f"no {number}")


def here() -> str:
    """Ray's name of the node that a task runs on."""
    import ray

    node: str = ray.get_runtime_context().get_node_id()
    return node


def full_disk_at_first(log: Path, _: int) -> str:
    """Fails on the node that it runs on first, and everywhere on that node."""
    node = here()
    with open(log, "a") as file:
        file.write(node + "\n")
    if node == log.read_text().split()[0]:
        raise OSError(28, "No space left on device", "/data/shard")
    return node


def full_disk(_: int) -> None:
    raise OSError(28, "No space left on device", "/data/shard")


def check_killed_at_first(
    log: Path, seen: SharedDataset, is_index_intact: bool, run: Any
) -> ShardFindings:
    """A task of `fastpipe verify` that kills its worker once for each run of shards, of which it leaves a note."""
    mark = log / run.shards[0].name
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return check_group(seen, is_index_intact, run)
