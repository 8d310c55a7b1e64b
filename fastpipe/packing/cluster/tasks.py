"""A function and many items -> the results of Ray tasks, in the order in which they end.

Note [tasks]
Ray schedules tasks, spreads them over the nodes, and runs those again whose worker or node has died (`max_retries`). So
a task may run twice, even at the same time, and must be idempotent. One thing is ours: a task that fails for the
machine's reason, such as a full disk, is submitted again for another node. Results are small: bytes go through files.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from fastpipe.errors import ClusterError
from fastpipe.packing.cluster.session import import_ray

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOG = logging.getLogger("fastpipe")

RETRIES = 4
_TASKS_PER_SLOT = 2  # submitted for each task that can run: the next one is there when one ends
_LEAST_IN_FLIGHT = 4
_LOOK_EVERY_S = 1.0  # at Ctrl-C
_CANCELS = 5
_COUNT_EVERY_S = 5.0  # the CPUs of the cluster, which may grow


class Ran(NamedTuple):
    """Where a task ran; `log` is the file on that machine with what the process has printed."""

    node: str
    address: str
    pid: int
    log: str


class _Ended(NamedTuple):
    """What a task gives back: its result, or why there is none."""

    result: Any
    problem: Exception | None
    of_machine: bool
    ran: Ran


@dataclass
class _Task(Generic[Item]):
    item: Item
    failed_on: list[Ran] = field(default_factory=list)


def run_tasks(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    name: Callable[[Item], str],
    cpus: float = 1,
    memory: int = 0,
    in_flight: int | None = None,
    retries: int = RETRIES,
) -> Iterator[tuple[Item, Result]]:
    """Calls a function with each item, in tasks of the cluster that this process is connected to. Note [tasks]

    Workers know the function by its name, or as a partial of such a one. A task needs `cpus` and `memory` bytes;
    `in_flight` tasks are submitted at a time, None: twice as many as can run. At Ctrl-C, at an error and if the
    generator is closed, all tasks are cancelled; running ones are killed. ClusterError: a task has failed for the
    machine's reason more often than `retries` says. What a task raises for another reason is raised here.
    """
    ray = import_ray()
    _tell_if_too_large(ray.nodes(), cpus, memory)
    shared = ray.put(function)
    remote = ray.remote(_attempt)
    waiting, running = iter(items), dict[Any, _Task[Item]]()
    width = _Width(ray, cpus, in_flight)

    def submit(task: _Task[Item]) -> None:
        options: dict[str, Any] = {
            "name": name(task.item),
            "num_cpus": cpus,
            "memory": memory or None,
            "max_retries": retries,
            **_where(ray, task),
        }
        running[remote.options(**options).remote(shared, task.item)] = task

    def fill() -> None:
        for item in itertools.islice(waiting, max(width.now() - len(running), 0)):
            submit(_Task(item))

    try:
        fill()
        while running:
            done, _ = ray.wait(list(running), num_returns=1, timeout=_LOOK_EVERY_S)
            for each in done:
                task = running.pop(each)
                ended = _result(ray, each, name(task.item))
                if ended.problem is None:
                    fill()
                    yield task.item, ended.result
                    continue
                if not ended.of_machine:
                    raise ended.problem
                task.failed_on.append(ended.ran)
                if len(task.failed_on) > retries:
                    raise ClusterError(_given_up(name(task.item), task.failed_on, ended.problem)) from ended.problem
                submit(task)
            fill()
    finally:
        with contextlib.suppress(Exception):  # they have just ended, or the cluster is gone
            _cancel(ray, list(running))


def _cancel(ray: Any, running: list[Any]) -> None:
    """Ends tasks. One whose worker is just being started may not hear it the first time."""
    for _ in range(_CANCELS):
        for each in running:
            ray.cancel(each, force=True)
        if running:
            _, running = ray.wait(running, num_returns=len(running), timeout=_LOOK_EVERY_S)


def _tell_if_too_large(nodes: list[dict[str, Any]], cpus: float, memory: int) -> None:
    """Ray lets a task wait for ever that no node has room for: one may come."""
    has = [node["Resources"] for node in nodes if node["Alive"]]
    if not any(each.get("CPU", 0) >= cpus and each.get("memory", 0) >= memory for each in has):
        _LOG.warning(
            "no node of the Ray cluster has the %g CPUs and %.1f GB of memory of a task: tasks wait for such a node",
            cpus,
            memory / 1e9,
        )


def is_of_machine(problem: BaseException) -> bool:
    """Whether an error is a machine's, of its disk, network or memory; on another one there may be none."""
    seen: BaseException | None = problem
    while seen is not None:
        if isinstance(seen, (OSError, MemoryError)):
            return True
        seen = seen.__cause__
    return False


def _attempt(function: Callable[[Any], Any], item: Any) -> _Ended:
    """Runs in a worker."""
    try:
        return _Ended(function(item), None, False, _ran())
    except Exception as problem:
        return _Ended(None, problem, is_of_machine(problem), _ran())


def _ran() -> Ran:
    ray = import_ray()
    log = ""
    with contextlib.suppress(OSError):
        log = os.readlink("/proc/self/fd/2")  # where Ray sends the worker's standard error
    return Ran(
        ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), os.getpid(), log.partition(" ")[0]
    )


def _where(ray: Any, task: _Task[Any]) -> dict[str, Any]:
    """On any node; after a failure on another one, if there is one."""
    failed = {place.node for place in task.failed_on}
    others = (
        [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] not in failed] if failed else []
    )
    if not others:
        return {"scheduling_strategy": "SPREAD"}
    return {"label_selector": {"ray.io/node-id": f"!in({','.join(sorted(failed))})"}}


def _result(ray: Any, reference: Any, name: str) -> _Ended:
    try:
        ended: _Ended = ray.get(reference)
    except ray.exceptions.RayError as problem:
        said = " ".join(str(problem).split())[:600]
        if isinstance(problem, ray.exceptions.RayTaskError):  # of Ray's own, before or after our code
            raise ClusterError(
                f"task {name} cannot run: {said}. The same versions of fastpipe, Python and Ray must be installed on "
                "all nodes"
            ) from problem
        raise ClusterError(
            f"task {name} was lost again and again, each time with its worker: {said}. The logs of that machine are in "
            "/tmp/ray/session_latest/logs; memory is the usual cause. Run the same command again: it continues there"
        ) from problem
    return ended


def _given_up(name: str, places: list[Ran], problem: Exception) -> str:
    last = places[-1]
    machines = ", ".join(dict.fromkeys(place.address for place in places))
    return (
        f"task {name} has failed {len(places)} times (on {machines}), last on node {last.node[:12]} at {last.address}, "
        f"process {last.pid}, log {last.log or 'unknown'}: {problem}"
    )


class _Width:
    """How many tasks are submitted at a time."""

    def __init__(self, ray: Any, cpus: float, asked: int | None) -> None:
        self._ray, self._cpus, self._asked = ray, cpus, asked
        self._counted_s, self._count = float("-inf"), _LEAST_IN_FLIGHT

    def now(self) -> int:
        if self._asked is not None:
            return self._asked
        if time.monotonic() - self._counted_s >= _COUNT_EVERY_S:
            slots = self._ray.cluster_resources().get("CPU", 0) / max(self._cpus, 1e-3)
            self._count = max(_LEAST_IN_FLIGHT, round(_TASKS_PER_SLOT * slots))
            self._counted_s = time.monotonic()
        return self._count
