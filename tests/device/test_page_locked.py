"""Page-locked memory: as large as asked for, given back in the right order, and left alone by forked children."""

from __future__ import annotations

import sys
from collections import deque
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from support.programs import warm

from fastpipe.device.streams import PageLocked

SIZE = 17 * 723  # no whole number of pages


def is_mapped(address: int) -> bool:
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(word, 16) for word in line.split()[0].split("-"))
        if first <= address < last:
            return True
    return False


class Log:
    """What was called, in order, and whether the memory was still there."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.refuses = False
        self.memory = PageLocked(
            self.register, lambda address: (self.finish, partial(self.unregister, address))
        )

    def register(self, address: int, size_bytes: int) -> None:
        if self.refuses:
            raise RuntimeError("no")
        self.calls.append(("register", address, size_bytes))

    def finish(self) -> None:
        self.calls.append(("finish", is_mapped(self.calls[0][1])))  # type: ignore[arg-type]

    def unregister(self, address: int) -> None:
        self.calls.append(("unregister", address, is_mapped(address)))


def test_copies_end_then_it_is_unregistered_then_unmapped() -> None:
    log = Log()
    array = log.memory.take(SIZE)
    address = array.ctypes.data
    assert (array.shape, array.dtype, array.flags.writeable) == ((SIZE,), np.uint8, True)
    assert log.calls == [("register", address, SIZE)]
    assert log.memory.bytes == SIZE
    tensor = torch.from_numpy(array.reshape(17, -1)[...])[:1].permute(1, 0)
    del array
    assert (len(log.calls), log.memory.bytes) == (1, SIZE), "a tensor refers to it"
    del tensor
    assert log.calls[1:] == [("finish", True), ("unregister", address, True)]
    assert not is_mapped(address)
    assert log.memory.bytes == 0


def test_it_outlives_what_made_it() -> None:
    log = Log()
    array = log.memory.take(SIZE)
    del log.memory
    assert len(log.calls) == 1
    del array
    assert [call[0] for call in log.calls] == ["register", "finish", "unregister"]


def test_a_refusal_leaves_nothing_behind() -> None:
    log = Log()
    log.refuses = True
    maps = len(Path("/proc/self/maps").read_text().splitlines())
    for _ in range(50):
        with pytest.raises(RuntimeError, match="no"):
            log.memory.take(1 << 20)
    assert log.calls == []
    assert log.memory.bytes == 0
    assert len(Path("/proc/self/maps").read_text().splitlines()) < maps + 25


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_follows_a_call_that_fails_is_called_all_the_same() -> None:
    """An error that stays, of a kernel: the copies cannot be waited for, and the memory still is unregistered."""
    calls: list[str] = []
    steps = (
        partial(calls.append, "enter"),
        partial(int, "no number"),
        partial(calls.append, "unregister"),
    )
    memory = PageLocked(lambda address, size: None, lambda address: steps)
    memory.take(SIZE)
    assert calls == ["enter", "unregister"]


def test_nothing_that_python_runs_is_called_when_it_dies() -> None:
    """An exception of Ctrl-C would be lost there; see Note [callbacks]."""
    calls: deque[object] = deque()
    memory = PageLocked(
        lambda address, size: None, lambda address: (calls.clear, partial(calls.append, address))
    )
    array = memory.take(SIZE)
    address = array.ctypes.data
    called: list[str] = []
    sys.setprofile(
        lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None
    )
    del array
    sys.setprofile(None)
    assert called == []
    assert list(calls) == [address]


# The parent tells the child by a pipe that it has written.
FORKS = """
    import os
    from fastpipe.device.streams import PageLocked

    calls = []
    steps = [lambda: calls.append("finish"), lambda: calls.append("end")]
    memory = PageLocked(lambda address, size: None, lambda address: steps)
    kept = [memory.take(12_305)]
    kept[0][:] = 1
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reads, 1)
        same = bool((kept[0] == 2).all())
        kept.clear()
        os._exit(0 if same and calls == [] else 1)
    kept[0][:] = 2
    os.write(writes, b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (kept[0] == 2).all()
    kept.clear()
    assert calls == ["finish", "end"]
"""


def test_a_child_shares_the_pages_and_unregisters_nothing() -> None:
    """The parent goes on writing to the pages that the device knows: a child sees what it writes after the fork."""
    run = warm.run_script(FORKS)
    assert run.returncode == 0, run.stderr
