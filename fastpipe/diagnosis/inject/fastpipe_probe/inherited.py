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
    _threads.clear()
    with contextlib.suppress(Exception):
        names = {thread.ident: thread.name for thread in list(threading.enumerate())}
        frames = sys._current_frames()
        del frames[threading.get_ident()]  # a frame that holds itself, and all that its callers hold, is freed late
        for ident, frame in frames.items():
            if line := own_line(frame):
                _threads.append({"name": names.get(ident, ""), "place": line})


class Inherited:
    """What a dataset and collate_fn hold as a forked worker begins: open files, handles of databases, locks in use."""

    def __init__(self, **roots: Any) -> None:
        self.threads = _threads[:_MOST]  # the parent's other threads at the fork
        self._found = dict(reached(**roots))
        self._roots = roots
        files: dict[int, tuple[str, Any, int]] = {}  # by descriptor: path, file, position
        locks: dict[str, dict[str, str]] = {}
        self._handles: list[tuple[str, Any]] = []
        for path, value in self._found.items():
            if (stands := _position(value)) is not None:
                files.setdefault(stands[0], (path, value, stands[1]))
            elif _is_handle(value) and f"[{os.getppid()}]" not in path:
                self._handles.append((path, value))
            elif (kind := held_lock(value)) is not None and not _of_a_thread(path, self._found):
                holder, owner = self._holder(path)
                locks.setdefault(holder, {"path": holder, "kind": kind, "place": owner})
        self._files, self.locks = files, list(locks.values())
        if not files and not self._handles:
            self._found = {}

    def used(self) -> list[dict[str, str]]:
        """The files that were moved in since, and the handles that the dataset still holds."""
        found = []
        for number, (path, file, position) in self._files.items():
            now = _position(file)
            if now is not None and now[0] == number and now[1] != position:
                holder, owner = self._holder(path)
                name = os.path.realpath(f"/proc/self/fd/{number}")
                kind = type(self._found.get(holder, file)).__name__
                found.append({"path": holder, "kind": kind, "file": name, "place": owner})
        held = dict(reached(**self._roots)) if self._handles else {}
        for path, handle in self._handles:
            if held.get(path) is handle and _is_open(handle):
                kind = f"{type(handle).__module__.partition('.')[0]}.{type(handle).__name__}"
                found.append({"path": path, "kind": kind, "file": "", "place": self._holder(path)[1]})
        return found[:_MOST]

    def _holder(self, path: str) -> tuple[str, str]:
        """The outermost object around it that is not of the user's own class, such as a ZipFile; its owner's place."""
        while (outer := path.rpartition("[" if path.endswith("]") else ".")[0]) in self._found:
            owner = place(self._found[outer])
            if not isinstance(self._found[outer], (dict, list, tuple, set)) and is_own(owner.rpartition(":")[0]):
                return path, owner
            path = outer
        return path, own_place([*self._roots.values()], "dataset")  # of a global variable: most often of the same file


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


def _position(value: Any) -> tuple[int, int] | None:
    """The descriptor of a regular file that is open for reading, and where in it that stands; None of all else."""
    import fcntl  # not on Windows, which forks no worker

    with contextlib.suppress(Exception):
        if isinstance(value, io.IOBase) and not value.closed:
            number = value.fileno()
            reads = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY
            if reads and stat.S_ISREG(os.fstat(number).st_mode):
                return number, os.lseek(number, 0, os.SEEK_CUR)
    return None


def _is_handle(value: Any) -> bool:
    kind = type(value)
    return any((kind.__module__.partition(".")[0], base.__name__) in _HANDLES for base in kind.__mro__)


def _is_open(handle: Any) -> bool:
    with contextlib.suppress(Exception):  # sqlite3: a closed connection has no changes to tell of; h5py: it is false
        return getattr(handle, "total_changes", 0) is not None and bool(handle)
    return False
