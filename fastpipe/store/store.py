"""A folder, or a bucket behind a URL -> the same few verbs: list, read a range, write whole, swap, remove."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

import xxhash

from fastpipe.errors import ConfigError, PackError
from fastpipe.format.folder import Place, Url
from fastpipe.format.layout import WORK_FOLDER
from fastpipe.format.open_file import read_at
from fastpipe.machine.cache_folder import cache_folder
from fastpipe.store.files import PARTIAL, cannot_write, make_in_shared, no_link, publish
from fastpipe.store.remote.options import BUCKETS, RemoteOptions

_NOTE = "fastpipestate"  # metadata of an object; Azure takes only letters and digits
_AHEAD = 32  # requests

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class NewFile:
    """A file that nobody sees before `commit`."""

    path: Path  # where it is written, on this machine
    commit: Callable[[str], None]  # gives the closed, synced file its name; in a bucket, the file carries the note

    def discard(self) -> None:
        """Removes it; if the disk refuses, it does no harm in the work folder, and the first error is to be told."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


class _WholeFiles(ABC):
    """Files that appear whole. Names have "/" between folders."""

    place: Place
    scratch: Path  # a folder of this machine for what is being made

    @abstractmethod
    def new_file(self, name: str) -> NewFile:
        """A file to be written; raises OSError or PackError, as its `commit` does."""

    @contextlib.contextmanager
    def whole(self, name: str) -> Iterator[BinaryIO]:
        """Opens a file to write, which appears whole if the block ends well. PackError: it cannot be written."""
        new = None
        try:
            new = self.new_file(name)
            with open(new.path, "wb", opener=no_link) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            new.commit("")
        except BaseException as problem:
            if new is not None:
                new.discard()
            if isinstance(problem, OSError):
                raise cannot_write(f"{self.place}/{name}", problem) from problem
            raise

    def write(self, name: str, data: bytes | memoryview) -> None:
        with self.whole(name) as file:
            file.write(data)

    def _partial(self, name: str) -> Path:
        """Where a file is made: several workers may make the same one."""
        return self.scratch / f"{name.rpartition('/')[2]}.{uuid.uuid4().hex[:12]}{PARTIAL}"


class Folder(_WholeFiles):
    """The files of a dataset, in a folder of this machine. Safe in threads. PackError: a file does not come."""

    uploaded_bytes = 0  # to a bucket

    def __init__(self, folder: Path, scratch: Path | None = None) -> None:
        self.place: Path = folder
        self.scratch = scratch or folder / WORK_FOLDER

    def close(self) -> None:
        """Gives up what is under way."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        """The sizes in bytes of the files that lie in a folder, by their names in it."""
        found = {}
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.place / folder) as entries:
            for each in entries:
                with contextlib.suppress(FileNotFoundError):  # another worker has renamed or removed it
                    if each.is_file(follow_symlinks=False):
                        found[each.name] = each.stat().st_size
        return found

    def any_other(self) -> str | None:
        """The name of something that is there besides a work folder; None: there is nothing."""
        with contextlib.suppress(FileNotFoundError):
            return min((each for each in os.listdir(self.place) if each != WORK_FOLDER), default=None)
        return None

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """A range of a file; None: to its end. It is opened each time: there may be more than a process may have open.
        FileNotFoundError: there is none.
        """
        with open(self.place / name, "rb", buffering=0) as file:
            return read_at(file.fileno(), (os.fstat(file.fileno()).st_size if stop is None else stop) - start, start)

    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """What `work`, which reads a little, gives for each item, in order; of a bucket, for several at a time."""
        return map(work, items)

    def written_ns(self, name: str) -> int:
        """When a file was written, in nanoseconds since 1970; of a bucket, by the server's clock."""
        return (self.place / name).stat().st_mtime_ns

    def note(self, name: str) -> str:
        """The note that a file in a bucket carries; "": none, or there is no such file."""
        return ""

    def new_file(self, name: str) -> NewFile:
        path, final = self._partial(name), self.place / name
        for folder in (self.scratch, final.parent):
            make_in_shared(folder)
        return NewFile(path, lambda _: publish(path, final))

    def swap(self, name: str, data: bytes, old: bytes | None, note: str = "") -> bool:
        """Writes a small file if its content is still `old`, None: if there is none; else False. See NewFile. The lock
        of the work folder keeps other writers out in between.
        """
        now = None
        with contextlib.suppress(FileNotFoundError):
            now = self.read(name)
        if now == old:
            self.write(name, data)
        return now == old

    def remove(self, names: Iterable[str]) -> None:
        """Removes files, if they are there, and folders in which nothing is left."""
        folders = set()
        for name in names:
            (self.place / name).unlink(missing_ok=True)
            folders.add((self.place / name).parent)
        for folder in folders - {self.place, self.scratch}:
            with contextlib.suppress(OSError):
                folder.rmdir()

    def check_room(self, needed_bytes: int) -> None:
        """Looks whether there is room for what is being made at a time, before the disk is full; raises PackError."""


