"""A bucket behind a URL as a store: files are made in a folder of this machine, and uploaded whole."""

from __future__ import annotations

import contextlib
import re
import shutil
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import xxhash

from fastpipe.errors import ConfigError, PackError
from fastpipe.format.folder import Url
from fastpipe.format.layout import WORK_FOLDER
from fastpipe.machine.cache_folder import cache_folder
from fastpipe.remote.objects import Objects
from fastpipe.remote.options import RemoteOptions
from fastpipe.store.files import PARTIAL
from fastpipe.store.store import Item, NewFile, Result, Store

WRITABLE = ("s3", "gs", "az")
_NOTE = "fastpipestate"  # metadata of an object; Azure takes only letters and digits
_AHEAD = 32  # requests


def check_writable(url: Url) -> None:
    """Refuses URLs that nobody can write to.

    Raises:
        ConfigError: it is one.
    """
    scheme = url.split("://")[0].lower()
    if scheme not in WRITABLE:
        known = ", ".join(f"{each}://" for each in WRITABLE)
        raise ConfigError(
            f"DST {url}: fastpipe cannot write to {scheme}://; it writes to {known} and to folders. Pack into a folder "
            "and upload it, dataset.json last"
        )


def default_scratch() -> Path:
    """Where files of buckets are made if nobody says."""
    return cache_folder() / "pack"


@dataclass(frozen=True)
class _New:
    """See NewFile."""

    path: Path
    name: str
    store: Bucket

    def commit(self, note: str = "") -> None:
        self.store.upload(self.name, self.path, note)
        self.path.unlink()

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


class Bucket(Store):
    """See Store.

    Parts of an upload that was killed stay in the bucket, and cost money, until a lifecycle rule of the bucket removes
    them: obstore cannot list them. An upload that fails is aborted.
    """

    def __init__(self, url: Url, remote: RemoteOptions | None, scratch: Path | None = None) -> None:
        check_writable(url)
        self.place: Url = url
        last = re.sub(r"[^A-Za-z0-9.-]+", "-", url.rpartition("/")[2])
        self.scratch = (scratch or default_scratch()) / f"{last}-{xxhash.xxh3_64_hexdigest(url.encode())}"
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
        begun: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(_AHEAD, thread_name_prefix="fastpipe-read") as threads:
            for item in items:
                begun.append(threads.submit(work, item))
                if len(begun) == _AHEAD:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()

    def new_file(self, name: str) -> NewFile:
        self.scratch.mkdir(parents=True, exist_ok=True)
        return _New(self.scratch / f"{name.rpartition('/')[2]}.{uuid.uuid4().hex[:12]}{PARTIAL}", name, self)

    def upload(self, name: str, file: Path, note: str) -> None:
        """Writes an object."""
        self._objects.put(name, file, {_NOTE: note} if note else {})
        self.uploaded_bytes += file.stat().st_size

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
