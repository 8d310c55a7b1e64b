"""Tests of fastpipe.Dataset in DataLoader workers of every start method: libraries keep to one thread there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.checkout import SUPPORT
from support.programs import warm

PROGRAM = SUPPORT / "workers" / "dataset_in_workers.py"


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_libraries_use_one_thread_in_workers(textured: Path, method: str) -> None:
    done = warm.run(PROGRAM, textured, method, timeout_s=300)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)  # by number of workers, what each sample saw
    assert len(found) == 2
    for seen in (sample for samples in found.values() for sample in samples):
        assert seen["in_worker"]
        assert (seen["opencv_threads"], seen["torch_threads"], seen["threads_begun"]) == (1, 1, 0)
