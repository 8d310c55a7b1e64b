"""How many of the engine's threads work at a time: as many as keep the CPUs busy, more while they wait for a disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.faults.injector import Fault

import fastpipe

THREADS, BATCH = 16, 10
FAST, SLOW = 1500, 80  # batches
# An epoch on a machine with one CPU -> batches that have come and threads at work, at many moments.
PROGRAM = """
import json, sys, threading
import fastpipe
from fastpipe.engine import engine

engine.count_granted_cpus = lambda: 1
dataset, threads, batch, batches = sys.argv[1], *map(int, sys.argv[2:])
length = {"epoch_size": batch * batches}
seen, over, came = [], threading.Event(), 0
with fastpipe.loader(dataset, batch, size=448, num_workers=threads, prefetch_factor=8, **length) as loader:
    def look():
        while not over.wait(0.002):
            seen.append((came, loader.stats().threads_busy))

    looking = threading.Thread(target=look)
    looking.start()
    for came, _ in enumerate(loader):
        pass
    over.set()
    looking.join()
print(json.dumps(seen))
"""


def test_few_compute_and_many_read(large: Path) -> None:
    (shard,) = fastpipe.open(large).index.shards
    fault = Fault(
        under=shard.path, calls=("pread",), kind="delay", at=FAST * BATCH, number=30, each=True
    )
    command = [sys.executable, "-c", PROGRAM, str(large), *map(str, (THREADS, BATCH, FAST + SLOW))]
    run = subprocess.run(
        command, env=fault.environment(), capture_output=True, text=True, timeout=200, check=False
    )
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    computing = [threads for came, threads in seen if FAST // 3 < came < FAST - 50]
    assert max(computing) <= 5  # a CPU's, one more, and what reading takes
    assert max(threads for came, threads in seen if came > FAST) >= THREADS - 2
