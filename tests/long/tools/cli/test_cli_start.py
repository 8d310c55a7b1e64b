"""Tests of the start of the `fastpipe` command: which modules it imports, and Ctrl-C in the middle of that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.programs.cli_run import COMMAND
from support.sources.pack_sources import write_folder

Environment = dict[str, str]


@pytest.fixture
def with_module(tmp_path: Path) -> Callable[[str, str], Environment]:
    """An environment in which a module of a library has other code."""

    def place(name: str, code: str) -> Environment:
        (tmp_path / "modules").mkdir()
        (tmp_path / "modules" / f"{name}.py").write_text(code, encoding="utf-8")
        paths = [str(tmp_path / "modules"), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    return place


def run(environment: Environment, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [COMMAND, *map(str, arguments)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


# Each command in a fork of a program that has imported what all of them have in common.
COMMANDS = """
import json, os, sys
from fastpipe.tools.cli.commands import app

for number, arguments in enumerate(json.loads(sys.argv[1])):
    child = os.fork()
    if child == 0:
        app(arguments, prog_name="fastpipe")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, arguments
print("all ended")
"""


def test_only_commands_that_need_torch_import_it(
    with_module: Callable[[str, str], Environment], tmp_path: Path
) -> None:
    environment = with_module("torch", "raise SystemExit('torch is imported')")
    source, packed = write_folder(tmp_path / "source"), tmp_path / "packed"
    commands = [
        ["--help"],
        ["--version"],
        *(
            [command, "--help"]
            for command in ("pack", "bench", "inspect", "verify", "preview", "doctor", "demo")
        ),
        ["pack", str(source), str(packed)],
        ["inspect", str(packed), "--sheet", str(tmp_path / "sheet.png"), "--shuffle"],
        ["verify", str(packed)],
    ]
    program = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
    done = subprocess.run(
        program, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("all ended\n")
    for arguments in (["--version"], ["verify", packed]):  # the console script itself
        done = run(environment, *arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments
    assert (
        run(environment, "preview", packed, "--out", tmp_path / "preview.png").stderr
        == "torch is imported\n"
    )


def test_only_what_draws_needs_opencv(
    with_module: Callable[[str, str], Environment], tmp_path: Path
) -> None:
    """There is no wheel of it for the free-threaded Python."""
    environment = with_module("cv2", "raise ModuleNotFoundError('no OpenCV')")
    source, packed = write_folder(tmp_path / "source"), tmp_path / "packed"
    for arguments in (
        ["--help"],
        ["pack", source, packed],
        ["inspect", packed, "--no-sheet"],
        ["verify", packed],
    ):
        done = run(environment, *arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments
    done = run(environment, "inspect", packed, "--sheet", tmp_path / "sheet.png")
    assert done.returncode != 0
    assert "no OpenCV" in done.stderr


# A library may turn KeyboardInterrupt into another error: numpy's C extensions do.
SLOW = """
import time
print("importing", flush=True)
try:
    time.sleep(60)
except BaseException:
    raise ImportError("the module cannot be initialized")
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("typer", "--help"),
        ("numpy", "pack"),
        ("rich", "verify"),
        ("torch", "preview"),
        ("torch", "doctor"),
    ],
)
def test_ctrl_c_in_the_middle_of_an_import(
    with_module: Callable[[str, str], Environment], tmp_path: Path, module: str, command: str
) -> None:
    words = {"--help": [], "pack": [tmp_path, tmp_path / "packed"], "doctor": []}.get(
        command, [tmp_path]
    )
    with subprocess.Popen(
        [COMMAND, command, *map(str, words)],
        env=with_module(module, SLOW),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "importing\n"
        started.send_signal(signal.SIGINT)
        output, errors = started.communicate(timeout=300)
    assert (started.returncode, output, errors) == (130, "", "fastpipe: interrupted\n")
