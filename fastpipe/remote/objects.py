"""Files behind a URL, as packing reads and writes them: facts, lists, ranges, uploads, each tried until it succeeds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from fastpipe.errors import DatasetError, PackError
from fastpipe.format.file_state import FileState
from fastpipe.format.folder import Url
from fastpipe.remote.options import RemoteOptions
from fastpipe.remote.retry import Trouble, insist
from fastpipe.remote.store import Answer, Requests, Store, Written, requests_of_process

_T = TypeVar("_T")

REQUEST_BYTES = 8 << 20  # at once: a larger range is several requests
_AT_A_TIME = 64  # requests for facts
_PIECES = 8  # of a file that is copied, at a time
_AGAIN = "Finished shards are kept; run the same command again: it continues there"
_ADVICE = {
    "network": f"Check the network, and that the server is up. {_AGAIN}",
    "busy": f"The server is overloaded. {_AGAIN}",
    "denied": f"Check the credentials, and that they may read SRC, list and write DST. {_AGAIN}",
    "missing": f"Check the URL. {_AGAIN}",
    "replaced": f"Another program writes there. Wait until nothing changes it. {_AGAIN}",
    "refused": "Check the URL, the options of its store, and that the server answers ranges (HTTP 206)",
}


def facts(size_bytes: int, etag: str | None, modified_ns: int) -> FileState:
    """The state of a file, of what a server says of it."""
    written_ns = (modified_ns // 10**9 + 1) * 10**9
    named = written_ns
    if etag:
        # Azure has quotes around it in one answer and none in another.
        bare = etag.removeprefix("W/").strip('"')
        named = xxhash.xxh3_64_intdigest(bare.encode()) >> 1
    return FileState(size_bytes, named, written_ns)


@dataclass(eq=False)
class _Expected:
    """A range that is on its way."""

    name: str
    start: int
    stop: int
    answer: Future[Answer]


class Objects:
    """The files behind a URL. Safe in threads.

    Args:
        url: that names begin behind.
        options: credentials and timeouts.
        uploads: files are written, too.

    Attributes:
        url, options: as given.
        pinned: content never changes behind a name; so ETags, which differ from server to server, are not compared.
        has_lists: the server can list files; web servers cannot.
    """

    def __init__(self, url: Url, options: RemoteOptions, *, uploads: bool = False) -> None:
        self.url, self.options = url, options
        self._scheme = url.split("://")[0].lower()
        self.pinned = self._scheme == "hf"
        self.has_lists = self._scheme not in ("http", "https")
        self._requests: Requests = requests_of_process()
        self._store = Store(url, options)
        self._uploads = Store(url, options, uploads=True) if uploads else self._store
        self._start()

    def _start(self) -> None:
        self.trouble = Trouble()
        self._lock = threading.Lock()
        self._flying: set[Future[Any]] = set()
        self._expected: dict[str, list[_Expected]] = {}
        self._cancelled = False

    def apart(self) -> Objects:
        """The same files, with requests of its own to cancel."""
        other = object.__new__(Objects)
        other.__dict__.update(self.__dict__)
        other._start()
        return other

    def cancel(self) -> None:
        """Gives up all requests; who waits for one gets CancelledError, and so does who makes one from now on."""
        with self._lock:
            self._cancelled = True
            flying = list(self._flying)
        for each in flying:
            each.cancel()

    def stat(self, name: str) -> FileState | None:
        """A file's state; None: there is no such file.

        Raises:
            PackError: the server does not tell.
        """
        return self.stats([name])[0]

    def stats(self, names: Sequence[str]) -> list[FileState | None]:
        """The same for several files at a time."""

        async def all_of_them() -> list[FileState | None]:
            limit = asyncio.Semaphore(_AT_A_TIME)

            async def one(name: str) -> FileState | None:
                async with limit:
                    return await self._facts(name)

            return list(await asyncio.gather(*map(one, names)))

        return self._wait(all_of_them())

    def listed(self, folder: str) -> Iterator[tuple[str, FileState]]:
        """The files below a folder, by name, as many as there are.

        Raises:
            PackError: the server does not list them.
        """
        if self.pinned:
            yield from self._listed_by_hub(folder)
            return
        pages = _Pages(self._store, folder)
        what = f"{self.url / folder if folder else self.url} cannot be listed"
        while page := self._wait(self._insist(pages.next, what)):
            for each in page:
                yield each.name, facts(each.size_bytes, each.etag, each.modified_ns)

    def is_folder(self, name: str) -> bool:
        """Whether files lie below it."""
        return any(True for _ in self.listed(name))

    def read(self, name: str, start: int, stop: int, state: FileState) -> bytes:
        """A range of a file that is as it was listed.

        Raises:
            PackError: the range does not come, or the file is another one now.
        """
        if start >= stop:
            return b""
        with self._lock:
            fitting = [each for each in self._expected.get(name, ()) if each.start <= start and stop <= each.stop]
        if fitting:
            data = self.take(name, fitting[0].answer.result(), state)
            return bytes(data[start - fitting[0].start : stop - fitting[0].start])
        found: list[memoryview] = []
        for first in range(start, stop, _PIECES * REQUEST_BYTES):
            last = min(first + _PIECES * REQUEST_BYTES, stop)
            begun = [self.begin(name, at, min(at + REQUEST_BYTES, last)) for at in range(first, last, REQUEST_BYTES)]
            found += [self.take(name, each.result(), state) for each in begun]
        return b"".join(found)

    def begin(self, name: str, start: int, stop: int) -> Future[Answer]:
        """Begins to fetch a range, which must not be empty."""
        what = f"{self.url / name}, bytes {start:,} to {stop:,} cannot be fetched"
        return self._begin(self._insist(lambda: self._store.get(name, start, stop), what))

    def take(self, name: str, answer: Answer, state: FileState) -> memoryview:
        """The bytes of an answer to `begin`; see `read`."""
        now = facts(answer.size_bytes, answer.etag, answer.modified_ns)
        if now.size_bytes != state.size_bytes or (now.mtime_ns != state.mtime_ns and not self.pinned):
            how = (
                "has another ETag"
                if now.size_bytes == state.size_bytes
                else f"had {state.size_bytes:,} bytes when it was listed, and now has {now.size_bytes:,}"
            )
            raise PackError(
                f"{self.url / name} has changed while packing: it {how}. Finished shards are kept. Wait until nothing "
                "changes the source, then run the same command again: it continues with the files as they are then"
            )
        return memoryview(answer.data)

    def expect(self, ranges: Iterable[tuple[str, int, int]]) -> list[Any]:
        """Begins to fetch ranges of files; `read` takes them. Ends with `forget`."""
        begun = [
            _Expected(name, start, stop, self.begin(name, start, stop))
            for name, start, stop in ranges
            if start < stop <= start + REQUEST_BYTES
        ]
        with self._lock:
            for each in begun:
                self._expected.setdefault(each.name, []).append(each)
        return begun

    def forget(self, begun: list[Any]) -> None:
        """Drops what `expect` has begun."""
        with self._lock:
            for each in begun:
                left = self._expected[each.name]
                left.remove(each)
                if not left:
                    del self._expected[each.name]
        for each in begun:
            each.answer.cancel()

    def get(self, name: str) -> Answer | None:
        """A small file, with what it carries; None: there is none.

        Raises:
            PackError: it does not come.
        """

        async def get() -> Answer | None:
            try:
                return await self._store.get(name, 0, None)
            except FileNotFoundError:
                return None

        return self._wait(self._insist(get, f"{self.url / name} cannot be fetched"))

    def copy(self, name: str, file: Path, size_bytes: int) -> None:
        """Copies a file to this machine, a few pieces at a time.

        Raises:
            PackError: it does not come.
            OSError: the disk refuses.
        """
        with open(file, "wb") as out:
            for at in range(0, size_bytes, _PIECES * REQUEST_BYTES):
                stop = min(at + _PIECES * REQUEST_BYTES, size_bytes)
                starts = range(at, stop, REQUEST_BYTES)
                for each in [self.begin(name, start, min(start + REQUEST_BYTES, stop)) for start in starts]:
                    out.write(each.result().data)

    async def attributes(self, name: str) -> tuple[int, Mapping[str, str]] | None:
        """A file's size and what it carries, in the thread of requests; None: there is no such file.

        It must not be empty.

        Raises:
            PackError: the server does not tell.
        """

        async def get() -> tuple[int, Mapping[str, str]] | None:
            try:
                answer = await self._store.get(name, 0, 1)
            except FileNotFoundError:
                return None
            return answer.size_bytes, answer.attributes

        return await self._insist(get, f"{self.url / name} cannot be looked at")

    async def content(self, name: str) -> Answer:
        """A small file, in the thread of requests; errors as of `get`."""
        return await self._insist(lambda: self._store.get(name, 0, None), f"{self.url / name} cannot be fetched")

    async def put(
        self,
        name: str,
        content: Path | bytes,
        attributes: Mapping[str, str] | None = None,
        *,
        replaces: str | None = None,
    ) -> bool:
        """Writes a file, in the thread of requests.

        Args:
            name, content: of it.
            attributes: that it carries.
            replaces: write only if the file that is there has this ETag; "": if there is none.

        Returns:
            False: another file is there than `replaces` says.

        Raises:
            PackError: the server refuses.
        """

        async def put() -> bool:
            try:
                await self._uploads.put(name, content, attributes, replaces=replaces)
            except FileExistsError:
                return False
            return True

        return await self._insist(put, f"{self.url / name} cannot be uploaded", self._uploads)

    async def remove(self, names: Sequence[str]) -> None:
        """Removes files, in the thread of requests.

        Raises:
            PackError: the server refuses.
        """
        if names:
            what = f"{self.url / names[0]} cannot be removed"
            await self._insist(lambda: self._uploads.remove(names), what, self._uploads)

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Has the thread of requests do something, and waits; Ctrl-C gives it up."""
        return self._wait(work)

    def start(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """The same without waiting."""
        return self._begin(work)

    def _begin(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        if self._cancelled:
            work.close()
            raise CancelledError
        future = self._requests.begin(work)
        with self._lock:
            self._flying.add(future)
        future.add_done_callback(self._landed)
        if self._cancelled:
            future.cancel()
        return future

    def _landed(self, future: Future[Any]) -> None:
        with self._lock:
            self._flying.discard(future)

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = self._begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def _insist(self, work: Callable[[], Awaitable[_T]], what: str, store: Store | None = None) -> _T:
        patience_s = self.options.patience_s
        return await insist(work, what, store or self._store, patience_s, self.trouble, advice=_ADVICE, error=PackError)

    async def _facts(self, name: str) -> FileState | None:
        async def head() -> Written | None:
            try:
                return await self._store.head(name)
            except (FileNotFoundError, ValueError):  # a name that no object can have
                return None

        found = await self._insist(head, f"{self.url / name} cannot be looked at")
        return None if found is None else facts(found.size_bytes, found.etag, found.modified_ns)

    def _listed_by_hub(self, folder: str) -> Iterator[tuple[str, FileState]]:
        from fastpipe.remote.hub import listed

        try:
            # The Hub tells no times: any file may be newer than a dataset that was packed before.
            now_ns = time.time_ns()
            for name, size_bytes, identity in listed(self.url, dict(self.options.storage), folder):
                yield name, facts(size_bytes, identity, now_ns)
        except DatasetError as problem:
            raise PackError(str(problem)) from problem


class _Pages:
    """The pages of a list; one that does not come is asked for again."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store, self._folder = store, folder
        self._after: str | None = None
        self._stream: AsyncIterator[list[Written]] | None = None

    async def next(self) -> list[Written]:
        """The next page; an empty one at the end."""
        if self._stream is None:
            self._stream = self._store.pages(self._folder, self._after)
        try:
            async for page in self._stream:
                if page:
                    self._after = page[-1].name
                    return page
        except Exception:
            self._stream = None
            raise
        return []
