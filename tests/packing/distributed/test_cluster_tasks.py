"""Tasks of a cluster: their results as they end, other nodes after a full disk, other workers after a kill."""

from __future__ import annotations

import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.ray.cluster_tasks import full_disk, full_disk_at_first, refused, squared
from support.ray.tasks_here import Cluster, WorkerDiedError

from fastpipe.errors import ClusterError, ConfigError, PackError
from fastpipe.packing import cluster as tasks
from fastpipe.packing.cluster import is_of_machine, run_tasks, session
from fastpipe.store.remote.retry import Failure, RequestError


def named(number: int) -> str:
    return f"square {number}"


def test_each_item_gets_its_result(tasks_here: Cluster) -> None:
    assert sorted(run_tasks(squared, range(12), name=named)) == [
        (number, number**2) for number in range(12)
    ]


def test_items_are_taken_only_as_there_is_room(
    tasks_here: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_TASKS_PER_CPU", 0)
    monkeypatch.setattr(tasks, "_MIN_IN_FLIGHT", 3)
    taken = []

    def items() -> Any:
        for number in range(100):
            taken.append(number)
            yield number

    results = run_tasks(squared, items(), name=named)
    next(results)
    assert len(taken) <= 4
    results.close()


def test_a_full_disk_is_left_for_another_node(tasks_here: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "nodes"
    ((_, node),) = run_tasks(partial(full_disk_at_first, log), [1], name=named)
    first, second = log.read_text().split()
    assert first != second == node


def test_a_task_that_no_node_can_do_is_named_with_its_log(
    tasks_here: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "RETRIES", 1)
    monkeypatch.setattr(os, "readlink", lambda _: "/logs/worker-1.err (deleted)")
    words = r"task square 7 has failed 2 times \(on 10\.0\.0\.1\), last on node node-[ab] at 10\.0\.0\.1, process \d+, "
    words += r"log /logs/worker-1\.err: .*No space left"
    with pytest.raises(ClusterError, match=words):
        list(run_tasks(full_disk, [7], name=named))
    assert [how["name"] for how in tasks_here.submitted] == ["square 7"] * 2
    monkeypatch.setattr(tasks, "RETRIES", 0)
    with pytest.raises(ClusterError, match="task square 7 has failed 1 times"):
        list(run_tasks(full_disk, [7], name=named))


def test_an_error_of_the_input_is_not_tried_again(tasks_here: Cluster) -> None:
    with pytest.raises(ValueError, match="no 3"):
        list(run_tasks(refused, [3], name=named))
    assert len(tasks_here.submitted) == 1


def test_tasks_ask_for_a_cpu_and_memory(tasks_here: Cluster) -> None:
    list(run_tasks(squared, [1], name=named, memory=1000))
    expected = {"name": "square 1", "num_cpus": 1, "memory": 1000, "max_retries": tasks.RETRIES}
    assert tasks_here.submitted == [{**expected, "scheduling_strategy": "SPREAD"}]


def died_at_first(log: Path, number: int) -> int:
    """Its worker dies the first time that it runs."""
    if not (log / str(number)).exists():
        (log / str(number)).touch()
        raise WorkerDiedError
    return number


def died(_: int) -> None:
    raise WorkerDiedError


def test_a_killed_worker_costs_its_task_only(tasks_here: Cluster, tmp_path: Path) -> None:
    done = list(run_tasks(partial(died_at_first, tmp_path), range(3), name=named))
    assert sorted(done) == [(0, 0), (1, 1), (2, 2)]
    with pytest.raises(
        ClusterError,
        match=r"task square 5 failed repeatedly, .*: the worker died\. .*memory",
    ):
        list(run_tasks(died, [5], name=named))


def test_a_task_that_cannot_begin_is_named(
    tasks_here: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ImportError("no module of this name")

    monkeypatch.setattr(tasks, "_task_place", broken)
    with pytest.raises(
        ClusterError,
        match=r"task square 2 cannot run: no module of this name\. The same versions of",
    ):
        list(run_tasks(squared, [2], name=named))


def test_tasks_end_when_nobody_wants_them(tasks_here: Cluster) -> None:
    results = run_tasks(squared, range(100), name=named)
    next(results)
    in_flight = len(tasks_here.submitted) - 1
    results.close()
    assert tasks_here.cancelled == in_flight >= 4


def test_tasks_that_no_node_has_room_for_are_told(
    tasks_here: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    results = run_tasks(squared, [], name=named, memory=1 << 60)
    assert list(results) == []
    assert "no node of the Ray cluster has the CPU and the 1152921504.6 GB of memory" in caplog.text


def test_which_errors_are_of_a_machine() -> None:
    wrapped = PackError("cannot write")
    wrapped.__cause__ = OSError(5, "Input/output error")
    assert is_of_machine(wrapped)
    assert is_of_machine(MemoryError())
    wrapped.__cause__ = RequestError(Failure("network", "no connection"))
    assert is_of_machine(wrapped)
    # A wrong password is wrong everywhere.
    wrapped.__cause__ = RequestError(Failure("denied", "HTTP 403 Forbidden", 403))
    assert not is_of_machine(wrapped)
    assert not is_of_machine(PackError("the source has changed"))


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'fastpipe-loader\[ray\]'"), session():
        pass


def test_a_connection_of_the_program_is_used_and_stays(tasks_here: Cluster) -> None:
    tasks_here.init(address="10.0.0.1:6379")
    with session() as cpus:
        assert cpus == 2
    assert tasks_here.connected == {"address": "10.0.0.1:6379"}
    with pytest.raises(ConfigError, match=r"^workers: "), session(workers=2):
        pass


def test_a_cluster_of_this_machine_is_started_and_ended(tasks_here: Cluster) -> None:
    quiet = {"log_to_driver": False, "logging_level": "error"}
    for address in (None, "", "local"):
        with session(address, workers=3) as cpus:
            assert cpus == 2
            options = tasks_here.connected
            assert options == {
                "address": "local",
                **quiet,
                "num_cpus": 3,
                "object_store_memory": 128 << 20,
            }
        assert not tasks_here.is_initialized()
    with session("auto"):
        assert tasks_here.connected == {"address": "auto", **quiet}
    with pytest.raises(ConfigError, match=r"^workers: "), session("auto", workers=2):
        pass


class Nobody:
    """Ray where there is no cluster."""

    @staticmethod
    def is_initialized() -> bool:
        return False

    @staticmethod
    def init(**_: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance")


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "import_ray", lambda: Nobody)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def assert_no_cluster(address: str | None, words: str) -> None:
    with pytest.raises(ClusterError, match=words), session(address):
        pass


def test_an_address_without_a_cluster_says_how_to_start_one(nobody: None) -> None:
    assert_no_cluster("auto", r"--address auto: Could not find .* Start one")


def test_an_address_that_does_not_answer_is_told_soon(
    nobody: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Ray is asked, which tries for minutes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"  # nobody listens
        assert_no_cluster(address, rf"at --address {address}: .*refused.*leave out --address")
        monkeypatch.setenv("RAY_ADDRESS", address)
        for given in (None, "auto"):
            assert_no_cluster(given, rf"at RAY_ADDRESS={address}: .*refused.*unset RAY_ADDRESS")


def test_a_cluster_that_refuses_is_not_said_to_be_absent(nobody: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert_no_cluster(address, rf"answers at --address {address}: .*RAY_AUTH_MODE=token")
