"""A forked worker -> the files and locks of its parent, and the files that it uses."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
import threading
from typing import Any, NamedTuple

from .locks import belongs_to_thread, find_held_kind
from .objects import find_definition, find_user_place, walk_with_globals
from .user_code import find_user_line, is_user_place

# The documentation of these libraries says that their handles must not go through a fork.
_HANDLE_TYPES = {
    ("sqlite3", "Connection"),
    ("sqlite3", "Cursor"),
    ("h5py", "File"),
    ("h5py", "Dataset"),
    ("h5py", "Group"),
    ("lmdb", "Environment"),
    ("lmdb", "Transaction"),
    ("lmdb", "Cursor"),
}
_MAX_REPORTED = 16

_parents_threads: list[dict[str, str]] = []


def remember_threads() -> None:
    """Remembers the other threads and their lines before a fork: the child has none of them."""
    _parents_threads.clear()
    with contextlib.suppress(Exception):
        names = {thread.ident: thread.name for thread in list(threading.enumerate())}
        frames = sys._current_frames()
        # This thread's frame would hold itself, and all that its callers hold would be freed late.
        del frames[threading.get_ident()]
        for ident, frame in frames.items():
            line = find_user_line(frame)
            if line:
                _parents_threads.append({"name": names.get(ident, ""), "place": line})


class _OpenFile(NamedTuple):
    """A file that was open before the fork."""

    path: str  # the expression that leads to it
    file: Any
    offset: int


class Inherited:
    """Open files, database handles and held locks of a dataset, as a forked worker begins."""

    def __init__(self, **roots: Any) -> None:
        self.threads = _parents_threads[:_MAX_REPORTED]
        self.locks: list[dict[str, str]] = []
        self._roots = roots
        self._objects = dict(walk_with_globals(**roots))
        self._files: dict[int, _OpenFile] = {}  # by file descriptor
        self._handles: list[tuple[str, Any]] = []
        locks: dict[str, dict[str, str]] = {}  # by the object around them
        # Programs that keep one handle a process may keep them by the process's number.
        key_of_parent = f"[{os.getppid()}]"
        for path, value in self._objects.items():
            position = _find_position(value)
            if position is not None:
                # Several objects may hold one file: a ZipFile and the file in it.
                open_file = _OpenFile(path, value, position.offset)
                self._files.setdefault(position.descriptor, open_file)
                continue
            if _is_handle(value):
                if key_of_parent not in path:
                    self._handles.append((path, value))
                continue
            kind = find_held_kind(value)
            if kind is not None and not belongs_to_thread(path, self._objects):
                holder, place = self._find_holder(path)
                lock = {"path": holder, "kind": kind, "place": place}
                locks.setdefault(holder, lock)
        self.locks = list(locks.values())
        if not self._files and not self._handles:
            self._objects = {}  # no one asks for them any more

    def list_used(self) -> list[dict[str, str]]:
        """Lists the files that were read since the fork, and the handles that are still held."""
        used = [*self._list_read_files(), *self._list_open_handles()]
        return used[:_MAX_REPORTED]

    def _list_read_files(self) -> list[dict[str, str]]:
        read = []
        for descriptor, open_file in self._files.items():
            position = _find_position(open_file.file)
            if position is None or position.descriptor != descriptor:
                continue  # it was closed
            if position.offset == open_file.offset:
                continue  # nobody has read from it
            holder, place = self._find_holder(open_file.path)
            kind = type(self._objects.get(holder, open_file.file)).__name__
            name = os.path.realpath(f"/proc/self/fd/{descriptor}")
            read.append({"path": holder, "kind": kind, "file": name, "place": place})
        return read

    def _list_open_handles(self) -> list[dict[str, str]]:
        if not self._handles:
            return []
        # A handle may have been replaced since the fork.
        objects = dict(walk_with_globals(**self._roots))
        held = []
        for path, handle in self._handles:
            if objects.get(path) is handle and _is_open(handle):
                handle_type = type(handle)
                module, _, _ = handle_type.__module__.partition(".")
                kind = f"{module}.{handle_type.__name__}"
                _, place = self._find_holder(path)
                held.append({"path": path, "kind": kind, "file": "", "place": place})
        return held

    def _find_holder(self, path: str) -> tuple[str, str]:
        """Finds the outermost object around a file that is not the user's own, such as a ZipFile.

        Returns its path, and the place of the user's class that holds it.
        """
        while True:
            separator = "[" if path.endswith("]") else "."
            outer_path, _, _ = path.rpartition(separator)
            if outer_path not in self._objects:
                # A global variable: most often it is one of the dataset's own file.
                return path, find_user_place(list(self._roots.values()), "dataset")
            outer = self._objects[outer_path]
            place = find_definition(outer)
            is_container = isinstance(outer, (dict, list, tuple, set))
            if not is_container and is_user_place(place):
                return path, place
            path = outer_path


class _Position(NamedTuple):
    """An open file's number, and its offset."""

    descriptor: int
    offset: int


def _find_position(value: Any) -> _Position | None:
    """Finds the position of a regular file that is open for reading; None for any other object."""
    import fcntl  # Windows has no such module, and forks no worker

    with contextlib.suppress(Exception):
        if not isinstance(value, io.IOBase) or value.closed:
            return None
        descriptor = value.fileno()
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        access = flags & os.O_ACCMODE
        if access != os.O_WRONLY and stat.S_ISREG(os.fstat(descriptor).st_mode):
            offset = os.lseek(descriptor, 0, os.SEEK_CUR)
            return _Position(descriptor, offset)
    return None


def _is_handle(value: Any) -> bool:
    kind = type(value)
    module, _, _ = kind.__module__.partition(".")
    return any((module, base.__name__) in _HANDLE_TYPES for base in kind.__mro__)


def _is_open(handle: Any) -> bool:
    with contextlib.suppress(Exception):
        # A closed connection of sqlite3 raises for its changes. A closed file of h5py is false.
        return getattr(handle, "total_changes", 0) is not None and bool(handle)
    return False
