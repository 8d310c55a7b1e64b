"""Work on several machines by Ray: a connection to a cluster; a function and many items -> the
results of tasks.

Note [tasks]
Ray schedules tasks and spreads them over the nodes. If a worker or a node dies, Ray runs its tasks
again (`max_retries`). So a task may run twice, even at the same time, and must be idempotent. Only
one thing is added here: a task that fails for a reason of its machine, such as a full disk, is
submitted again for another node. Results are small, as bytes go through files.
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

from fastpipe.distribution import install_extra
from fastpipe.errors import ClusterError, ConfigError, choice, in_one_line
from fastpipe.machine.cpus import count_granted_cpus
from fastpipe.store.remote.retry import RequestError

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOG = logging.getLogger("fastpipe")

# What long work runs on.
THREADS = "threads"
RAY = "ray"

_HOST_AND_PORT = re.compile(r"(?:ray://)?\[?([^\[\]/]+?)\]?:(\d+)")
_ANSWER_S = 10.0
# The size of the object store of a Ray that is started here. By default Ray takes 30 % of the
# memory, but tasks return names, sizes and hashes only.
_STORE_BYTES = 128 << 20

# A task runs again at most so many times: by Ray if its worker dies, and by `run_tasks` if it fails
# for a reason of its machine.
RETRIES = 4
# Tasks that are submitted for each task that can run, so that the next one is ready when one ends.
_TASKS_PER_CPU = 2
# A cluster that scales with its queue may begin with no CPU. It has to see some tasks to grow.
_MIN_IN_FLIGHT = 4
# How often the driver looks for Ctrl-C.
_LOOK_EVERY_S = 1.0
# `ray.cancel` is called so many times for each task.
_CANCELS = 5
# How often the CPUs of the cluster are counted, as it may grow.
_COUNT_EVERY_S = 5.0


def on_ray(executor: str, address: str | None) -> bool:
    """Whether an `executor` is a Ray cluster. ConfigError: the options contradict each other."""
    if choice("executor", executor, (THREADS, RAY)) == RAY:
        return True
    if address is not None:
        raise ConfigError(
            'it needs --on ray (executor="ray")',
            option="address",
        )
    return False


def import_ray() -> ModuleType:
    """Ray. ConfigError: it is not installed."""
    try:
        import ray
    except ImportError as problem:
        raise ConfigError(
            f"running on a cluster needs Ray ({problem}); install it: {install_extra('ray')}"
        ) from problem
    return ray


@contextlib.contextmanager
def session(address: str | None = None, *, workers: int | None = None) -> Iterator[int]:
    """Connects to a Ray cluster, and yields the number of its CPUs. A program's own connection is
    used, and stays open.

    Args:
        address: as of `fastpipe.pack`.
        workers: how many tasks run at a time on a cluster that is started here. ConfigError: it is
            another cluster.
    """
    ray = import_ray()
    is_connected = ray.is_initialized()
    shown_address = f"--address {address}"
    # Ray takes the variable for "auto", too.
    if address in (None, "", "auto") and os.environ.get("RAY_ADDRESS"):
        address = os.environ["RAY_ADDRESS"]
        shown_address = f"RAY_ADDRESS={address}"
    address = address or None
    starts_ray = not is_connected and address in (None, "local")
    if workers is not None and not starts_ray:
        raise ConfigError(
            "on a Ray cluster each task asks for its CPUs, and Ray runs as many as there is room "
            "for; leave it out",
            option="workers",
        )
    if not is_connected:
        num_cpus = (workers or count_granted_cpus()) if starts_ray else None
        _connect(ray, address, shown_address, num_cpus)
    try:
        yield round(ray.cluster_resources().get("CPU", 0))
    finally:
        if not is_connected:
            ray.shutdown()


def _connect(
    ray: ModuleType, address: str | None, shown_address: str, num_cpus: int | None
) -> None:
    """Connects to a cluster; with `num_cpus`, starts one of this machine."""
    # Ray reports nothing about this program unless the user wants that.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {
        "address": address or "local",
        "log_to_driver": False,
        "logging_level": "error",
    }
    if num_cpus is not None:
        options["num_cpus"] = num_cpus
        options["object_store_memory"] = _STORE_BYTES
    answers = False
    try:
        host_and_port = _HOST_AND_PORT.fullmatch(address or "")
        if host_and_port:
            # Where nobody answers, Ray would try for minutes.
            socket.create_connection(
                (host_and_port[1], int(host_and_port[2])), timeout=_ANSWER_S
            ).close()
            answers = True
        ray.init(**options)
    except Exception as problem:  # Ray raises errors of many kinds
        raise ClusterError(
            _unreachable_message(address, shown_address, problem, answers=answers)
        ) from problem


def _unreachable_message(
    address: str | None, shown_address: str, problem: Exception, *, answers: bool
) -> str:
    reason = in_one_line(problem, 300)
    if address in (None, "local"):
        return (
            f"Ray cannot be started on this machine: {reason}. Its logs are in "
            "/tmp/ray/session_latest/logs"
        )
    if answers:
        return (
            f"Ray cannot use what answers at {shown_address}: {reason}. This machine needs the "
            "same versions of Ray and Python. If the cluster asks for a token, as new versions of "
            "Ray do, set RAY_AUTH_MODE=token, and copy ~/.ray/auth_token from the machine of ray "
            "start --head"
        )
    alternative = (
        "leave out --address" if shown_address.startswith("--") else "unset RAY_ADDRESS"
    )
    return (
        f"there is no Ray cluster at {shown_address}: {reason}. Start one (ray start --head; on "
        f"other machines ray start --address=HOST:6379), or {alternative} to use this machine alone"
    )


class TaskPlace(NamedTuple):
    """Where a task ran; `log` is the file on that machine to which its process prints."""

    node: str
    address: str
    pid: int
    log: str


class _TaskEnd(NamedTuple):
    """What a task returns: its result, or the problem, and whether that is one of its machine."""

    result: Any
    problem: Exception | None
    of_machine: bool
    place: TaskPlace


def run_tasks(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    name: Callable[[Item], str],
    memory: int = 0,
) -> Iterator[tuple[Item, Result]]:
    """Calls a function with each item, in tasks of the cluster that this process is connected to.
    Note [tasks]

    If the caller stops, all tasks are cancelled.

    Args:
        function: workers import it by its name; or a partial of such a function.
        items: are taken as there is room for their tasks.
        name: of a task, for Ray's dashboard and for errors.
        memory: bytes that a task needs.

    Yields:
        Items and their results, in the order in which the tasks end.

    Raises:
        ClusterError: a task has failed for a reason of the machine more than RETRIES times.
        Exception: a task has raised it for another reason.
    """
    ray = import_ray()
    _cluster_cpus.cache_clear()  # this may be another cluster than before
    _warn_if_no_node_fits(ray.nodes(), memory)
    # The function may be a partial with much data. It is sent once, and not with each task.
    shared_function = ray.put(function)
    remote_attempt = ray.remote(_attempt)
    waiting = iter(items)
    # The item of each task, and where earlier tasks of the same item have failed.
    running: dict[Any, tuple[Item, list[TaskPlace]]] = {}

    def submit(item: Item, failed_at: list[TaskPlace]) -> None:
        options = {
            "name": name(item),
            "num_cpus": 1,
            "memory": memory or None,
            "max_retries": RETRIES,
            **_placement(ray, failed_at),
        }
        running[remote_attempt.options(**options).remote(shared_function, item)] = (
            item,
            failed_at,
        )

    def submit_more() -> None:
        cpus = _cluster_cpus(time.monotonic() // _COUNT_EVERY_S)
        wanted = max(round(_TASKS_PER_CPU * cpus), _MIN_IN_FLIGHT)
        for item in itertools.islice(waiting, max(wanted - len(running), 0)):
            submit(item, [])

    try:
        submit_more()
        while running:
            done, _ = ray.wait(list(running), num_returns=1, timeout=_LOOK_EVERY_S)
            for reference in done:
                item, failed_at = running.pop(reference)
                end = _get_end(ray, reference, name(item))
                if end.problem is None:
                    submit_more()  # before the caller works on the result
                    yield item, end.result
                    continue
                if not end.of_machine:
                    raise end.problem
                failed_at.append(end.place)
                if len(failed_at) > RETRIES:
                    raise ClusterError(
                        _failed_message(name(item), failed_at, end.problem)
                    ) from end.problem
                submit(item, failed_at)
            # The cluster may have more CPUs than at the last look.
            submit_more()
    finally:
        with contextlib.suppress(Exception):
            # The tasks have just ended, or the cluster is gone.
            _cancel(ray, list(running))


def _cancel(ray: Any, running: list[Any]) -> None:
    """Ends tasks. A task whose worker is just being started may miss the first call."""
    for _ in range(_CANCELS):
        for reference in running:
            ray.cancel(reference, force=True)
        if running:
            _, running = ray.wait(
                running, num_returns=len(running), timeout=_LOOK_EVERY_S
            )


def _warn_if_no_node_fits(nodes: list[dict[str, Any]], memory: int) -> None:
    """Ray queues a task until a node has room for it; such a node may still join."""
    for node in nodes:
        resources = node["Resources"]
        if (
            node["Alive"]
            and resources.get("CPU", 0) >= 1
            and resources.get("memory", 0) >= memory
        ):
            return
    _LOG.warning(
        "no node of the Ray cluster has the CPU and the %.1f GB of memory of a task: tasks wait "
        "for such a node",
        memory / 1e9,
    )


def is_of_machine(problem: BaseException) -> bool:
    """Whether an error is of a machine's disk, network or memory: another one may have none."""
    if isinstance(problem, RequestError):
        return problem.is_of_machine
    if isinstance(problem, (OSError, MemoryError)):
        return True
    # Errors of fastpipe for users are raised from the error of the system.
    return problem.__cause__ is not None and is_of_machine(problem.__cause__)


