"""Tests of side_by_side.py: pytest itself runs small files with two workers, as the gate runs these tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import TESTS
from side_by_side import MOST_WORKERS, workers

CONFTEST = """
import time
import pytest
from side_by_side import note_serial_tests, order_tests, prepare_worker, scheduler
from soak import pytest_terminal_summary, tried

def pytest_collection_modifyitems(config, items):
    order_tests(items)
    note_serial_tests(config, items)

@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    prepare_worker(node)

@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return scheduler(config, log)

@pytest.fixture(autouse=True)
def note(request):
    began = time.monotonic()
    yield
    name = request.node.name
    with open(request.config.rootpath / "log", "a") as log:
        log.write(f"{name} {request.config.workerinput['workerid']} {began} {time.monotonic()}\\n")
"""

Log = dict[str, tuple[str, float, float]]


def run(folder: Path, files: dict[str, str]) -> tuple[int, str, Log]:
    """(exit status, output, by test: its worker, when it began and ended)."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = serial\naddopts = --dist=loadfile -p no:cacheprovider\n")
    (folder / "conftest.py").write_text(CONFTEST)
    for name, content in files.items():
        (folder / f"test_{name}.py").write_text("import os, time, pytest\n" + content)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "FASTPIPE_SOAK": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "2", folder]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    lines = [line.split() for line in (folder / "log").read_text().splitlines()]
    assert len({line[0] for line in lines}) == len(lines), "no test runs twice"
    return ended.returncode, ended.stdout, {name: (at, float(began), float(end)) for name, at, began, end in lines}


def several(name: str, count: int, seconds: float = 0.01) -> str:
    return "".join(f"def test_{name}{number}(): time.sleep({seconds})\n" for number in range(count))


SERIAL = "".join(f"@pytest.mark.serial\ndef test_{name}(): time.sleep(0.05)\n" for name in ("early", "late"))


def test_serial_tests_run_when_all_others_have_ended(tmp_path: Path) -> None:
    files = {"a": SERIAL + several("a", 3), "b": several("b", 2, 0.4), "c": several("c", 5), "d": several("d", 1)}
    code, output, log = run(tmp_path, files)
    assert code == 0, output
    assert " 13 passed in " in output.splitlines()[-1]
    workers = {file: {log[test][0] for test in log if test.startswith(f"test_{file}")} for file in "abcd"}
    assert all(len(names) == 1 for names in workers.values()), "a file's tests share a worker"
    assert len(set.union(*workers.values())) == 2
    early, late = log.pop("test_early"), log.pop("test_late")
    assert max(end for _, _, end in log.values()) <= early[1]
    assert early[2] <= late[1]


def test_one_file_and_serial_tests(tmp_path: Path) -> None:
    code, output, log = run(tmp_path, {"a": SERIAL, "b": several("b", 1, 0.4)})
    assert code == 0, output
    assert log["test_b0"][2] <= min(log["test_early"][1], log["test_late"][1])


@pytest.mark.parametrize("file", [SERIAL, several("a", 1)], ids=["serial", "one"])
def test_fewer_files_than_workers(tmp_path: Path, file: str) -> None:
    code, output, log = run(tmp_path, {"a": file})
    assert code == 0, output
    assert len(log) == file.count("def test_")


def test_a_crash_fails_its_test_alone(tmp_path: Path) -> None:
    dies = "def test_dies(): os._exit(1)\n"
    dies_alone = "@pytest.mark.serial\n" + dies.replace("dies", "dies_alone")
    code, output, log = run(tmp_path, {"a": several("a", 2) + dies + dies_alone + several("z", 2), "b": SERIAL})
    assert code == 1
    crashed = re.findall(r"crashed while running '.*::(\w+)", output)
    assert set(crashed) == {"test_dies", "test_dies_alone"}
    assert " 2 failed, 6 passed in " in output.splitlines()[-1]
    assert log.keys() == {f"test_{name}" for name in ("a0", "a1", "z0", "z1", "early", "late")}


def test_workers_tell_what_they_have_tried(tmp_path: Path) -> None:
    """`make soak` prints the sum of all that passed."""
    fire = "def test_{}(tried):\n    tried('fire', {}, 'out')\n    assert {}\n"
    files = {"a": fire.format("a", 2, True), "b": fire.format("b", 3, True) + fire.format("c", 70, False)}
    _, output, _ = run(tmp_path, files)
    assert "| fault | times tried | outcome |\n|---|---|---|\n| fire | 5 | out |\n" in output


def test_the_number_of_workers_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert workers() == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert workers() == MOST_WORKERS
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", str(MOST_WORKERS + 3))
    assert workers() == MOST_WORKERS + 3
