"""Programs that read a remote dataset: workers of a forkserver, Ctrl-C while nothing comes, and a loader at the end."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

from support.programs.warm import run_script
from support.remote.range_server import Fault, RangeServer
from support.running.patience import in_time

SCRIPT = """
    import sys, torch, fastpipe
    from torch.utils.data import DataLoader
    url, local, cache = sys.argv[1:]

    def main():
        dataset = fastpipe.open(url, cache_dir=cache, cache_limit="10MB")
        batches = DataLoader(dataset, 8, num_workers=2, multiprocessing_context="forkserver")
        expected = fastpipe.open(local)
        for number, (images, labels) in enumerate(batches):
            for row in range(len(labels)):
                image, label = expected[8 * number + row]
                assert label == labels[row] and torch.equal(image, images[row])
        print("same", number + 1)

    if __name__ == "__main__":
        main()
"""


def test_workers_of_a_forkserver(
    remote_packed: Path, range_server: RangeServer, tmp_path: Path
) -> None:
    """Which import the file of the program."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    run_it = f"import runpy, sys; sys.argv[0] = {str(script)!r}; runpy.run_path({str(script)!r}, run_name='__main__')"
    ran = run_script(run_it, range_server.url, remote_packed, tmp_path / "cache", timeout_s=300)
    assert ran.stdout == "same 20\n", ran.stderr


def test_ctrl_c_and_the_watchdog_while_nothing_comes(
    range_server: RangeServer, tmp_path: Path
) -> None:
    range_server.fault = lambda asked: (
        Fault(stall=10, stall_s=300.0) if asked.path.startswith("shard") else None
    )
    script = textwrap.dedent("""
        import sys, time, fastpipe
        loader = fastpipe.loader(fastpipe.open(sys.argv[1], cache_dir=sys.argv[2]), 32, stall_timeout=0.5)
        try:
            next(iter(loader))
        finally:
            loader.close()
            print(time.monotonic(), flush=True)
    """)
    child = subprocess.Popen(
        [sys.executable, "-c", script, range_server.url, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ended = threading.Timer(300.0, child.kill)  # a watchdog that says nothing
    ended.start()
    assert child.stderr is not None
    told = next((line for line in child.stderr if "stuck fetching" in line), "")
    assert f"of {range_server.url}/shard-" in told
    started = time.monotonic()
    child.send_signal(signal.SIGINT)
    closed, said = child.communicate(timeout=300)
    ended.cancel()
    assert in_time(float(closed) - started, 2.0)
    assert "KeyboardInterrupt" in said


def test_a_loader_that_is_closed_at_the_end_of_the_program(
    range_server: RangeServer, tmp_path: Path
) -> None:
    script = """
        import os, sys, time, fastpipe

        class Trainer:
            def __init__(self):
                self.itself = self  # the garbage collector finds it when no other thread runs any more
                self.loader = fastpipe.loader(fastpipe.open(sys.argv[1], cache_dir=sys.argv[2]), 32)
                next(iter(self.loader))

            def __del__(self, write=os.write, clock=time.monotonic):
                started = clock()
                self.loader.close()
                write(1, str(clock() - started).encode())

        Trainer()
    """
    command = [sys.executable, "-c", textwrap.dedent(script), range_server.url, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert in_time(float(done.stdout), 5.0)
    assert "Traceback" not in done.stderr
