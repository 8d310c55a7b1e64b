"""The threads that fetch do not interrupt those that decode; Note [fetching interrupts nobody] in store.py."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from remote.range_server import RangeServer

POLICIES = """
    import os, sys, threading
    from pathlib import Path
    import fastpipe

    with fastpipe.loader(sys.argv[1], 32, num_workers=2, size=64, cache_dir=sys.argv[2], cache_limit=0) as loader:
        assert len(list(loader)) > 3
        names = {each.native_id: each.name for each in threading.enumerate()}
        for task in os.scandir("/proc/self/task"):
            name = names.get(int(task.name)) or Path(task.path, "comm").read_text().strip()
            print(name, os.sched_getscheduler(int(task.name)), sep=":")
"""


def test_only_threads_that_fetch_yield(range_server: RangeServer, tmp_path: Path) -> None:
    script = [sys.executable, "-c", textwrap.dedent(POLICIES), range_server.url, str(tmp_path / "cache")]
    out = subprocess.run(script, capture_output=True, text=True, check=True, timeout=120).stdout
    found = [line.rsplit(":", 1) for line in out.splitlines()]
    fetching = {name: int(policy) for name, policy in found if name.startswith(("fastpipe-", "tokio-"))}
    others = {name: int(policy) for name, policy in found if name not in fetching}
    kinds = {name.split("_")[0] for name in fetching}
    assert {"fastpipe-requests", "fastpipe-write", "tokio-rt-worker"} <= kinds
    assert set(fetching.values()) == {os.SCHED_BATCH}
    assert "MainThread" in others
    assert set(others.values()) == {os.sched_getscheduler(0)}


def test_a_container_that_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastpipe.remote.store import Requests

    asked: list[int] = []

    def refuse(pid: int, policy: int, param: object) -> None:
        asked.append(policy)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    requests = Requests()

    async def work() -> int:
        return 7

    assert requests.result(work()) == 7
    assert asked == [os.SCHED_BATCH]
    requests.close()
