"""Programs that load by URL and end, in each way: with their exit code, in time, and no word of their own threads."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.remote.ending_programs import check_ends, programs_that_end
from support.running.soak import Tried, times

# What follows, the signal that comes while it trains, and the exit code.
ENDS: dict[str, tuple[str, int, int]] = {
    "the main module ends": ("loader = train(2{options})", 0, 0),
    "sys.exit": ("loader = train(2{options}); sys.exit(3)", 0, 3),
    "an error": ("loader = train(1{options}); raise KeyError('mine')", 0, 1),
    "Ctrl-C": ("loader = train(1000{options})", signal.SIGINT, -signal.SIGINT),
    "SIGTERM with a handler": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\nloader = train(1000{options})",
        signal.SIGTERM,
        143,
    ),
}

# A child is forked while the parent loads, or afterwards, and ends; then the parent does.
FORK = """
import multiprocessing

def child_ends():
    CHILD_ENDS

def fork():
    child = os.fork()
    if child == 0:
        child_ends()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == CODE

def fork_by_multiprocessing():
    process = multiprocessing.get_context("fork").Process(target=child_ends)
    process.start()
    process.join()
    assert process.exitcode == CODE

fork_once = (fork, fork_by_multiprocessing)[{number} // 2 % 2]
forked = []

def fork_in_the_loop(batch):
    if len(forked) == 3:
        fork_once()
    forked.append(1)

if {number} % 3 == 0:
    loader = train(2{options})
    fork_once()
else:
    loader = train(2, fork_in_the_loop{options})
sys.exit(7)
"""
CHILDREN = {
    "sys.exit": ("sys.exit(5)", 5, 0),
    "an error": ("raise KeyError('mine')", 1, 1),
    "os._exit": ("os._exit(6)", 6, 0),
}

# The whole program, until it ends, is as if it had a GPU; what follows is as in ENDS.
GPU = """
import ctypes
from contextlib import ExitStack
from support.devices.simulated_gpu import simulated

stack = ExitStack()
stack.enter_context(simulated())
ctypes.pythonapi.Py_IncRef(ctypes.py_object(stack))  # there is a GPU until the end
"""

# A kernel runs cells, one of which is interrupted, and keeps the traceback, as IPython does; its restart is an end.
KERNEL = """
def run_cell(cell):
    try:
        exec(compile(cell, "<cell>", "exec"), globals())
    except KeyboardInterrupt:
        sys.last_type, sys.last_value, sys.last_traceback = sys.exc_info()
        say('interrupted')

run_cell("loader = train(1000{options})")
signal.signal(signal.SIGINT, signal.SIG_IGN)
assert sys.last_type is KeyboardInterrupt
run_cell("loader = train(1{options})")
run_cell("batches = iter(loader); next(batches)")
"""


@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends(remote_packed: Path, tmp_path: Path, tried: Tried, end: str) -> None:
    code, number, expected = ENDS[end]
    programs = programs_that_end(
        code, times(2, 50), remote_packed, tmp_path, {"signal": number} if number else None
    )
    # Ctrl-C may come while another exception is handled: then both are shown.
    last = "KeyboardInterrupt\n" if end == "Ctrl-C" else ""
    outcomes = check_ends(
        programs, remote_packed, expected, tracebacks=int(end == "an error"), last=last
    )
    tried(
        f"a program with a loader by URL, or of a folder, that ends: {end}",
        len(outcomes),
        "the exit code it meant",
    )


@pytest.mark.parametrize("child", CHILDREN)
def test_a_program_that_forked_a_child_ends(
    remote_packed: Path, tmp_path: Path, tried: Tried, child: str
) -> None:
    child_ends, child_code, tracebacks = CHILDREN[child]
    code = FORK.replace("CHILD_ENDS", child_ends).replace("CODE", str(child_code))
    programs = programs_that_end(code, times(2, 50), remote_packed, tmp_path)
    outcomes = check_ends(programs, remote_packed, code=7, tracebacks=tracebacks)
    fault = (
        f"a program with a loader by URL, or of a folder, that forks a child, which ends: {child}"
    )
    tried(fault, len(outcomes), "the exit codes they meant")


@pytest.mark.parametrize("end", ENDS)
def test_a_program_with_a_gpu_ends(
    remote_packed: Path, tmp_path: Path, tried: Tried, end: str
) -> None:
    code, number, expected = ENDS[end]
    code = GPU + code.replace("{options}", ", device='cuda:0'{options}")
    programs = programs_that_end(
        code, times(1, 50), remote_packed, tmp_path, {"signal": number} if number else None
    )
    last = "KeyboardInterrupt\n" if end == "Ctrl-C" else ""
    outcomes = check_ends(
        programs,
        remote_packed,
        expected,
        tracebacks=int(end == "an error"),
        last=last,
        lost_in="Memory.__del__",
    )
    fault = f"a program with a loader by URL, or of a folder, on a simulated GPU, that ends: {end}"
    tried(fault, len(outcomes), "the exit code it meant")


def test_the_kernel_of_a_notebook_restarts(
    remote_packed: Path, tmp_path: Path, tried: Tried
) -> None:
    programs = programs_that_end(
        KERNEL, times(1, 50), remote_packed, tmp_path, {"signal": signal.SIGINT}
    )
    outcomes = check_ends(programs, remote_packed, code=0, tracebacks=0)
    for outcome in outcomes:
        assert outcome["said"].count("interrupted") == 1
    fault = "a notebook's kernel with a loader by URL, or of a folder, that is interrupted, loads again, and restarts"
    tried(fault, len(outcomes), "the exit code it meant")