def _attempt(function: Callable[[Any], Any], item: Any) -> _TaskEnd:
    """Runs in a worker.

    An error is returned with the place of the task. Raised, it would look like one of Ray.
    """
    try:
        return _TaskEnd(function(item), None, False, _task_place())
    except Exception as problem:
        return _TaskEnd(None, problem, is_of_machine(problem), _task_place())


def _task_place() -> TaskPlace:
    ray = import_ray()
    log = ""
    with contextlib.suppress(OSError):  # there is no /proc on macOS
        # Ray sends the standard error of a worker there.
        log = os.readlink("/proc/self/fd/2")
    node = ray.get_runtime_context().get_node_id()
    return TaskPlace(
        node, ray.util.get_node_ip_address(), os.getpid(), log.partition(" ")[0]
    )


def _placement(ray: Any, failed_at: list[TaskPlace]) -> dict[str, Any]:
    """Ray's options for any node; after a failure, for another node if there is one."""
    # A full disk or a broken network stays so for the next try on the same node.
    failed_nodes = {place.node for place in failed_at}
    if failed_nodes and any(
        node["Alive"] and node["NodeID"] not in failed_nodes for node in ray.nodes()
    ):
        return {
            "label_selector": {
                "ray.io/node-id": f"!in({','.join(sorted(failed_nodes))})"
            }
        }
    return {"scheduling_strategy": "SPREAD"}


