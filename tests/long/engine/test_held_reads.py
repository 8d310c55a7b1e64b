"""Programs whose reads take for ever: they say which thread is stuck at what, and they end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.faults.injector import Fault
from support.running.soak import Tried, long_form, times

import fastpipe

HELD_MS = 120_000  # for ever


# A program whose first batch does not come. What it allows a held row at its end, 10 s, is cut short.
STALL = """
import logging, sys
import fastpipe
from fastpipe.engine import engine

engine.PATIENCE_S = 0.2
for waits in (engine.Engine.close, engine.Job.cancel):
    assert waits.__defaults__ == (10.0,)
    waits.__defaults__ = (0.2,)
logging.basicConfig(format="%(message)s")
dataset, timeout_s = sys.argv[1], float(sys.argv[2])
with fastpipe.loader(dataset, 37, size=8, train=False, num_workers=2, stall_timeout=timeout_s) as loader:
    print("begun", flush=True)
    for images, labels in loader:
        print("came", len(images))
"""


def start(dataset: Path, fault: Fault, timeout_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", STALL, str(dataset), str(timeout_s)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=fault.environment(), stdout=pipe, stderr=pipe, text=True)


def ended(program: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output, log and error; long before the held call would end."""
    with program:
        try:
            out, log = program.communicate(timeout=HELD_MS / 2000)
        except subprocess.TimeoutExpired:
            program.kill()
            raise
    return program.returncode, out, log


def test_a_disk_that_never_answers(flat: Path, tried: Tried) -> None:
    """The program gets its error, and ends, with two threads held."""
    index = fastpipe.open(flat).index
    (shard,) = index.shards
    count = times(1, 30)
    for number in range(count):
        call, stage, at = (
            ("open", "opening", 0) if number % 5 == 4 else ("pread", "reading", number)
        )
        fault = Fault(
            under=shard.path, calls=(call,), kind="delay", at=at, number=HELD_MS, each=True
        )
        code, _, said = ended(start(flat, fault, 0.1))
        assert code == 1, said
        log, error = said.split("Traceback", 1)
        assert re.match(r"no batch for \d s: stuck ", log)
        assert log.endswith("still waiting; after 1 s (10 times stall_timeout) there is an error\n")
        assert re.search(r"EngineError: no batch for [1-9]\d* s: stuck ", error)
        for words in (log, error):
            found = re.search(
                rf"stuck {stage} sample (\d+) \(member (\d+-\d+)\) at byte (\d+) of (\S+), for",
                words,
            )
            assert found is not None, words
            path, member, offset = index.where(int(found[1]))
            assert (str(path), member, str(offset)) == (found[4], found[2], found[3])
            assert len(re.findall(rf"thread \d: {stage} sample .*, \d+\.\d s", words)) == 2
            assert re.search(r"machine: \d+ CPUs granted.* of memory available", words)
    tried(
        "an open or a read of a shard takes for ever",
        count,
        "told after stall_timeout with shard, member, byte and each thread's work; after ten times as long an error, "
        "with which the program ends",
    )


def test_a_disk_that_answers_late(flat: Path, tried: Tried) -> None:
    (shard,) = fastpipe.open(flat).index.shards
    count = times(1, 10)
    for number in range(count):
        fault = Fault(under=shard.path, calls=("pread",), kind="delay", at=3 * number, number=1500)
        code, out, log = ended(start(flat, fault, 0.5))
        assert (code, out) == (0, "begun\ncame 37\n")
        assert log.count("no batch for") == 1
        assert "stuck reading sample" in log
    tried("a read takes longer than stall_timeout", count, "told once, and the batch comes")


def test_ctrl_c_while_a_read_never_ends(flat: Path, tried: Tried) -> None:
    (shard,) = fastpipe.open(flat).index.shards
    fault = Fault(under=shard.path, calls=("pread",), kind="delay", at=0, number=HELD_MS, each=True)
    count = times(1, 10)
    for number in range(count):
        program = start(flat, fault, 60)
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        time.sleep(0.3 + 0.05 * number)
        program.send_signal(signal.SIGINT)
        code, _, log = ended(program)
        assert code == -signal.SIGINT
        assert "KeyboardInterrupt" in log
    tried("Ctrl-C while a read takes for ever", count, "the program ends")


# A loop that is left after one batch, with the threads held in the rows of the next two.
DROPPED = """
import sys, time
import fastpipe

loader = fastpipe.loader(sys.argv[1], 5, size=8, train=False, num_workers=2)
batches = iter(loader)
next(batches)
while loader.stats().threads_busy < 2:
    time.sleep(0.01)
started = time.monotonic()
del batches, loader
print(time.monotonic() - started)
"""


@pytest.mark.skipif(not long_form(), reason="waits for 10 s; in make soak")
def test_dropping_a_loader_while_reads_never_end(flat: Path, tried: Tried) -> None:
    (shard,) = fastpipe.open(flat).index.shards
    fault = Fault(under=shard.path, calls=("pread",), kind="delay", at=9, number=HELD_MS, each=True)
    run = subprocess.run(
        [sys.executable, "-c", DROPPED, str(flat)],
        env=fault.environment(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=HELD_MS / 2000,
        check=True,
    )
    assert 9 < float(run.stdout) < 20
    tried(
        "an iterator and its loader dropped while reads take for ever",
        1,
        "10 s are waited; the program ends",
    )
