"""Values that are too large, or announce more than they hold: they need no more memory than a small program has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.running.memory import frees_memory
from support.sources.hostile_tar import GIB, assert_refused, write_hostile_tar

# Packs a tar in a process that may not have much memory.
PACK = """
import resource, sys
import fastpipe
import fastpipe.packing.writer
with open("/proc/self/statm") as file:
    most = int(file.read().split()[5]) * resource.getpagesize() + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
summary = fastpipe.pack(sys.argv[1], sys.argv[2], workers=1)
for path, reason in summary.tally.rejected:
    print(path, reason)
"""
MORE_BYTES = 500 << 20  # than the program has; threads, and libraries that come later, take some of it


@frees_memory
def test_a_text_of_2_gb_and_bombs_cost_nothing(tmp_path: Path) -> None:
    write_hostile_tar(tmp_path / "a.tar", inflated_bytes=GIB)
    command = [sys.executable, "-c", PACK, tmp_path / "a.tar", tmp_path / "packed", MORE_BYTES]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert_refused(run.stdout.splitlines(), tmp_path / "packed")