def _get_end(ray: Any, reference: Any, name: str) -> _TaskEnd:
    try:
        end: _TaskEnd = ray.get(reference)
    except ray.exceptions.RayError as problem:
        reason = in_one_line(problem, 600)
        # `_attempt` returns the errors of our functions, so that this one comes from Ray, before or
        # after it.
        if isinstance(problem, ray.exceptions.RayTaskError):
            raise ClusterError(
                f"task {name} cannot run: {reason}. The same versions of fastpipe, Python and Ray "
                "must be installed on all nodes"
            ) from problem
        raise ClusterError(
            f"task {name} failed repeatedly, each time with its worker: {reason}. The logs "
            "of that machine are in /tmp/ray/session_latest/logs; memory is the usual cause. Run "
            "the same command again: it continues there"
        ) from problem
    return end


def _failed_message(name: str, places: list[TaskPlace], problem: Exception) -> str:
    last = places[-1]
    addresses = dict.fromkeys(place.address for place in places)
    machines = ", ".join(addresses)
    return (
        f"task {name} has failed {len(places)} times (on {machines}), last on node "
        f"{last.node[:12]} at {last.address}, process {last.pid}, log {last.log or 'unknown'}: "
        f"{problem}"
    )


@lru_cache(maxsize=1)
def _cluster_cpus(_period: float) -> float:
    """The CPUs of the cluster. They are counted once in each period, as it may grow."""
    return float(import_ray().cluster_resources().get("CPU", 0))
