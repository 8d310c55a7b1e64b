"""Disks that answer late or never: the same rows, and watchdog, advice, monitor and stats() name reading."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from support.faults.injector import Fault
from support.faults.loader_cases import Case, fault, outcomes_of, rows_of_an_epoch, twelve_shards
from support.running.soak import Tried

from fastpipe.format.layout import shard_name

SLOW: dict[str, Case] = {
    "each read is slow": fault("pread", "delay", 200, 0, each=True, under="{data}")
    | {"shards": "", "options": {"batch_size": 6}},
    "each read of a shard is slow": {
        **fault("pread", "delay", 200, 0, each=True),
        "after": 0,
        "epochs": 3,
        "step_s": 0.002,
        "options": {"batch_size": 1, "num_workers": 8, "prefetch_factor": 8, "stall_timeout": 0.15},
    },
}


def test_slow_reads(tmp_path: Path, tried: Tried) -> None:
    outcomes = outcomes_of(SLOW, twelve_shards(tmp_path / "packed"), tmp_path)
    rows = rows_of_an_epoch(outcomes)
    for name, epochs in (("each read is slow", 1), ("each read of a shard is slow", 3)):
        assert outcomes[name]["error"] is None
        assert outcomes[name]["rows"] == rows * epochs
    said = outcomes["each read of a shard is slow"]["said"]
    stuck = [line for line in said if line.startswith("no batch for ")]
    for words in ("stuck reading sample ", "(key 0000", "at byte ", "shard-0000", "does not answer; check it"):
        assert words in stuck[0]
    (advice,) = (line for line in said if line not in stuck)
    assert "the bottleneck is reading (" in advice
    assert "put the shards on a faster disk" in advice
    shares = re.findall(r"busy, read (\d+)%", outcomes["each read of a shard is slow"]["monitor"])
    assert max(map(int, shares)) > 80
    tried("each read takes 200 ms", 2, "all batches as ever; watchdog, advice and monitor name reading")


# The engine's threads are held in their first reads.
STARVED = """
import json, os, sys, threading, time
import fastpipe

loader = fastpipe.loader(sys.argv[1], 5, size=8, num_workers=2, prefetch_factor=2)
threading.Thread(target=lambda: next(iter(loader)), daemon=True).start()
deadline = time.monotonic() + 60
while (loader.stats().threads_busy, loader.stats().batches_making) != (2, 3) and time.monotonic() < deadline:
    time.sleep(0.01)
print(json.dumps(loader.stats().as_dict()), flush=True)
os._exit(0)
"""


def test_a_disk_that_is_slow_has_rows_waiting(flat: Path, tried: Tried) -> None:
    fault = Fault(under=flat / shard_name(0), calls=("pread",), kind="delay", at=0, number=100_000, each=True)
    run = subprocess.run(
        [sys.executable, "-c", STARVED, str(flat)],
        env=fault.environment(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    stats = json.loads(run.stdout)
    assert (stats["threads_busy"], stats["threads"]) == (2, 2)
    assert (stats["batches_making"], stats["batches_ready"]) == (3, 0)
    assert stats["rows_waiting"] == 3 * 5 - 2
    assert stats["images_read"] == 0
    tried("a disk that holds every read", 1, "stats() shows all threads busy, the rows that wait, no batch ready")
