"""Where bench.remote_decoder says that the time went."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from bench.cpu_seconds import Seconds, process_seconds, thread_seconds


def _busy(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_threads_count_by_what_they_do() -> None:
    before, ended = thread_seconds(), threading.Event()

    def work() -> None:
        _busy(0.3)
        ended.wait()

    threads = [threading.Thread(target=work, name=f"fastpipe-write_{number}") for number in range(2)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 300
    while (did := thread_seconds()["writing"]).ran < 0.5 and time.monotonic() < deadline:
        time.sleep(0.05)
    ended.set()
    for thread in threads:
        thread.join()
    did = did.since(before.get("writing", Seconds()))
    assert 0.5 <= did.ran < 0.7
    assert did.ran == did.user + did.system
    assert did.queued >= 0
    assert "the training loop" in before


def test_another_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        deadline = time.monotonic() + 300
        while process_seconds(child.pid) < 0.3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()
    assert process_seconds(os.getpid()) > 0
