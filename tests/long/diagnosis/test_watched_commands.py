"""`fastpipe doctor --train-script` with a Python of its own: from the console to what it leaves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.programs.cli_run import COMMAND, fp
from support.running.patience import in_time
from support.workers.train_script import line_of, start_warm, watched, write_train  # noqa: F401 (a fixture)

from fastpipe.diagnosis.processes import list_children


@pytest.fixture
def train(tmp_path: Path) -> Path:
    return write_train(tmp_path)


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
        [
            COMMAND,
            "doctor",
            "--train-script",
            f"{sys.executable} {train} --lr 1",
            "--batches",
            "40",
        ],
        capture_output=True,
        text=True,
        timeout=600,
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
        rf"where +{re.escape(str(train))}:{line_of('def __getitem__(self, number):', train)}",
        ended.stdout,
    )
    assert not list(tmp_path.glob("fastpipe*"))
    assert processes_with(train) == []


def test_the_users_own_sitecustomize_and_path_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert "a fastpipe loader: loader.stats(), or fastpipe.monitor" in " ".join(
        ended.stdout.split()
    )
    ended = fp("doctor", "--train-script", f"{sys.executable} -I -c 'import sys; sys.exit(3)'")
    assert "ended with exit code 3" in ended.stdout
    assert "doctor could watch no Python program of this command" in ended.stdout


def test_a_command_that_never_comes_to_a_loader() -> None:
    began = time.monotonic()
    found = watched(sys.executable, "-c", "'import time; time.sleep(3600)'", seconds=0.1)
    assert "iterated over no DataLoader in" in found.ended
    assert in_time(time.monotonic() - began, 20)


@pytest.mark.usefixtures("start_warm")
def test_one_that_ignores_the_interrupt_is_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    before = set(list_children(os.getpid()))
    assert watched(sys.executable, script, batches=1).ended == "after 1 batches"
    assert set(list_children(os.getpid())) <= before
    deadline = time.monotonic() + 300  # the kernel takes a moment to end a process
    while processes_with(tmp_path):
        assert time.monotonic() < deadline, "one that was started lives on"
        time.sleep(0.05)
