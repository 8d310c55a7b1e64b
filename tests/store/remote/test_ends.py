"""Programs that end while requests are under way. tests/long/store/test_remote_ends.py has many more ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.programs import warm
from support.programs.scripts import run_script
from support.remote.range_server import RangeServer

HANG_S = 300


@pytest.mark.new_python("it ends as a program does, and does not import torch")
def test_answers_come_while_the_interpreter_finalizes(remote_packed: Path) -> None:
    """A thread of obstore's runtime that comes for the GIL then would abort the process: 5 of 6 programs ended so."""
    code = """
        import sys, time
        from fastpipe.dataset.format.folder import Url
        from fastpipe.store.remote.objects import Objects
        from fastpipe.store.remote.options import RemoteOptions

        objects = Objects(Url(sys.argv[1]), RemoteOptions())
        for byte in range(1000):
            objects.start(objects.get("index.npy", byte, byte + 1))
        time.sleep(0.1)
        sys.exit(3)
    """
    for _ in range(2):
        with RangeServer(remote_packed, latency_s=0.001) as server:
            done = run_script(code, server.url, timeout_s=HANG_S)
            answered = len(server.requests)
        assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
        assert answered < 1000, "none was under way"


def test_reading_when_the_program_has_ended_is_refused(
    range_server: RangeServer, tmp_path: Path
) -> None:
    code = """
        import atexit, sys
        import fastpipe

        def last():
            for read in (lambda: next(batches), lambda: data[0], lambda: fastpipe.open(URL)):
                try:
                    read()
                except fastpipe.EngineError as problem:
                    print(str(problem).split(":")[0])

        atexit.register(last)
        URL = sys.argv[1]
        data = fastpipe.open(URL, cache_dir=sys.argv[2], cache_limit=0)
        loader = fastpipe.loader(data, 16, size=64)
        batches = iter(loader)
        next(batches)
    """
    done = warm.run_script(code, range_server.url, tmp_path, timeout_s=HANG_S)
    refusal = "the program is ending, and nothing is fetched by URL any more\n"
    closed = "this loader is closed; create a new loader with fastpipe.loader(...)\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, closed + refusal * 2, "")
