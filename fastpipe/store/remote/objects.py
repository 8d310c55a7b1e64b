"""The files behind a URL -> looked up, listed, read by ranges, written, removed; each is tried until it succeeds."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import xxhash

from fastpipe.errors import DatasetError, FastpipeError, PackError
from fastpipe.format.folder import Url
from fastpipe.format.open_file import FileState
from fastpipe.store.remote.connection import Connection, listed_by_hub
from fastpipe.store.remote.options import RemoteOptions
from fastpipe.store.remote.requests import request_thread
from fastpipe.store.remote.retry import AGAIN, ATTEMPTS, REMEDIES, WrongAnswerError, failure_of, pause_s

_T = TypeVar("_T")

REQUEST_BYTES = 8 << 20  # at once: a larger range is several requests
_AT_A_TIME = 64  # requests for facts
_PIECES = 8  # of a large range, at a time
_PAGE = 1000  # names
_PARTS, _LEAST_PART_BYTES, _MOST_PARTS = 4, 8 << 20, 9000  # of an upload
_REMOVALS = 16  # at a time


@dataclass(frozen=True)
class Answer:
    """Bytes of a file, and what the server says of the whole file."""

    data: Any  # has the buffer protocol
    state: FileState
    etag: str | None
    attributes: Mapping[str, str]


Check = Callable[[Answer], str | None]


class ShardError(DatasetError, OSError):
    """A shard behind a URL cannot be read, told to code that reads files."""


class Objects:
    """The files behind a URL: requests to them are made until they succeed, in the thread of requests, where all that
    is `async` runs. Safe in threads.

    `error` is raised where a request does not succeed; the advice in it follows from that.
    """

    def __init__(self, url: Url, options: RemoteOptions, error: type[FastpipeError] = DatasetError) -> None:
        self.url, self.patience_s = url, options.patience_s
        self.has_lists = not url.is_web
        # Content never changes behind a name: so ETags, which differ from server to server, are not compared.
        self.pinned = url.scheme == "hf"
        self._thread = request_thread()
        self._connection = Connection(url, options)
        self._begin(error)

    def _begin(self, error: type[FastpipeError]) -> None:
        self._error = error
        self.requests = self.retries = 0
        self.busy_at = 0.0  # when a server last wanted fewer requests; of time.monotonic()
        self.trouble = ""  # what went wrong last
        self._flying: set[Future[Any]] = set()
        self._cancelled = False
        self._etags: dict[str, str | None] = {}

    def apart(self, error: type[FastpipeError] | None = None) -> Self:
        """The same files, with requests of its own: to cancel, to count, or with other errors."""
        other = copy.copy(self)
        other._begin(error or self._error)
        return other

    def start(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Runs it in the thread of requests. CancelledError: `cancel` was called. EngineError: the program ends."""
        if self._cancelled:
            work.close()
            raise CancelledError
        future = self._thread.start(work)
        self._flying.add(future)
        future.add_done_callback(self._flying.discard)
        if self._cancelled:
            future.cancel()
        return future

    def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def cancel(self) -> None:
        """Gives up all requests; who waits for one gets CancelledError, and so does who makes one from now on."""
        self._cancelled = True
        for each in list(self._flying):
            each.cancel()

    async def insist(self, work: Callable[[], Awaitable[_T]], what: str) -> _T:
        """Makes a request until it succeeds; an error begins with `what`, such as "URL cannot be fetched"."""
        began, attempt = time.monotonic(), 0
        while True:
            attempt += 1
            self.requests += 1
            self.retries += attempt > 1
            asked_at = time.monotonic()
            try:
                return await work()
            except FastpipeError:
                raise
            except Exception as problem:
                failure = failure_of(problem)
                remedy, self.trouble = REMEDIES[failure.kind], failure.words
                late = time.monotonic() - began > self.patience_s
                if late or (remedy.tries is not None and attempt >= remedy.tries):
                    advice = remedy.loading
                    if self._error is PackError:
                        advice = f"{remedy.packing or advice}. {AGAIN}"
                    raise self._error(
                        f"{what}: {self.trouble}, after {attempt} attempt{'s' * (attempt > 1)} in "
                        f"{time.monotonic() - began:.1f} s. {advice}"
                    ) from problem
            if busy := failure.status in (429, 503):  # the server wants fewer requests
                self.busy_at = time.monotonic()
            await asyncio.sleep(pause_s(attempt, busy, self.patience_s))
            if remedy.renew and self._connection.made_at < asked_at:  # once for all requests that were refused together
                self._connection.renew()

    def _each(self, work: Callable[[str], Awaitable[_T]], names: Iterable[str], what: str, most: int) -> list[_T]:
        """The results of a request for each file, so many at a time."""

        def begin(name: str) -> Future[_T]:
            return self.start(self.insist(lambda: work(name), f"{self.url / name} cannot be {what}"))

        return list(in_order(map(begin, names), most))

    def stats(self, names: Sequence[str]) -> list[FileState | None]:
        """The states of files, several at a time; None where there is no such file."""
        import obstore

        async def head(name: str) -> FileState | None:
            with contextlib.suppress(FileNotFoundError, ValueError):  # ValueError: no object can have such a name
                return _state_of(await obstore.head_async(self._connection.reading, name))
            return None

        return self._each(head, names, "looked at", _AT_A_TIME)

    def listed(self, folder: str) -> Iterator[tuple[str, FileState]]:
        """The files below a folder, by name. A page that does not come is asked for again, behind the last name."""
        if self.pinned:
            try:
                # The Hub tells no times: any file may be newer than a dataset that was packed before.
                now_s, options = time.time(), dict(self._connection.options.storage)
                for name, size_bytes, identity in listed_by_hub(self.url, options, folder):
                    yield name, _state(size_bytes, identity, now_s)
            except DatasetError as problem:
                raise self._error(str(problem)) from problem
            return
        after: str | None = None
        pages: AsyncIterator[Sequence[Any]] | None = None

        async def next_page() -> Sequence[Any]:
            nonlocal after, pages
            pages = pages or self._pages(folder, after)
            try:
                async for page in pages:
                    after = page[-1]["path"]
                    return page
            except Exception:
                pages = None
                raise
            return ()

        what = f"{self.url / folder if folder else self.url} cannot be listed"
        while page := self.wait(self.insist(next_page, what)):
            for each in page:
                yield each["path"], _state_of(each)

    def _pages(self, folder: str, after: str | None) -> AsyncIterator[Sequence[Any]]:
        import obstore

        return aiter(obstore.list(self._connection.reading, folder or None, offset=after, chunk_size=_PAGE))

    async def get(self, name: str, start: int, stop: int | None, check: Check = lambda _: None) -> Answer:
        """A range of a file, as far as the file goes; with None, all of it. The cause of the error is a
        FileNotFoundError where there is no such file. `check` says what is wrong with the content, which is then asked
        for again; content that stays wrong is given as it is.
        """
        asked = "" if stop is None else f", bytes {start:,} to {stop:,}"
        wrong = 0

        async def get() -> Answer:
            nonlocal wrong
            answer = await self._get(name, start, stop)
            complaint = check(answer)
            wrong += 1
            if complaint is None or wrong == ATTEMPTS:
                return answer
            raise WrongAnswerError(complaint)

        return await self.insist(get, f"{self.url / name}{asked} cannot be fetched")

    async def _get(self, name: str, start: int, stop: int | None) -> Answer:
        import obstore

        asked: Any = {} if stop is None else {"range": (start, stop)}
        result = await obstore.get_async(self._connection.reading, name, options=asked)
        state = _state_of(result.meta)
        stop = state.size_bytes if stop is None else min(stop, max(state.size_bytes, start + 1))
        data = await result.bytes_async()
        if tuple(result.range) != (start, stop) or len(data) != stop - start:
            raise WrongAnswerError(f"{len(data):,} bytes of the range {result.range[0]}-{result.range[1]}")
        return Answer(data, state, result.meta["e_tag"], result.attributes)

    def find(self, name: str, stop: int | None = None) -> Answer | None:
        """A small file, or its first bytes; None: there is no such file."""

        async def find() -> Answer | None:
            with contextlib.suppress(FileNotFoundError):
                return await self._get(name, 0, stop)
            return None

        return self.wait(self.insist(find, f"{self.url / name} cannot be fetched"))

    def pieces(
        self, get: Callable[[int, int], Coroutine[Any, Any, Answer]], start: int, stop: int
    ) -> Iterator[memoryview]:
        """A range of a file, in order, by several requests at a time, which `get` makes."""
        ranges = ((at, min(at + REQUEST_BYTES, stop)) for at in range(start, stop, REQUEST_BYTES))
        for answer in in_order((self.start(get(*each)) for each in ranges), _PIECES):
            yield memoryview(answer.data)

    async def fetch(
        self, name: str, start: int, stop: int | None, size_bytes: int | None = None, check: Check = lambda _: None
    ) -> Answer:
        """A range of a file that nobody changes, and that has this size; None: any. See `get`."""

        def same(answer: Answer) -> str | None:
            found = answer.state.size_bytes
            if size_bytes is not None and found != size_bytes:
                raise self._error(
                    f"{self.url / name} has {found:,} bytes; expected {size_bytes:,}, as dataset.json has it. Another "
                    "file has taken its place: upload the dataset again, into a folder of its own"
                )
            known = self._etags.setdefault(name, answer.etag)
            if None not in (known, answer.etag) and known != answer.etag:
                raise self._error(
                    f"{self.url / name} was replaced while it was read: expected ETag {known}, got {answer.etag}. "
                    "Open the dataset again; while one is in use, upload into another folder"
                )
            return check(answer)

        return await self.get(name, start, stop, same)

    def fetched(self, name: str, start: int, stop: int | None, size_bytes: int | None = None) -> Answer:
        return self.wait(self.fetch(name, start, stop, size_bytes))

    def whole(self, name: str) -> Iterator[memoryview]:
        """All of a file that nobody changes and that is not empty, piece by piece; it may be larger than memory."""
        first = self.fetched(name, 0, REQUEST_BYTES)
        yield memoryview(first.data)
        rest = len(first.data), first.state.size_bytes
        yield from self.pieces(lambda start, stop: self.fetch(name, start, stop), *rest)

    def put(
        self, name: str, content: Path | bytes, attributes: Mapping[str, str], *, replaces: str | None = None
    ) -> bool:
        """Writes a file, which appears whole; a large one goes part by part. False: another file is there than the one
        with the ETag that it `replaces`; "": none may be there; None: any.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        size_bytes = content.stat().st_size if isinstance(content, Path) else len(content)
        how: dict[str, Any] = {
            "attributes": dict(attributes),
            "mode": {"e_tag": replaces} if replaces else "overwrite" if replaces is None else "create",
            "chunk_size": max(_LEAST_PART_BYTES, -(-size_bytes // _MOST_PARTS)),  # a smaller file is one part
            "max_concurrency": _PARTS,
        }

        async def put() -> bool:
            with contextlib.suppress(AlreadyExistsError, PreconditionError):
                await obstore.put_async(self._connection.writing, name, content, **how)
                return True
            return False

        return self.wait(self.insist(put, f"{self.url / name} cannot be uploaded"))

    def remove(self, names: Sequence[str]) -> None:
        import obstore

        async def delete(name: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                await obstore.delete_async(self._connection.writing, name)

        self._each(delete, names, "removed", _REMOVALS)


def in_order(futures: Iterable[Future[_T]], most: int) -> Iterator[_T]:
    """The results of futures, in order; so many of them are begun at a time."""
    begun: deque[Future[_T]] = deque()
    try:
        for each in futures:
            begun.append(each)
            if len(begun) == most:
                yield begun[0].result()
                begun.popleft()
        while begun:
            yield begun[0].result()
            begun.popleft()
    finally:
        for each in begun:
            each.cancel()


def _state_of(meta: Any) -> FileState:
    return _state(int(meta["size"]), meta["e_tag"], meta["last_modified"].timestamp())


def _state(size_bytes: int, etag: str | None, modified_s: float) -> FileState:
    written_ns = (int(modified_s) + 1) * 10**9
    # Azure has quotes around it in one answer and none in another.
    bare = (etag or "").removeprefix("W/").strip('"')
    return FileState(size_bytes, xxhash.xxh3_64_intdigest(bare.encode()) >> 1 if etag else written_ns, written_ns)
