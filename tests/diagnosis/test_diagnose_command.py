"""`fastpipe doctor --train-script`: a training script runs as it is, and ends with a diagnosis of its DataLoader."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.programs.cli_run import failed, fp
from support.running.patience import slowdown
from support.workers.train_script import line_of, start_warm, watched, write_train  # noqa: F401 (a fixture)

from fastpipe.diagnosis.command import _Limits, _wait
from fastpipe.diagnosis.inject.fastpipe_probe.files import State
from fastpipe.diagnosis.processes import list_children
from fastpipe.errors import ConfigError


@pytest.fixture
def train(tmp_path: Path) -> Path:
    return write_train(tmp_path)


class Running:
    """A command."""

    def __init__(self, returncode: int | None = None) -> None:
        self.returncode = returncode

    def poll(self) -> int | None:
        return self.returncode


@pytest.mark.parametrize(
    ("stage", "batches", "stall_timeout", "exit_code", "expected"),
    [
        ("waiting", 5, 60.0, None, ("after 5 batches", None)),
        ("waiting", 3, 0.0, None, ("no batch for 0 s", "1")),
        ("starting", 3, 0.0, None, ("no batch for 0 s", "1")),
        ("waiting", 3, 60.0, 0, ("the command ended", None)),
        ("waiting", 3, 60.0, 3, ("the command ended with exit code 3", None)),
        ("step", 3, 60.0, None, ("after 0 s of batches", None)),
        ("step", 3, 0.0, None, ("after 0 s of batches", "1")),
    ],
)
def test_why_the_watching_ends(
    tmp_path: Path,
    stage: str,
    batches: int,
    stall_timeout: float,
    exit_code: int | None,
    expected: tuple[str, str | None],
) -> None:
    State(str(tmp_path / "loader-1.state")).set(stage, batches)
    process: Any = Running(exit_code)
    end = _wait(process, tmp_path, _Limits(batches=5, seconds=0.0, stall_timeout=stall_timeout))
    assert (end.why, end.stuck_key) == expected


@pytest.mark.usefixtures("start_warm")
def test_a_training_that_hangs(train: Path) -> None:
    before = set(list_children(os.getpid()))
    patience_s = 2.0 * slowdown()
    found = watched(sys.executable, train, "stuck", "workers", stall_timeout=patience_s)
    (diagnosis,) = found.diagnoses
    assert found.ended == f"no batch for {patience_s:g} s"
    first = diagnosis.findings[0]
    assert first.name == "stuck"
    assert "is at sample 40, in wait_for_ever" in first.what
    assert first.where == f"{train}:{line_of('time.sleep(3600)', train)}"
    roles = [stack.role for stack in diagnosis.stacks]
    assert roles == ["the main process", "worker 0", "worker 1"]
    assert all("most recent call first" in stack.text for stack in diagnosis.stacks)
    assert set(list_children(os.getpid())) <= before


@pytest.mark.usefixtures("start_warm")
def test_json_has_standard_output_to_itself(train: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ended = fp(
        "doctor",
        "--json",
        "--batches",
        "20",
        "--train-script",
        f"A=1 {sys.executable} {train} alone",
    )
    said = json.loads(ended.stdout)
    assert "training alone" in capfd.readouterr().err
    assert said["trouble"] == ""
    (loader,) = said["loaders"]
    assert loader["options"]["num_workers"] == 0
    assert "no-workers" in {finding["name"] for finding in loader["findings"]}


@pytest.mark.usefixtures("start_warm")
def test_an_empty_dataset(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from torch.utils.data import DataLoader\nlist(DataLoader([]))\n")
    (diagnosis,) = watched(sys.executable, script).diagnoses
    assert diagnosis.summary == "no batch came: the dataset has no sample"


@pytest.mark.usefixtures("start_warm")
def test_options_that_torch_refuses(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from torch.utils.data import DataLoader\n"
        "for options in ({'persistent_workers': True}, {'batch_size': 0}):\n"
        "    try:\n"
        "        DataLoader(range(4), **options)\n"
        "    except ValueError:\n"
        "        pass\n"
    )
    first, second = watched(sys.executable, script).program_findings
    assert "persistent_workers option needs num_workers > 0" in first.what
    assert (first.where, first.section) == (f"{script}:4", 11)
    assert second.section == 0


def test_wrong_usage(tmp_path: Path) -> None:
    assert "got both" in failed(2, "doctor", tmp_path, "--train-script", "python x.py")
    assert "'no-such-program' cannot be run" in failed(
        2, "doctor", "--train-script", "no-such-program x"
    )
    assert "expected a command such as" in failed(2, "doctor", "--train-script", "A=1")
    assert "is not a valid command: No closing quotation" in failed(
        2, "doctor", "--train-script", "python 'x"
    )
    assert "batches: " in failed(2, "doctor", "--train-script", "python x", "--batches", "0")
    with pytest.raises(ConfigError):
        watched("")
