"""Work on several machines by Ray: an address -> a connection to a cluster, or to one of this machine that is started
for it; a function and many items -> the results of tasks, in the order in which they end.

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
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from fastpipe.errors import ClusterError, ConfigError, choice
from fastpipe.machine.cpus import granted_cpus

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOG = logging.getLogger("fastpipe")

THREADS, RAY = "threads", "ray"  # what long work runs on
_HOST_AND_PORT = re.compile(r"(?:ray://)?\[?([^\[\]/]+?)\]?:(\d+)")
_ANSWER_S = 10.0
_STORE_BYTES = 128 << 20  # of Ray's object store where we start Ray: tasks hand on names, sizes and hashes

RETRIES = 4
_TASKS_PER_CPU = 2  # submitted for each task that can run: the next one is there when one ends
_LEAST_IN_FLIGHT = 4
_LOOK_EVERY_S = 1.0  # at Ctrl-C
_CANCELS = 5
_COUNT_EVERY_S = 5.0  # the CPUs of the cluster, which may grow


def on_ray(executor: str, address: str | None) -> bool:
    """Whether an `executor` is a Ray cluster; ConfigError: it is unknown, or an address needs one."""
    if choice("--on", executor, (THREADS, RAY)) == RAY:
        return True
    if address is not None:
        raise ConfigError(f'--address {address}: there is a cluster only with --on ray (executor="ray")')
    return False


def import_ray() -> ModuleType:
    """Ray; ConfigError: it is not installed."""
    try:
        import ray
    except ImportError as problem:
        raise ConfigError(
            f"running on a cluster needs Ray ({problem}); install it: pip install 'fastpipe[ray]'"
        ) from problem
    return ray


@contextlib.contextmanager
def session(address: str | None = None, *, workers: int | None = None) -> Iterator[int]:
    """Connects to Ray as `fastpipe.pack` says it, and gives its CPUs; a connection that is there is used, and stays.

    `workers` is how many tasks run at a time on a cluster that is started here; for another one it is a ConfigError.
    """
    ray = import_ray()
    connected = ray.is_initialized()
    named = f"--address {address}"
    if address in (None, "", "auto") and os.environ.get("RAY_ADDRESS"):  # which Ray takes for "auto", too
        address = os.environ["RAY_ADDRESS"]
        named = f"RAY_ADDRESS={address}"
    address = address or None
    ours = not connected and address in (None, "local")
    if workers is not None and not ours:
        raise ConfigError(
            "--workers: on a Ray cluster each task asks for its CPUs, and Ray runs as many as there is room for; "
            "leave it out"
        )
    if not connected:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody without being asked
        options: dict[str, Any] = {"address": address or "local", "log_to_driver": False, "logging_level": "error"}
        if ours:
            options |= {"num_cpus": workers or granted_cpus(), "object_store_memory": _STORE_BYTES}
        answers = False
        try:
            if found := _HOST_AND_PORT.fullmatch(address or ""):  # where nobody answers, Ray would try for minutes
                socket.create_connection((found[1], int(found[2])), timeout=_ANSWER_S).close()
                answers = True
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as problem:
            raise ClusterError(_unreachable(address, named, problem, answers=answers)) from problem
    try:
        yield round(ray.cluster_resources().get("CPU", 0))
    finally:
        if not connected:
            ray.shutdown()


def _unreachable(address: str | None, named: str, problem: Exception, *, answers: bool) -> str:
    said = " ".join(str(problem).split())[:300]
    if address in (None, "local"):
        return f"Ray cannot be started on this machine: {said}. Its logs are in /tmp/ray/session_latest/logs"
    if answers:
        return (
            f"Ray cannot use what answers at {named}: {said}. This machine needs the same versions of Ray and Python. "
            "If the cluster asks for a token, as new versions of Ray do, set RAY_AUTH_MODE=token, and copy "
            "~/.ray/auth_token from the machine of ray start --head"
        )
    instead = "leave out --address" if named.startswith("--") else "unset RAY_ADDRESS"
    return (
        f"there is no Ray cluster at {named}: {said}. Start one (ray start --head; on other machines "
        f"ray start --address=HOST:6379), or {instead} to use this machine alone"
    )


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
    cause = problem.__cause__
    return isinstance(problem, (OSError, MemoryError)) or (cause is not None and is_of_machine(cause))


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
