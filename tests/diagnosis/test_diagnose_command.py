"""`fastpipe doctor --train-script`: a training script runs as it is, and ends with a diagnosis of its DataLoader."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.programs.cli_run import COMMAND, failed, fp
from support.running.patience import in_time
from support.workers.script_runs import started_warm

from fastpipe.diagnosis import command as module
from fastpipe.diagnosis.command import watch_command
from fastpipe.diagnosis.stacks import children
from fastpipe.errors import ConfigError

TRAIN = """
    import sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Photos(Dataset):
        def __len__(self):
            return 100_000

        def __getitem__(self, number):
            if number == 40 and "stuck" in sys.argv:
                return wait_for_ever()
            time.sleep(0.02)
            return number

    def wait_for_ever():
        time.sleep(3600)

    def main(workers):
        print("training", *sys.argv[1:], flush=True)
        loader = DataLoader(Photos(), batch_size=4, num_workers=workers)
        for batch in loader:
            time.sleep(0.001)

    if __name__ == "__main__":
        main(0 if "alone" in sys.argv else 2)
"""


@pytest.fixture
def start_warm() -> Iterator[None]:
    """For those of which it makes no difference who imports torch."""
    with started_warm():
        yield


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(TRAIN))
    return path


def line_of(text: str, path: Path) -> int:
    return 1 + [line.strip() for line in path.read_text().splitlines()].index(text)


def watched(*words: object, **limits: Any) -> module.Watched:
    options = {"batches": 40, "seconds": 30.0, "stall_timeout": 20.0, "output": 2, **limits}
    return watch_command(" ".join(map(str, words)), **options)


def processes_with(path: Path) -> list[int]:
    """The numbers of all processes that have it in their arguments."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(path) in " ".join(process.info["cmdline"] or ())
    ]


def test_the_command(train: Path, tmp_path: Path) -> None:
    """In a process of its own, as a user has it: the training's output, then the diagnosis; and nothing is left."""
    ended = subprocess.run(
        [COMMAND, "doctor", "--train-script", f"{sys.executable} {train} --lr 1", "--batches", "40"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "COLUMNS": "200", "TMPDIR": str(tmp_path)},
    )
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.startswith("training --lr 1\n")
    assert "stopping the command: after 4" in ended.stderr
    made = line_of("loader = DataLoader(Photos(), batch_size=4, num_workers=workers)", train)
    assert f"{train}:{made}: DataLoader(batch_size=4, num_workers=2" in ended.stdout
    assert "bad: slow-dataset" in ended.stdout
    assert re.search(
        rf"where +{re.escape(str(train))}:{line_of('def __getitem__(self, number):', train)}", ended.stdout
    )
    assert not list(tmp_path.glob("fastpipe*"))
    assert processes_with(train) == []


@pytest.mark.parametrize("workers", ["workers", "alone"])
def test_a_training_that_hangs(train: Path, workers: str) -> None:
    before = set(children(os.getpid()))
    found = watched(sys.executable, train, "stuck", workers, stall_timeout=2.0)
    (diagnosis,) = found.diagnoses
    assert found.ended == "no batch for 2 s"
    first = diagnosis.findings[0]
    assert first.name == "stuck"
    assert "is at sample 40, in wait_for_ever" in first.what
    assert first.where == f"{train}:{line_of('time.sleep(3600)', train)}"
    roles = [stack.role for stack in diagnosis.stacks]
    assert roles == ["the main process", *(["worker 0", "worker 1"] if workers == "workers" else [])]
    assert all("most recent call first" in stack.text for stack in diagnosis.stacks)
    assert set(children(os.getpid())) <= before


@pytest.mark.usefixtures("start_warm")
def test_json_has_standard_output_to_itself(train: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ended = fp("doctor", "--json", "--batches", "20", "--train-script", f"A=1 {sys.executable} {train} alone")
    said = json.loads(ended.stdout)
    assert "training alone" in capfd.readouterr().err
    assert said["trouble"] == ""
    (loader,) = said["loaders"]
    assert loader["options"]["num_workers"] == 0
    assert "no-workers" in {finding["name"] for finding in loader["findings"]}


def test_the_users_own_sitecustomize_and_path_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.was_here = True\n")
    (tmp_path / "own.py").write_text("name = 'own'\n")
    script = tmp_path / "script" / "train.py"
    script.parent.mkdir()
    script.write_text(
        "import own, sys, sitecustomize\nassert sys.was_here and own.name == 'own'\nprint(sitecustomize.__file__)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (tmp_path / "said").open("w") as said:
        found = watched(sys.executable, script, output=said)
    assert found.ended == "the command ended"
    assert (tmp_path / "said").read_text() == f"{tmp_path / 'sitecustomize.py'}\n"
    assert found.trouble == ""


def test_a_command_without_a_loader() -> None:
    ended = fp("doctor", "--train-script", f"{sys.executable} -c 'import torch'")
    assert ended.exit_code == 1
    assert "iterated over no torch DataLoader" in ended.stdout
    ended = fp("doctor", "--train-script", f"{sys.executable} -I -c 'import sys; sys.exit(3)'")
    assert "ended with exit code 3" in ended.stdout
    assert "doctor could watch no Python program of this command" in ended.stdout


@pytest.mark.usefixtures("start_warm")
def test_an_empty_dataset(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from torch.utils.data import DataLoader\nlist(DataLoader([]))\n")
    (diagnosis,) = watched(sys.executable, script).diagnoses
    assert diagnosis.summary == "no batch came: the dataset has no sample"


def test_a_command_that_never_comes_to_a_loader() -> None:
    began = time.monotonic()
    found = watched(sys.executable, "-c", "'import time; time.sleep(3600)'", seconds=0.1)
    assert "iterated over no DataLoader in" in found.ended
    assert in_time(time.monotonic() - began, 20)


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
    first, second = watched(sys.executable, script).refused
    assert "persistent_workers option needs num_workers > 0" in first.what
    assert (first.where, first.section) == (f"{script}:4", 11)
    assert second.section == 0


@pytest.mark.usefixtures("start_warm")
def test_one_that_ignores_the_interrupt_is_ended_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastpipe.diagnosis.command._PATIENCE_S", 0.5)
    script = tmp_path / "train.py"
    script.write_text(
        "import signal, subprocess, sys, time\n"
        "from torch.utils.data import DataLoader\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)', __file__], start_new_session=True)\n"
        "next(iter(DataLoader(range(4))))\n"
        "time.sleep(3600)\n"
    )
    before = set(children(os.getpid()))
    assert watched(sys.executable, script, batches=1).ended == "after 1 batches"
    assert set(children(os.getpid())) <= before
    deadline = time.monotonic() + 60  # the kernel takes a moment to end a process
    while processes_with(tmp_path):
        assert time.monotonic() < deadline, "one that was started lives on"
        time.sleep(0.05)


def test_wrong_usage(tmp_path: Path) -> None:
    assert "got both" in failed(2, "doctor", tmp_path, "--train-script", "python x.py")
    assert "'no-such-program' cannot be run" in failed(2, "doctor", "--train-script", "no-such-program x")
    assert "expected a command such as" in failed(2, "doctor", "--train-script", "A=1")
    assert "is not a valid command: No closing quotation" in failed(2, "doctor", "--train-script", "python 'x")
    assert "batches: " in failed(2, "doctor", "--train-script", "python x", "--batches", "0")
    with pytest.raises(ConfigError):
        watched("")
