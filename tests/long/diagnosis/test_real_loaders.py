"""Diagnoses of loaders that take time, memory or a Python of their own: spawned workers, slow stages, growth."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support.workers.diagnosed as faults
from support.checkout import TESTS
from support.programs.scripts import run_script
from support.running.memory import frees_memory
from support.running.patience import in_time
from support.workers.diagnosed import (
    FAULTS,
    Names,
    Numbers,
    Slow,
    diagnosed,
    finding,
    line_of,
    names,
)

HERE = str(Path(__file__))


@pytest.fixture(autouse=True)
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPUs of the machine at hand are not what is tested."""
    monkeypatch.setattr("fastpipe.diagnosis.observation.granted_cpus", lambda: 8)


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Numbers(), {"multiprocessing_context": "spawn", "num_workers": 1, "persistent_workers": True}),
        (Numbers(), {"multiprocessing_context": "forkserver", "num_workers": 1, "persistent_workers": True}),
        (Names(np.array([f"{number:032d}" for number in range(300_000)], dtype="S"), 0.001), {}),
    ],
    ids=["spawn", "forkserver", "array of names"],
)
def test_nothing_is_found_in_another_sound_loader(dataset: Any, options: dict[str, Any]) -> None:
    diagnosis = diagnosed(dataset, **options)
    # A machine that is busy with other work delays batches: that is not told from the loader's doing.
    assert names(diagnosis) <= {"late-batches", "slow-transfer"}, json.dumps(diagnosis.as_dict(), indent=1)
    assert diagnosis.stages is not None
    assert diagnosis.stages.batches == len(dataset) // 4
    assert diagnosis.processes == options.get("num_workers", 2)


def test_the_stage_that_holds_the_loop_up() -> None:
    diagnosis = diagnosed(Slow(0.05), step=lambda batch: time.sleep(0.002))
    found = finding(diagnosis, "slow-dataset")
    assert "num_workers=4" in found.change
    assert found.where == f"{FAULTS}:{line_of('def __getitem__')}"
    assert diagnosis.stages is not None
    assert diagnosis.stages.dataset_s >= 0.2
    assert in_time(diagnosis.stages.dataset_s, 1)
    assert diagnosis.stages.dataset_s > 5 * diagnosis.stages.collate_s
    assert diagnosis.stages.waiting > 0.5
    found = finding(diagnosed(Numbers(), collate_fn=slow_collate, step=lambda batch: time.sleep(0.002)), "slow-collate")
    assert found.where == f"{HERE}:{line_of('def slow_collate', HERE)}"


def slow_collate(samples: list[Any]) -> list[Any]:
    time.sleep(0.08)
    return samples


def test_a_step_that_makes_its_own_batch() -> None:
    diagnosis = diagnosed(Slow(0.02), num_workers=0)
    found = finding(diagnosis, "no-workers")
    assert "num_workers=8" in found.change
    assert found.severity == "bad"
    assert found.where == f"{FAULTS}:{line_of('loader = DataLoader(')}"
    assert finding(diagnosed(Slow(0.02), num_workers=0, step=None), "no-workers").severity == "note"


def test_what_spawned_workers_do_not_get() -> None:
    def init(worker: int) -> None:
        pass

    (found,) = diagnosed(Numbers(), multiprocessing_context="spawn", worker_init_fn=init).findings
    assert found.name == "not-picklable"
    assert "init, a local function) cannot be pickled: " in found.what
    assert "local object" in found.what
    kept = diagnosed(faults.Telling(), multiprocessing_context="spawn")
    assert "not-picklable" not in names(kept), "workers do not get it"


# Each in a process of its own: one that has freed much takes no new memory for a while, and what it then makes lies
# among the holes.
GROWS = {
    "lists": """
        import sys
        sys.path.insert(0, sys.argv[1])
        from support.workers.diagnosed import Names, diagnosed, finding, slow_pause
        names = [f"photos/class-{number % 1000:04d}/{number:09d}.jpg" for number in range(500_000)]
        diagnosis = diagnosed(Names(names), batch_size=2, batches=50, step=slow_pause)
        found = finding(diagnosis, "copy-on-write")
        print(found.what, found.change, max(growth.grown_bytes for growth in diagnosis.memory), sep="\\n")
    """,
    **{
        process: f"""
        import sys
        sys.path.insert(0, sys.argv[1])
        from support.workers.diagnosed import Keeping, diagnosed, finding
        print(finding(diagnosed(Keeping(), num_workers={workers}), "memory-grows").what)
    """
        for process, workers in (("the main process", 0), ("worker 0", 1))
    },
}


@pytest.fixture(scope="module")
def grown() -> dict[str, str]:
    """By name: what a program said. They wait most of their time, so they run side by side."""
    with ThreadPoolExecutor() as pool:
        ended = dict(zip(GROWS, pool.map(lambda script: run_script(script, TESTS), GROWS.values()), strict=True))
    for name, ran in ended.items():
        assert ran.returncode == 0, (name, ran.stdout + ran.stderr)
    return {name: ran.stdout for name, ran in ended.items()}


@frees_memory
def test_lists_that_workers_copy(grown: dict[str, str]) -> None:
    what, change, grew = grown["lists"].splitlines()
    assert "dataset.names is a list of 500,000 str" in what
    assert "grew by" in what
    assert change.startswith("self.names = np.array")
    assert int(grew) > 5e6


@frees_memory
@pytest.mark.parametrize("process", ["the main process", "worker 0"])
def test_memory_that_grows_without_end(process: str, grown: dict[str, str]) -> None:
    assert process in grown[process]
    assert " grew by " in grown[process]
