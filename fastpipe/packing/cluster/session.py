"""An address -> a connection to a Ray cluster, or to one of this machine that is started for it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastpipe.errors import ClusterError, ConfigError
from fastpipe.errors.checks import choice
from fastpipe.machine.cpus import granted_cpus

if TYPE_CHECKING:
    from types import ModuleType

THREADS, RAY = "threads", "ray"  # what long work runs on
_HOST_AND_PORT = re.compile(r"(?:ray://)?\[?([^\[\]/]+?)\]?:(\d+)")
_ANSWER_S = 10.0
_STORE_BYTES = 128 << 20  # of Ray's object store where we start Ray: tasks hand on names, sizes and hashes


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
            answers = _answers(address or "local")
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as problem:
            raise ClusterError(_unreachable(address, named, problem, answers=answers)) from problem
    try:
        yield round(ray.cluster_resources().get("CPU", 0))
    finally:
        if not connected:
            ray.shutdown()


def _answers(address: str) -> bool:
    """Whether somebody answers at HOST:PORT; False: it is none; OSError: nobody does. Ray would try for minutes."""
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None:
        return False
    socket.create_connection((found[1], int(found[2])), timeout=_ANSWER_S).close()
    return True


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