class Bucket(_WholeFiles):
    """The same behind a URL: files are made in a folder of this machine, and uploaded whole. See Folder.

    Parts of an upload that was killed stay in the bucket, and cost money, until a lifecycle rule of the bucket removes
    them: obstore cannot list them. An upload that fails is aborted.
    """

    def __init__(self, url: Url, remote: RemoteOptions | None, scratch: Path | None = None) -> None:
        from fastpipe.store.remote.objects import Objects  # most packs make no requests

        check_writable(url)
        self.place: Url = url
        self.uploaded_bytes = 0
        last = re.sub(r"[^A-Za-z0-9.-]+", "-", url.rpartition("/")[2])
        self.scratch = (scratch or cache_folder() / "pack") / f"{last}-{xxhash.xxh3_64_hexdigest(url.encode())}"
        self._objects = Objects(url, remote or RemoteOptions(), PackError)

    def close(self) -> None:
        self._objects.cancel()
        with contextlib.suppress(OSError):
            for left in self.scratch.glob(f"*{PARTIAL}"):
                left.unlink()

    def sizes(self, folder: str = "") -> dict[str, int]:
        top = f"{folder}/" if folder else ""
        below = ((name.removeprefix(top), facts.size_bytes) for name, facts in self._objects.listed(folder))
        return {name: size_bytes for name, size_bytes in below if name and "/" not in name}

    def any_other(self) -> str | None:
        for name, facts in self._objects.listed(""):
            # Some programs mark a folder by an empty object of its name.
            if (name or facts.size_bytes) and not name.startswith(f"{WORK_FOLDER}/"):
                return name
        return None

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        if stop is None:
            data, _ = self._now(name)
            if data is None:
                raise FileNotFoundError(2, "no such file", str(self.place / name))
            return data[start:]
        return b"".join(self._objects.pieces(lambda at, end: self._objects.get(name, at, end), start, stop))

    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        from fastpipe.store.remote.objects import in_order

        with ThreadPoolExecutor(_AHEAD, thread_name_prefix="fastpipe-read") as threads:
            yield from in_order((threads.submit(work, item) for item in items), _AHEAD)

    def new_file(self, name: str) -> NewFile:
        self.scratch.mkdir(parents=True, exist_ok=True)
        path = self._partial(name)

        def upload(note: str) -> None:
            self._objects.put(name, path, {_NOTE: note} if note else {})
            self.uploaded_bytes += path.stat().st_size
            path.unlink()

        return NewFile(path, upload)

    def swap(self, name: str, data: bytes, old: bytes | None, note: str = "") -> bool:
        now, etag = self._now(name)
        if now != old:
            return now == data  # an answer may have been lost, and the request made twice
        written = self._objects.put(name, data, {_NOTE: note}, replaces=etag)
        self.uploaded_bytes += len(data)
        return written or self._now(name)[0] == data

    def _now(self, name: str) -> tuple[bytes | None, str | None]:
        """A small file and its ETag; None and "": there is none."""
        there = self._objects.find(name)
        return (None, "") if there is None else (bytes(there.data), there.etag)

    def written_ns(self, name: str) -> int:
        (facts,) = self._objects.stats([name])
        return 0 if facts is None else facts.ctime_ns

    def note(self, name: str) -> str:
        there = self._objects.find(name, 1)
        return "" if there is None else there.attributes.get(_NOTE, "")

    def remove(self, names: Iterable[str]) -> None:
        self._objects.remove(list(names))

    def check_room(self, needed_bytes: int) -> None:
        free = shutil.disk_usage(self.scratch).free
        if free < needed_bytes:
            raise PackError(
                f"{self.scratch} has {free / 1e6:,.1f} MB free; expected at least {needed_bytes / 1e6:,.1f} MB, for "
                "shards are made there before they are uploaded. Make room, pass --spool DIR on another disk, or a "
                "smaller --shard-size"
            )


def check_writable(url: Url) -> None:
    if url.scheme not in BUCKETS:
        known = ", ".join(f"{each}://" for each in BUCKETS)
        raise ConfigError(
            f"DST {url}: fastpipe cannot write to {url.scheme}://; it writes to {known} and to folders. Pack into a "
            "folder and upload it, dataset.json last"
        )


Store = Folder | Bucket


def open_store(place: Place, remote: RemoteOptions | None = None, scratch: Path | None = None) -> Store:
    """The store of a folder or URL. ConfigError: a URL that nobody can write to, or an unknown option."""
    return Folder(place, scratch) if isinstance(place, Path) else Bucket(place, remote, scratch)
