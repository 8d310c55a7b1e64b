"""Diagnoses of loaders that take time, memory or a Python of their own: spawned workers, and lists that they copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support.workers.diagnosed as faults
from support.checkout import TESTS
from support.programs.scripts import run_script
from support.running.memory import frees_memory
from support.workers.diagnosed import (
    Names,
    Numbers,
    diagnosed,
    names,
)

HERE = str(Path(__file__))


@pytest.fixture(autouse=True)
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPUs of the machine at hand are not what is tested."""
    monkeypatch.setattr("fastpipe.diagnosis.observation.count_granted_cpus", lambda: 8)


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (
            Numbers(),
            {"multiprocessing_context": "spawn", "num_workers": 1, "persistent_workers": True},
        ),
        (
            Names(np.array([f"{number:032d}" for number in range(300_000)], dtype="S"), 0.001),
            {"num_workers": 2},
        ),
    ],
    ids=["spawn", "array of names"],
)
def test_nothing_is_found_in_another_sound_loader(dataset: Any, options: dict[str, Any]) -> None:
    diagnosis = diagnosed(dataset, **options)
    # A machine that is busy with other work delays batches: that is not told from the loader's doing.
    assert names(diagnosis) <= {"late-batches", "slow-transfer"}, json.dumps(
        diagnosis.as_dict(), indent=1
    )
    assert diagnosis.stages is not None
    assert diagnosis.stages.batches == len(dataset) // 4
    assert diagnosis.processes == options["num_workers"]


def test_what_spawned_workers_do_not_get() -> None:
    def init(worker: int) -> None:
        pass

    (found,) = diagnosed(Numbers(), multiprocessing_context="spawn", worker_init_fn=init).findings
    assert found.name == "not-picklable"
    assert "init, a local function) cannot be pickled: " in found.what
    assert "local object" in found.what
    kept = diagnosed(faults.Telling(), multiprocessing_context="spawn")
    assert "not-picklable" not in names(kept), "workers do not get it"


LISTS = """
    import sys
    sys.path.insert(0, sys.argv[1])
    from support.workers.diagnosed import Names, diagnosed, finding, slow_pause
    names = [f"photos/class-{number % 1000:04d}/{number:09d}.jpg" for number in range(500_000)]
    diagnosis = diagnosed(Names(names), batch_size=2, batches=50, step=slow_pause)
    found = finding(diagnosis, "copy-on-write")
    print(found.what, found.change, max(growth.grown_bytes for growth in diagnosis.memory), sep="\\n")
"""


@frees_memory
def test_lists_that_workers_copy() -> None:
    """In a process of its own: one that has freed much takes no new memory for a while."""
    ran = run_script(LISTS, TESTS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    what, change, grew = ran.stdout.splitlines()
    assert "dataset.names is a list of 500,000 str" in what
    assert "grew by" in what
    assert change.startswith("self.names = np.array")
    assert int(grew) > 5e6
