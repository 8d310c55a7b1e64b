"""Tasks of Ray: their results as they end, other nodes after a full disk, other workers after a kill, Ctrl-C."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.ray.cluster_tasks import full_disk, full_disk_at_first, killed_at_first, refused, slow_or_fast, squared
from support.ray.ray_cluster import environment

from fastpipe.errors import ClusterError, ConfigError, PackError
from fastpipe.packing import cluster as tasks
from fastpipe.packing.cluster import is_of_machine, run_tasks, session


def named(number: int) -> str:
    return f"square {number}"


def test_each_item_gets_its_result(ray_cluster: Any) -> None:
    assert sorted(run_tasks(squared, range(12), name=named)) == [(number, number**2) for number in range(12)]


def test_items_are_taken_only_as_there_is_room(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_TASKS_PER_CPU", 0)
    monkeypatch.setattr(tasks, "_LEAST_IN_FLIGHT", 3)
    taken = []

    def items() -> Any:
        for number in range(100):
            taken.append(number)
            yield number

    results = run_tasks(squared, items(), name=named)
    next(results)
    assert len(taken) <= 4
    results.close()


def test_a_full_disk_is_left_for_another_node(ray_cluster: Any, tmp_path: Path) -> None:
    log = tmp_path / "nodes"
    ((_, node),) = run_tasks(partial(full_disk_at_first, log), [1], name=named)
    first, second = log.read_text().split()
    assert first != second == node


def test_a_task_that_no_node_can_do_is_named_with_its_log(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RETRIES", 1)
    words = r"task square 7 has failed 2 times .* process \d+, log /.*worker.*: .*No space left"
    with pytest.raises(ClusterError, match=words):
        list(run_tasks(full_disk, [7], name=named))


def test_an_error_of_the_input_is_not_tried_again(ray_cluster: Any) -> None:
    with pytest.raises(ValueError, match="no 3"):
        list(run_tasks(refused, [3], name=named))


def test_a_killed_worker_costs_its_task_only(ray_cluster: Any, tmp_path: Path) -> None:
    done = list(run_tasks(partial(killed_at_first, tmp_path), range(3), name=named))
    assert sorted(done) == [(0, 0), (1, 1), (2, 2)]


def test_running_tasks_end_when_nobody_wants_them(ray_cluster: Any, tmp_path: Path) -> None:
    import ray

    results = run_tasks(slow_or_fast, [0, 1], name=named)
    assert next(results) == (0, 0)
    results.close()
    deadline = time.monotonic() + 60
    while ray.available_resources().get("CPU", 0) < 2:  # the killed task has let go of its CPU
        assert time.monotonic() < deadline, ray.available_resources()
        time.sleep(0.1)


def test_tasks_that_no_node_has_room_for_are_told(ray_cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    results = run_tasks(squared, [], name=named, memory=1 << 60)
    assert list(results) == []
    assert "no node of the Ray cluster has the CPU and the 1152921504.6 GB of memory" in caplog.text


def test_which_errors_are_of_a_machine() -> None:
    wrapped = PackError("cannot write")
    wrapped.__cause__ = OSError(5, "Input/output error")
    assert is_of_machine(wrapped)
    assert is_of_machine(MemoryError())
    assert not is_of_machine(PackError("the source has changed"))


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'fastpipe\[ray\]'"), session():
        pass


def test_a_connection_of_the_program_is_used_and_stays(ray_cluster: Any) -> None:
    import ray

    with session() as cpus:
        assert cpus == 2
    assert ray.is_initialized()
    with pytest.raises(ConfigError, match="--workers"), session(workers=2):
        pass


class Nobody:
    """Ray where there is no cluster."""

    @staticmethod
    def is_initialized() -> bool:
        return False

    @staticmethod
    def init(**_: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance")


def test_an_address_without_a_cluster_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(tasks, "import_ray", lambda: Nobody)
    with pytest.raises(ClusterError, match=r"--address auto: Could not find .* Start one"), session("auto"):
        pass


def test_an_address_that_does_not_answer_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Ray is asked, which tries for minutes."""
    monkeypatch.setattr(tasks, "import_ray", lambda: Nobody)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"  # nobody listens
        with (
            pytest.raises(ClusterError, match=rf"at --address {address}: .*refused.*leave out --address"),
            session(address),
        ):
            pass
        monkeypatch.setenv("RAY_ADDRESS", address)
        for given in (None, "auto"):
            with (
                pytest.raises(ClusterError, match=rf"at RAY_ADDRESS={address}: .*refused.*unset RAY_ADDRESS"),
                session(given),
            ):
                pass


def test_a_cluster_that_refuses_is_not_said_to_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "import_ray", lambda: Nobody)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        named = rf"answers at --address {address}: .*RAY_AUTH_MODE=token"
        with pytest.raises(ClusterError, match=named), session(address):
            pass


OWN = """
from support.ray.cluster_tasks import slow, squared
from fastpipe.packing.cluster import session
from fastpipe.packing.cluster import run_tasks

with session(workers=1) as cpus:
    print(cpus, list(run_tasks(squared, [3], name=str)), flush=True)
    list(run_tasks(slow, [1, 2], name=str))
"""


def test_a_cluster_of_its_own_ends_with_ctrl_c() -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program: subprocess.Popen[str] = subprocess.Popen([sys.executable, "-c", OWN], env=environment(), **pipes)
    assert program.stdout is not None
    assert program.stdout.readline() == "1 [(3, 9)]\n"
    time.sleep(1)
    asked = time.monotonic()
    program.send_signal(signal.SIGINT)
    _, said = program.communicate(timeout=60)
    assert said.rstrip().endswith("KeyboardInterrupt"), said
    assert time.monotonic() - asked < 60  # the tasks take 150 s
