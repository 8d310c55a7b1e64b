"""What fastpipe uses of Ray, in this process: a cluster of two nodes whose tasks run when somebody waits for them.

What a task gets and gives is pickled, and the task that was submitted last runs first, as may be on a cluster. Real
clusters are in tests/long/ray.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

NODES = ("node-a", "node-b")
_OTHER_NODES = "ray.io/node-id"


class RayError(Exception):
    """Ray's errors."""


class RayTaskError(RayError):
    """An error that a task raised."""


class WorkerDiedError(BaseException):
    """A task raises this as if its worker were killed: nothing catches it there."""


@dataclass(eq=False)
class Reference:
    """A value in the cluster, or the result of a task that has not run yet."""

    value: bytes = b""
    problem: Exception | None = None
    run: Callable[[], None] | None = None


@dataclass
class Task:
    """A function that can be submitted."""

    cluster: Cluster
    function: Callable[..., Any]
    how: dict[str, Any] = field(default_factory=dict)

    def options(self, **how: Any) -> Task:
        return Task(self.cluster, self.function, how)

    def remote(self, *arguments: Any) -> Reference:
        self.cluster.submitted.append(self.how)
        given = pickle.dumps((self.function, [_resolved(each) for each in arguments]))
        reference = Reference()
        reference.run = lambda: self._run(given, reference)
        return reference

    def _run(self, given: bytes, reference: Reference) -> None:
        for _ in range(1 + self.how["max_retries"]):
            self.cluster.node = self._node()
            try:
                function, arguments = pickle.loads(given)  # noqa: S301 (our own)
                reference.value = pickle.dumps(function(*arguments))
            except WorkerDiedError:
                reference.problem = RayError("the worker died")
            except Exception as problem:
                reference.problem = RayTaskError(str(problem))
                return
            else:
                reference.problem = None
                return
            finally:
                self.cluster.node = ""

    def _node(self) -> str:
        """The next node, but for those that the selector leaves out."""
        self.cluster.turn += 1
        left_out = self.how.get("label_selector", {}).get(_OTHER_NODES, "")
        nodes = [node for node in NODES if node not in left_out]
        return nodes[self.cluster.turn % len(nodes)]


def _resolved(argument: Any) -> Any:
    return pickle.loads(argument.value) if isinstance(argument, Reference) else argument  # noqa: S301 (our own)


class Cluster:
    """Stands for the module `ray`.

    Attributes:
        connected: the options of `init`; None: not connected.
        submitted: the options of all tasks so far.
        cancelled: how many tasks were.
        node: that runs the task which runs now; "": this is not in a task.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
    util = SimpleNamespace(get_node_ip_address=lambda: "10.0.0.1")

    def __init__(self) -> None:
        self.connected: dict[str, Any] | None = None
        self.submitted: list[dict[str, Any]] = []
        self.cancelled = 0
        self.node = ""
        self.turn = 0

    def is_initialized(self) -> bool:
        return self.connected is not None

    def init(self, **options: Any) -> None:
        self.connected = options

    def shutdown(self) -> None:
        self.connected = None

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(len(NODES))}

    def nodes(self) -> list[dict[str, Any]]:
        has = {"CPU": 1.0, "memory": 4e9}
        return [{"Alive": True, "NodeID": node, "Resources": has} for node in NODES]

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: self.node)

    def put(self, value: Any) -> Reference:
        return Reference(pickle.dumps(value))

    def remote(self, function: Callable[..., Any]) -> Task:
        return Task(self, function)

    def wait(
        self, references: Sequence[Reference], *, num_returns: int, timeout: float
    ) -> tuple[list[Any], list[Any]]:
        """Runs as many tasks as are waited for, the last ones first."""
        done = list(references)[::-1][:num_returns]
        for each in done:
            if each.run is not None:
                each.run()
                each.run = None
        return done, [each for each in references if each not in done]

    def get(self, reference: Reference) -> Any:
        if reference.problem is not None:
            raise reference.problem
        return pickle.loads(reference.value)  # noqa: S301 (our own)

    def cancel(self, reference: Reference, *, force: bool) -> None:
        assert force
        self.cancelled += reference.run is not None
        reference.run = None


@pytest.fixture
def tasks_here(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Ray is this."""
    cluster = Cluster()
    monkeypatch.setitem(sys.modules, "ray", cluster)  # type: ignore[arg-type]
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", os.environ.get("RAY_USAGE_STATS_ENABLED", "0"))
    return cluster
