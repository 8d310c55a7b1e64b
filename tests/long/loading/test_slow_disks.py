"""Disks that answer late or never: the same rows, and watchdog, advice, monitor and stats() name reading."""

from __future__ import annotations

import re
from pathlib import Path

from support.faults.loader_cases import Case, fault, outcomes_of, rows_of_an_epoch, twelve_shards
from support.running.soak import Tried

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
    for words in (
        "stuck reading sample ",
        "(member 0000",
        "at byte ",
        "shard-0000",
        "does not answer; check it",
    ):
        assert words in stuck[0]
    (advice,) = (line for line in said if line not in stuck)
    assert "the bottleneck is reading (" in advice
    assert "put the shards on a faster disk" in advice
    shares = re.findall(r"busy, read (\d+)%", outcomes["each read of a shard is slow"]["monitor"])
    assert max(map(int, shares)) > 80
    tried(
        "each read takes 200 ms",
        2,
        "all batches as ever; watchdog, advice and monitor name reading",
    )
