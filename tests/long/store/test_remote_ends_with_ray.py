"""Programs that pack by Ray, or load by URL in their own process and in a Ray task, and end: with their exit code, and
no worker of Ray crashes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.ray.ray_cluster import environment
from support.remote.ending_programs import check_ends, programs_that_end
from support.running.soak import Tried, times

# The worker of a task keeps its loader, whose next epoch is under way, until Ray ends the worker.
TASK = """
import ray
ray.init(address=ADDRESS, log_to_driver=False, logging_level="error")

@ray.remote(num_cpus=1)
def load(place, cache):
    import sys
    import fastpipe
    data = fastpipe.open(place, cache_dir=cache, cache_limit=0)
    sys.kept = fastpipe.loader(data, 16, size=64, num_workers=1)
    return sum(len(labels) for _ in range(2) for _, labels in sys.kept)

assert ray.get(load.remote(DATA, "CACHE-{number}")) == 320
"""
PACK = """
fastpipe.pack("FOLDER", "CACHE-packed-{number}", executor="ray", address=ADDRESS, shard_size=2_000_000)
"""
BEFORE = {"a task that loads": TASK, "a pack": PACK}
ENDS = {
    "the main module ends": ("loader = train(2{options})", 0, 0),
    "sys.exit": ("loader = train(2{options}); sys.exit(3)", 3, 0),
    "an error": ("loader = train(1{options}); raise KeyError('mine')", 1, 1),
}
CRASHED = re.compile(
    r"SIGABRT|Fatal Python error|panicked|terminate called|FATAL: exception not rethrown"
)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("end", ENDS)
def test_a_program_with_ray_ends(
    ray_nodes: Any,
    remote_packed: Path,
    tmp_path: Path,
    tried: Tried,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
    before: str,
) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    code, expected, tracebacks = ENDS[end]
    replaced = {
        "ADDRESS": repr(ray_nodes.address),
        "FOLDER": str(remote_packed),
        "CACHE": str(tmp_path / "ray"),
    }
    first = BEFORE[before]
    for name, value in replaced.items():
        first = first.replace(name, value)
    programs = list(programs_that_end(f"{first}\n{code}", times(1, 25), remote_packed, tmp_path))
    programs = programs[: times(2, len(programs))]  # each starts workers of Ray
    # A thread of Ray's own (worker.io, in _raylet.so) has crashed once in some hundred starts, before a loader was
    # made.
    outcomes = check_ends(
        iter(programs), remote_packed, expected, tracebacks, crashes_before="trains"
    )
    logs = Path(ray_nodes.head_node.get_session_dir_path()) / "logs"
    crashed = [
        file.name
        for file in logs.glob("*worker*")
        if CRASHED.search(file.read_text(errors="replace"))
    ]
    assert not crashed
    tried(
        f"a program with a loader by URL, and with Ray for {before}, that ends: {end}",
        len(outcomes),
        "as it meant",
    )
