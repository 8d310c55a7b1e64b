"""Which process holds a lock, without trying it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from fastpipe.machine import file_locks
from fastpipe.machine.file_locks import holder_of_lock


def lock_line(file: Path, pid: int, kind: str = "FLOCK") -> str:
    state = os.stat(file)
    device = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}"
    return f"1: {kind}  ADVISORY  WRITE {pid} {device}:{state.st_ino} 0 EOF\n"


def test_the_holder_of_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lock"
    other = tmp_path / "other"
    file.touch()
    other.touch()
    locks = tmp_path / "locks"
    monkeypatch.setattr(file_locks, "_LOCKS", locks)
    assert holder_of_lock(file) is None  # there is no such list
    locks.write_text("a line of another form\n" + lock_line(other, 7) + lock_line(file, 8, "POSIX"))
    assert holder_of_lock(file) is None
    locks.write_text(lock_line(other, 7) + lock_line(file, 1234))
    assert holder_of_lock(file) == 1234
    locks.write_text(lock_line(file, 0))  # a process that this container does not see
    assert holder_of_lock(file) is None
    assert holder_of_lock(tmp_path / "missing") is None


def test_a_lock_of_this_process(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # Some file systems have another device in the kernel's list.
        assert holder_of_lock(tmp_path / "lock") in (os.getpid(), None)
