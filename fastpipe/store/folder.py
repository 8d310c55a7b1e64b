"""A folder as a store: files appear by a rename."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fastpipe.format.layout import WORK_FOLDER
from fastpipe.format.open_file import read_at
from fastpipe.store.files import PARTIAL, make_in_shared, publish
from fastpipe.store.store import NewFile, Store


@dataclass(frozen=True)
class _New:
    """See NewFile."""

    path: Path
    final: Path

    def commit(self, note: str = "") -> None:
        publish(self.path, self.final)

    def discard(self) -> None:
        with contextlib.suppress(OSError):  # in the work folder it does no harm, and the first error is the one to tell
            self.path.unlink(missing_ok=True)


class Folder(Store):
    """See Store."""

    def __init__(self, folder: Path, scratch: Path | None = None) -> None:
        self.place: Path = folder
        self.scratch = scratch or folder / WORK_FOLDER

    def sizes(self, folder: str = "") -> dict[str, int]:
        found = {}
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.place / folder) as entries:
            for each in entries:
                with contextlib.suppress(FileNotFoundError):  # another worker has renamed or removed it
                    if each.is_file(follow_symlinks=False):
                        found[each.name] = each.stat().st_size
        return found

    def any_other(self) -> str | None:
        try:
            return min((each for each in os.listdir(self.place) if each != WORK_FOLDER), default=None)
        except FileNotFoundError:
            return None

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """Opens the file each time: there may be more than a process may have open."""
        handle = os.open(self.place / name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_at(handle, (os.fstat(handle).st_size if stop is None else stop) - start, start)
        finally:
            os.close(handle)

    def written_ns(self, name: str) -> int:
        return (self.place / name).stat().st_mtime_ns

    def new_file(self, name: str) -> NewFile:
        final = self.place / name
        for folder in (self.scratch, final.parent):
            make_in_shared(folder)
        # Another worker may be writing the same file.
        return _New(self.scratch / f"{final.name}.{uuid.uuid4().hex[:12]}{PARTIAL}", final)

    def swap(self, name: str, data: bytes, old: bytes | None, note: str = "") -> bool:
        """The lock of the work folder keeps other writers out in between."""
        try:
            now: bytes | None = self.read(name)
        except FileNotFoundError:
            now = None
        if now != old:
            return False
        self.write(name, data)
        return True

    def remove(self, names: Iterable[str]) -> None:
        folders = set()
        for name in names:
            (self.place / name).unlink(missing_ok=True)
            folders.add((self.place / name).parent)
        for folder in folders - {self.place, self.scratch}:
            with contextlib.suppress(OSError):
                folder.rmdir()
