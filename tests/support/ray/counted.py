"""Tasks of a pack for workers that note what they do, or that a disk refuses; and the command in another process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.ray.cluster_tasks import here
from support.ray.ray_cluster import environment
from support.ray.sources import SHARD_BYTES

from fastpipe.packing.distributed import pack
from fastpipe.packing.distributed.pack import make_part
from fastpipe.packing.distributed.spool import Job, ListedSources, Part
from fastpipe.packing.shard.options import pack_options

_SLOW_S = 0.3


def make(log: Path, job: Job, listed: ListedSources, part: Part) -> int:
    _note(log, f"make {part.name} {part.files}")
    return make_part(job, listed, part)


def _note(log: Path, line: str) -> None:
    with open(log, "a") as file:
        file.write(line + "\n")


def count_shards(monkeypatch: pytest.MonkeyPatch, log: Path) -> Path:
    """Each task that begins to make a shard writes a line: its part, and how many files that has."""
    monkeypatch.setattr(pack, "make_part", partial(make, log))
    return log


def slow_make(log: Path, job: Job, listed: ListedSources, part: Part) -> int:
    _note(log, f"make {part.name} {part.files}")
    _note(log.with_suffix(".pids"), str(os.getpid()))
    time.sleep(_SLOW_S)
    return make_part(job, listed, part)


def slow_pack(source: Path, destination: Path, log: Path, address: str) -> None:
    """A driver whose tasks take a while, so that they can be killed."""
    pack.make_part = partial(slow_make, log)  # type: ignore[assignment]
    how = pack_options(shard_size=SHARD_BYTES)
    pack.pack_on_ray(source, destination, how, address=address, on_progress=lambda _: None)


def slow_driver(
    source: Path, destination: Path, log: Path, address: str
) -> subprocess.Popen[bytes]:
    """The same in another process."""
    given = [str(each) for each in (source, destination, log)]
    code = "import sys; from pathlib import Path; from support.ray.counted import slow_pack; "
    code += f"slow_pack(*map(Path, {given!r}), {address!r})"
    return subprocess.Popen([sys.executable, "-c", code], env=environment(), stderr=subprocess.PIPE)


def make_elsewhere(log: Path, job: Job, listed: ListedSources, part: Part) -> int:
    node = here()
    _note(log, node)
    if node == log.read_text().split()[0]:
        raise OSError(28, "No space left on device")
    return make_part(job, listed, part)


def make_nowhere(job: Job, listed: ListedSources, part: Part) -> int:
    raise OSError(28, "No space left on device")


def refuse_on_first_node(monkeypatch: pytest.MonkeyPatch, log: Path) -> Path:
    """The node that makes a shard first has a full disk."""
    monkeypatch.setattr(pack, "make_part", partial(make_elsewhere, log))
    return log


def refuse_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """All disks are full."""
    monkeypatch.setattr(pack, "make_part", make_nowhere)


def command(arguments: Sequence[Any], timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """The command `fastpipe` in another process."""
    program = [
        sys.executable,
        "-c",
        "from fastpipe.tools.cli import main; main()",
        *map(str, arguments),
    ]
    return subprocess.run(
        program, capture_output=True, text=True, env=environment(), timeout=timeout_s
    )
