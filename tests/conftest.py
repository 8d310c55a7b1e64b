"""The hooks and fixtures of all tests. What they do stands in tests/support."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings
from support.checkout import ROOT, TESTS
from support.datasets.shared import (  # noqa: F401 (fixtures)
    copied,
    fielded,
    flat,
    large,
    many_shards,
    packed_photos,
    photos,
    textured,
    thousand,
    values,
)
from support.faults.packs import place, programs  # noqa: F401 (fixtures)
from support.ray.ray_cluster import ray_cluster, ray_nodes  # noqa: F401 (fixtures)
from support.remote.cases import (  # noqa: F401 (fixtures)
    local_digests,
    open_remote,
    quick,
    range_server,
    remote_bytes,
    remote_packed,
)
from support.remote.s3 import bucket, s3_server  # noqa: F401 (fixtures)
from support.running.closing import add_options, watch_the_end
from support.running.cost import (  # noqa: F401 (hooks)
    pytest_runtest_call,
    pytest_runtest_protocol,
    pytest_runtest_setup,
    watch_cost,
)
from support.running.soak import keep_faults, pytest_terminal_summary, tried  # noqa: F401 (a hook and a fixture)
from support.running.workers import forget_terminal_size, worker_count

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

# The programs that tests start find tests/support, too.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
)

# The programs of tests find fastpipe's byte code, as users do, for whom pip has written it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell starts what is to run in the background with Ctrl-C ignored, and the programs of tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run; no deadline, since the machine may be busy.
settings.register_profile(
    "fastpipe",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fastpipe")


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """A worker of pytest-xdist has a thread of its own: Python 3.12 would warn of every fork in it."""
    watch_the_end(config)
    watch_cost(config)
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.addinivalue_line(
            "filterwarnings", "ignore:This process .* is multi-threaded:DeprecationWarning"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """The workers of `pytest -n auto`."""
    return worker_count()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    forget_terminal_size()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `gpu` are skipped where there is none; `make soak` keeps the tests of faults."""
    import torch

    keep_faults(config, items)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(autouse=True, scope="session")
def no_syncs() -> Iterator[None]:
    """What is packed in this process need not last through a power cut: thousands of packs would wait for the disk.

    The programs that tests start sync as ever, and those of faults/ are tried at each of these calls.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread_beside_others() -> None:
    """The threads of torch in several workers would wait for CPUs more than they work."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        import torch

        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def new_program() -> None:
    """What the test before has trained and evaluated says nothing of the loaders of this one."""
    if "fastpipe.loading.loader" in sys.modules:
        from support.programs.habits import forget_the_program

        forget_the_program()


@pytest.fixture
def warned_anew() -> None:
    """As in a new process: each warning comes once."""
    from fastpipe import warnings_once
    from fastpipe.loading import optimizer_steps

    warnings_once.forget_all()
    optimizer_steps.forget_looks()
    # It looks at all objects of the process.
    warnings_once.remember("begun")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What fastpipe logs in this test."""
    caplog.set_level(logging.WARNING, "fastpipe")
    caplog.set_level(logging.WARNING, "fastpipe.pack")
    return caplog


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """As pytest's, three folders deeper.

    Packing looks for annotations in the three folders above a source. Right in pytest's folder it
    would find those of other tests.
    """
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(autouse=True, scope="session")
def own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Scans of sources that are not packed are kept there, and not in the user's."""
    os.environ["FASTPIPE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """torch works on one thread: on small images, threads wait for one another longer than they work."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def torchvision() -> ModuleType:
    """torchvision, of which maybe only the Python parts work: its compiled ones are built for the usual torch alone."""
    from bench.peers.import_torchvision import torchvision

    return torchvision
