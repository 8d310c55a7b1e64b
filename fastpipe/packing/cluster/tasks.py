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
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from fastpipe.errors import ClusterError
from fastpipe.packing.cluster.session import import_ray

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOG = logging.getLogger("fastpipe")

RETRIES = 4
_TASKS_PER_CPU = 2  # submitted for each task that can run: the next one is there when one ends
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


def run_tasks(
    function: Callable[[Item], Result], items: Iterable[Item], *, name: Callable[[Item], str], memory: int = 0
) -> Iterator[tuple[Item, Result]]:
    """Calls a function with each item, in tasks of the cluster that this process is connected to. Note [tasks]

    Workers know the function by its name, or as a partial of such a one. At Ctrl-C, an error or a close all tasks are
    cancelled. ClusterError: a task has failed for the machine's reason more than RETRIES times. What it raises for
    another reason is raised here.
    """
    ray = import_ray()
    _all_cpus.cache_clear()  # of a cluster before
    _tell_if_too_large(ray.nodes(), memory)
    shared = ray.put(function)
    remote = ray.remote(_attempt)
    waiting, running = iter(items), dict[Any, tuple[Item, list[Ran]]]()
    asked = {"num_cpus": 1, "memory": memory or None, "max_retries": RETRIES}

    def submit(item: Item, failed_on: list[Ran]) -> None:
        options = {"name": name(item), **asked, **_where(ray, failed_on)}
        running[remote.options(**options).remote(shared, item)] = item, failed_on

    def fill() -> None:
        as_many = round(_TASKS_PER_CPU * _all_cpus(time.monotonic() // _COUNT_EVERY_S))
        for item in itertools.islice(waiting, max(_LEAST_IN_FLIGHT - len(running), as_many - len(running), 0)):
            submit(item, [])

    try:
        fill()
        while running:
            done, _ = ray.wait(list(running), num_returns=1, timeout=_LOOK_EVERY_S)
            for each in done:
                item, failed_on = running.pop(each)
                ended = _result(ray, each, name(item))
                if ended.problem is None:
                    fill()
                    yield item, ended.result
                    continue
                if not ended.of_machine:
                    raise ended.problem
                failed_on.append(ended.ran)
                if len(failed_on) > RETRIES:
                    raise ClusterError(_given_up(name(item), failed_on, ended.problem)) from ended.problem
                submit(item, failed_on)
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


def _tell_if_too_large(nodes: list[dict[str, Any]], memory: int) -> None:
    """Ray lets a task wait for ever that no node has room for: one may come."""
    has = [node["Resources"] for node in nodes if node["Alive"]]
    if not any(each.get("CPU", 0) >= 1 and each.get("memory", 0) >= memory for each in has):
        _LOG.warning(
            "no node of the Ray cluster has the CPU and the %.1f GB of memory of a task: tasks wait for such a node",
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
    node = ray.get_runtime_context().get_node_id()
    return Ran(node, ray.util.get_node_ip_address(), os.getpid(), log.partition(" ")[0])


def _where(ray: Any, failed_on: list[Ran]) -> dict[str, Any]:
    """On any node; after a failure on another one, if there is one."""
    failed = {place.node for place in failed_on}
    if failed and any(node["Alive"] and node["NodeID"] not in failed for node in ray.nodes()):
        return {"label_selector": {"ray.io/node-id": f"!in({','.join(sorted(failed))})"}}
    return {"scheduling_strategy": "SPREAD"}


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


@lru_cache(maxsize=1)
def _all_cpus(_when: float) -> float:
    """Of the cluster, counted now and then, for it may grow."""
    return float(import_ray().cluster_resources().get("CPU", 0))
