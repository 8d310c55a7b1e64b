"""A Ray cluster of this machine for all tests of a session, with several nodes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from support.checkout import ROOT
from support.running.soak import long_form

STORE_BYTES = 80 << 20
# For Ray: it reports nothing, and its workers do not stand behind all other programs of a busy machine.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


def started(*cpus: int) -> Any:
    """A cluster with a node for each number of CPUs; to be shut down. Its first node is its head."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        for number in cpus:
            cluster.add_node(
                num_cpus=number, object_store_memory=STORE_BYTES, include_dashboard=False
            )
    return cluster


def environment() -> dict[str, str]:
    """Variables for programs that use Ray: its workers find the modules of tests."""
    paths = [str(ROOT / "tests"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), **QUIET}


@pytest.fixture(scope="session")
def ray_nodes() -> Iterator[Any]:
    """The cluster: two workers on two nodes; in `make soak` eight on four."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = started(*((2, 2, 2, 2) if long_form() else (1, 1)))
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def ray_cluster(ray_nodes: Any) -> Iterator[Any]:
    """The same, with this process connected to it."""
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address=ray_nodes.address, log_to_driver=False, logging_level="error")
    yield ray_nodes
    ray.shutdown()
