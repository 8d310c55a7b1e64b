"""bench/cluster_peers.py with processes: a pack is timed, workers are found and killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from bench.cluster_peers import below, kill_worker, run


def test_a_pack_is_timed_and_its_output_is_read(flat: Path, tmp_path: Path) -> None:
    found = run("fastpipe", flat.parent / "source", tmp_path / "out", 1, kill=False)
    assert (found.code, found.opened, len(found.samples)) == (0, 37, 37)
    assert found.cpu_s + found.start_s > 0
    assert {"shard-000000.tar", "index.npy", "dataset.json"} <= set(found.files)


def test_only_workers_are_killed() -> None:
    worker = "import time; time.sleep(60)"
    program = f"import subprocess, sys; subprocess.run(['ray::convert 7', '-c', {worker!r}], executable=sys.executable)"
    parent = subprocess.Popen([sys.executable, "-c", program])
    while len(below(parent.pid)) < 2:
        time.sleep(0.05)
    killed = ""
    while not killed:  # the child may not have its name yet
        killed = kill_worker(parent.pid)
        time.sleep(0.05)
    assert killed.startswith("ray::convert 7")
    assert parent.wait(timeout=300) == 0
    assert kill_worker(parent.pid) == ""
