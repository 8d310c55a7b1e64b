"""Training scripts of strangers, run in this process: the fault comes first, with the user's line; or nothing does.

tests/long/diagnosis/test_train_scripts.py watches those that need a program of their own, or time.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.workers.script_runs import findings, watched_here
from support.workers.strangers import FAULTY, HERE, SOUND

from fastpipe.diagnosis.processes import list_children

pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # torch warns of workers, of shared buffers, of forks beside threads

# What a busy machine does: that is not told from the loader's doing.
OF_THE_MACHINE = {"slow-dataset", "slow-transfer", "late-batches", "slow-epoch-start"}


@pytest.fixture(autouse=True, scope="module")
def _quick_collections() -> Iterator[None]:
    """Each script ends with a collection, which need not look at all that other tests have made."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("name", [name for name in FAULTY if name in HERE])
def test_the_fault_comes_first(name: str, tmp_path: Path) -> None:
    before = set(list_children(os.getpid()))
    seen = watched_here(FAULTY[name].replace("step_s=0.01", "step_s=0.001"), tmp_path)
    assert seen.trouble == ""
    first = findings(seen)[0]
    line = 1 + next(
        number for number, text in enumerate(FAULTY[name].splitlines()) if text.endswith("# here")
    )
    assert (first.name, first.where) == (name.split()[0], f"{tmp_path}/train.py:{line}")
    assert set(list_children(os.getpid())) <= before
    if name == "iterator-each-step":
        assert first.what.startswith("6 iterators for 6 batches: 12 worker processes started")


@pytest.mark.parametrize("name", [name for name in SOUND if name in HERE])
def test_nothing_is_found_in_a_sound_script(name: str, tmp_path: Path) -> None:
    seen = watched_here(
        SOUND[name].replace("step_s=0.03", "step_s=0.01").replace("step_s=0.05", "step_s=0.01"),
        tmp_path,
    )
    assert seen.trouble == ""
    assert seen.diagnoses, "it was watched"
    assert {finding.name for finding in findings(seen)} <= OF_THE_MACHINE
    if name == "one batch, again and again":
        (stages,) = [diagnosis.stages for diagnosis in seen.diagnoses]
        assert stages is not None
        assert (stages.step_s or 0.0) >= 0.02
        assert "without a training step" not in seen.diagnoses[0].summary
