"""A worker that was forked -> the files and locks that it has from its parent, and which of the files it moves in."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
import threading
from typing import Any

from .objects import own_place, place, reached
from .own import is_own, own_line

# Libraries whose handles must not go through a fork: their own documentation says so.
_HANDLES = {("sqlite3", "Connection"), ("sqlite3", "Cursor"), ("h5py", "File"), ("h5py", "Dataset"), ("h5py", "Group")}
_HANDLES |= {("lmdb", "Environment"), ("lmdb", "Transaction"), ("lmdb", "Cursor")}
_MOST = 16

_threads: list[dict[str, str]] = []


def note_threads() -> None:
    """Before a fork: the threads of this process that the child will not have, and the user's line of each."""
    try:
        names = {thread.ident: thread.name for thread in list(threading.enumerate())}
        own = threading.get_ident()
        lines = (
            (names.get(ident, ""), own_line(frame)) for ident, frame in sys._current_frames().items() if ident != own
        )
        _threads[:] = [{"name": name, "place": line} for name, line in lines if line][:_MOST]
    except Exception:
        _threads.clear()


class Inherited:
    """What a dataset holds at the beginning of a forked worker: open files, handles of databases, locks in use."""

    def __init__(self, dataset: Any) -> None:
        found = dict(reached(dataset))
        self._files: list[tuple[str, Any, int, int, str]] = []  # holder, file, descriptor, position, owner's place
        self._handles: list[tuple[str, Any, str]] = []
        self.locks: list[dict[str, Any]] = []
        taken: set[int] = set()
        for path, value in found.items():
            number = _descriptor(value)
            if number is not None and number not in taken and (position := _position(number)) is not None:
                taken.add(number)
                holder, owner = _holder(path, found)
                self._files.append((holder, value, number, position, owner))
            elif _is_handle(value) and f"[{os.getppid()}]" not in path:
                self._handles.append((path, value, _holder(path, found)[1]))
            elif (kind := held_lock(value)) is not None and not _of_a_thread(path, found):
                holder, owner = _holder(path, found)
                if all(each["path"] != holder for each in self.locks):
                    self.locks.append({"path": holder, "kind": kind, "place": owner})
        self._found = found if self._files or self._handles else {}

    @property
    def threads(self) -> list[dict[str, str]]:
        """The parent's other threads at the fork."""
        return list(_threads)

    def used(self, dataset: Any) -> list[dict[str, str]]:
        """The files that were moved in since, and the handles that the dataset still holds."""
        found = []
        for holder, file, number, position, owner in self._files:
            if _descriptor(file) == number and _position(number) not in (None, position):
                value = self._found.get(holder, file)
                found.append({"path": holder, "kind": type(value).__name__, "file": _name(number), "place": owner})
        if self._handles:
            now = dict(reached(dataset))
            for path, handle, owner in self._handles:
                if now.get(path) is handle and _is_open(handle):
                    found.append({"path": path, "kind": _kind(handle), "file": "", "place": owner})
        return found[:_MOST]


def held_lock(value: Any) -> str | None:
    """The kind of a lock that is held now; None of anything else."""
    name = type(value).__name__
    if not is_lock(value) or name not in ("lock", "Lock", "RLock"):
        return None
    try:
        if hasattr(value, "_semlock"):
            return f"multiprocessing.{name}" if value._semlock._is_zero() else None
        return f"threading.{'Lock' if name == 'lock' else name}" if repr(value).startswith("<locked") else None
    except Exception:
        return None


def is_lock(value: Any) -> bool:
    """Whether it is a lock, which pickle does not take, or takes only for a process that is being spawned."""
    of_threads = type(value).__module__ == "_thread" and type(value).__name__ in ("lock", "RLock")
    return of_threads or hasattr(value, "_semlock")


def _of_a_thread(path: str, found: dict[str, Any]) -> bool:
    """Whether a lock is one by which Python waits for a thread, or for a condition: these are held all the time."""
    outer = found.get(path.rpartition(".")[0])
    return isinstance(outer, threading.Thread) or "._waiters[" in path


def _descriptor(value: Any) -> int | None:
    if isinstance(value, io.IOBase):
        with contextlib.suppress(Exception):
            return None if value.closed else value.fileno()
    return None


def _position(number: int) -> int | None:
    """Where in a regular file, open for reading, a descriptor stands; None of all others. Source: proc(5), fdinfo."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return None
        with open(f"/proc/self/fdinfo/{number}") as file:
            fields = dict(line.split(":", 1) for line in file.read().splitlines())
        return None if int(fields["flags"], 8) & os.O_ACCMODE == os.O_WRONLY else int(fields["pos"])
    return None


def _name(number: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/fd/{number}")
    return ""


def _holder(path: str, found: dict[str, Any]) -> tuple[str, str]:
    """The outermost object around it that is not of the user's own class, such as a ZipFile; and its owner's place."""
    while (outer := path.rpartition("[" if path.endswith("]") else ".")[0]) in found:
        owner = place(found[outer])
        if not isinstance(found[outer], (dict, list, tuple, set)) and is_own(owner.rpartition(":")[0]):
            return path, owner
        path = outer
    return path, own_place(found["dataset"], "dataset")  # of a global variable: most often of the same file


def _is_handle(value: Any) -> bool:
    kind = type(value)
    return any((kind.__module__.partition(".")[0], base.__name__) in _HANDLES for base in kind.__mro__)


def _is_open(handle: Any) -> bool:
    if type(handle).__module__.startswith("h5py"):
        return bool(handle)
    try:  # sqlite3: a closed connection has no changes to tell of
        return getattr(handle, "total_changes", 0) is not None
    except Exception:
        return False


def _kind(handle: Any) -> str:
    return f"{type(handle).__module__.partition('.')[0]}.{type(handle).__name__}"
