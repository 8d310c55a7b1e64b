"""`fastpipe doctor --train-script` on scripts of strangers: the fault comes first, with the user's line; or nothing.

Here are those that need a program of their own, or time; tests/diagnosis/test_watched_scripts.py has the others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.programs import warm
from support.workers.script_runs import Runs, findings, started_warm, watched
from support.workers.strangers import FAULTY, HERE, SOUND

from fastpipe.diagnosis.findings import Code
from fastpipe.diagnosis.processes import list_children

# Looked at by tests beside the one for each of them.
ALSO = {
    "test_whose_lock_it_was": ("stuck lock",),
    "test_a_lock_that_collate_fn_takes": ("stuck lock of a client",),
    "test_a_full_queue_is_called_so": ("stuck queue",),
    "test_the_signal_and_the_sample_of_a_worker_that_is_killed": (
        "worker-killed",
        "worker-killed segv",
    ),
}


@pytest.fixture(autouse=True, scope="module")
def _warm() -> Iterator[None]:
    with started_warm():
        yield


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    """Of all scripts that tests which are to run ask for."""
    names: dict[str, None] = {}
    for item in request.session.items:
        if item.path == request.path and isinstance(item, pytest.Function):
            asked = (
                item.callspec.params.values()
                if hasattr(item, "callspec")
                else ALSO.get(item.name, ())
            )
            names |= dict.fromkeys(map(str, asked))
    before = set(list_children(os.getpid()))
    scripts = {name: (FAULTY[name], 60) if name in FAULTY else (SOUND[name], 100) for name in names}
    made = Runs(scripts, tmp_path_factory.mktemp("scripts"))
    yield made
    made.close()
    assert set(list_children(os.getpid())) <= before


@pytest.mark.parametrize("name", [name for name in FAULTY if name not in HERE])
def test_the_fault_is_among_the_first_two_findings(name: str, runs: Runs) -> None:
    found = runs[name]
    assert found.trouble == ""
    first = {finding.name: finding for finding in findings(found)[:2]}
    assert name.split()[0] in first, [
        found.ended,
        *(finding.as_dict() for finding in findings(found)),
    ]
    lines = FAULTY[name].splitlines()
    line = 1 + next(number for number, text in enumerate(lines) if text.endswith("# here"))
    assert first[name.split()[0]].where == f"{runs.path(name)}:{line}"


@pytest.mark.parametrize("name", [name for name in SOUND if name not in HERE])
def test_nothing_is_found_in_a_sound_script(name: str, runs: Runs) -> None:
    found = runs[name]
    assert found.trouble == ""
    # A machine that is busy with other work delays batches: that is not told from the loader's doing.
    assert {finding.name for finding in findings(found)} <= {"slow-dataset", "slow-transfer"}, (
        findings(found)
    )
    assert found.diagnoses, "it was watched"


def test_whose_lock_it_was(runs: Runs) -> None:
    first = findings(runs["stuck lock"])[0]
    text = FAULTY["stuck lock"].splitlines()
    line = 1 + text.index("        with self.lock:")
    place = f"{runs.path('stuck lock')}:{line + 1}"
    assert f"dataset.lock was held by the main process's thread refresher (at {place})" in first.why
    assert "forkserver" not in first.change  # pickle takes no lock
    assert "get_worker_info().dataset.lock = threading.Lock()" in first.change


def test_a_lock_that_collate_fn_takes(runs: Runs) -> None:
    first = findings(runs["stuck lock of a client"])[0]
    assert "CLIENT.mutex was held by the main process's thread sender" in first.why
    assert "CLIENT.mutex = threading.Lock()" in first.change


def test_a_full_queue_is_called_so(runs: Runs) -> None:
    first = findings(runs["stuck queue"])[0]
    assert first.why.startswith("the queue is full")
    assert "forkserver" not in first.change


def test_a_lock_that_the_loop_holds(tmp_path: Path) -> None:
    source = FAULTY["stuck queue"].partition("class Telling")[0] + (
        "class Counting(Numbers):\n"
        "    def __init__(self):\n"
        "        self.lock = mp.Lock()\n"
        "    def __getitem__(self, number):\n"
        "        with self.lock:\n"
        "            return number\n"
        "dataset = Counting()\n"
        "with dataset.lock:\n"
        "    train(DataLoader(dataset, 16, num_workers=2))\n"
    )
    first = findings(watched(source, tmp_path))[0]
    assert "the main process held dataset.lock" in first.why
    assert first.where.endswith(f":{1 + source.splitlines().index('        with self.lock:')}")


def test_a_step_that_waits_for_ever(tmp_path: Path) -> None:
    """As a rank does that has a batch more than the others; one that computes may take its time."""
    source = (
        FAULTY["no-batches"].partition("loader = ")[0]
        + "for batch in DataLoader(Numbers(), 16, num_workers=1):\n"
    )
    (stuck,) = findings(
        watched(f"{source}    threading.Event().wait()\n", tmp_path, seconds=4.0, stall_timeout=2.0)
    )
    assert (stuck.code, stuck.where) == (
        Code.STUCK,
        f"{tmp_path}/train.py:{len(source.splitlines()) + 1}",
    )
    computing = watched(f"{source}    while True: pass\n", tmp_path, seconds=4.0, stall_timeout=2.0)
    assert findings(computing) == []


def test_the_signal_and_the_sample_of_a_worker_that_is_killed(runs: Runs) -> None:
    first = findings(runs["worker-killed"])[0]
    assert "was ended by SIGKILL, at sample 200" in first.what
    assert "OOM killer" in first.why
    assert "was ended by SIGSEGV, at sample 200" in findings(runs["worker-killed segv"])[0].what


def test_an_iterator_is_freed_when_it_is_in_a_sound_program(tmp_path: Path) -> None:
    source = SOUND["set_epoch"].partition("from torch.utils.data.distributed")[0]
    source += (
        "import weakref\n"
        "loader = DataLoader(Numbers(), 16, num_workers=1)\n"
        "iterator = iter(loader)\n"
        "next(iterator)\n"
        "alive = weakref.ref(iterator)\n"
        "del iterator\n"
        "if alive() is not None:\n"
        "    raise RuntimeError('a watched iterator lives longer than one that is not watched')\n"
    )
    assert findings(watched(source, tmp_path)) == []


def test_a_report_for_one_line_not_for_each_loader(tmp_path: Path) -> None:
    source = SOUND["set_epoch"].partition("from torch.utils.data.distributed")[0]
    source += (
        "for epoch in range(8):\n    train(DataLoader(Numbers(), 64, num_workers=1), step_s=0.02)\n"
    )
    (diagnosis,) = watched(source, tmp_path, batches=1000).diagnoses
    assert diagnosis.stages is not None
    assert diagnosis.stages.batches == 80


def test_ranks_that_have_the_same_loader_have_one_report(tmp_path: Path) -> None:
    source = SOUND["set_epoch"].partition("from torch.utils.data.distributed")[0]
    source += (
        "if len(sys.argv) == 1:\n"
        "    import subprocess\n"
        "    ranks = [subprocess.Popen([sys.executable, __file__, str(rank)]) for rank in range(2)]\n"
        "    sys.exit(max(rank.wait() for rank in ranks))\n"
        "train(DataLoader(Numbers(), 64, num_workers=1), step_s=0.02)\n"
    )
    assert len(watched(source, tmp_path).diagnoses) == 1


def test_a_program_that_is_stopped_ends_without_a_traceback(tmp_path: Path) -> None:
    """One that is interrupted otherwise has its own."""
    script = tmp_path / "train.py"
    script.write_text(SOUND["tensors without workers"].replace("range(3)", "range(100_000)"))
    doctor = "from fastpipe.tools.cli import main; main()"
    watch = ("--batches", "20", "--train-script", f"{sys.executable} {script}")
    ended = warm.run("-c", doctor, "doctor", *watch, timeout_s=600)
    assert "stopping the command: after" in ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout
    assert "KeyboardInterrupt" not in ended.stderr + ended.stdout
