"""The files behind a URL -> looked up, listed, read by ranges, written, removed; each is tried until it succeeds."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from fastpipe.errors import DatasetError, FastpipeError
from fastpipe.format.open_file import FileState
from fastpipe.remote.client import Client
from fastpipe.remote.retry import ATTEMPTS, WrongAnswerError

_T = TypeVar("_T")

REQUEST_BYTES = 8 << 20  # at once: a larger range is several requests
_AT_A_TIME = 64  # requests for facts
_PIECES = 8  # of a large range, at a time
_PAGE = 1000  # names
_PARTS, _LEAST_PART_BYTES, _MOST_PARTS = 4, 8 << 20, 9000  # of an upload
_REMOVALS = 16  # at a time


@dataclass(frozen=True)
class Answer:
    """Bytes of a file.

    Attributes:
        data: they; anything with the buffer protocol.
        state: of the file.
        etag: of the file, as far as the server names one.
        attributes: that the file carries.
    """

    data: Any
    state: FileState
    etag: str | None
    attributes: Mapping[str, str]


class ShardError(DatasetError, OSError):
    """A shard behind a URL cannot be read, told to code that reads files."""


class Objects(Client):
    """The files behind a URL; see Client. What is `async` runs in the thread of requests."""

    def _begin(self, error: type[FastpipeError]) -> None:
        super()._begin(error)
        self._etags: dict[str, str | None] = {}

    # ---- what is there

    def stats(self, names: Sequence[str]) -> list[FileState | None]:
        """The states of files, several at a time; None where there is no such file. Raises the error."""
        import obstore

        async def head(name: str) -> FileState | None:
            try:
                return _state_of(await obstore.head_async(self._stores.reading, name))
            except (FileNotFoundError, ValueError):  # a name that no object can have
                return None

        async def stat(name: str) -> FileState | None:
            return await self.insist(lambda: head(name), f"{self.url / name} cannot be looked at")

        return self.wait(_several(stat, names, _AT_A_TIME))

    def listed(self, folder: str) -> Iterator[tuple[str, FileState]]:
        """The files below a folder, by name, as many as there are. Raises the error.

        A page of the list that does not come is asked for again, behind the last name that came.
        """
        if self.pinned:
            from fastpipe.remote.hub import listed

            try:
                # The Hub tells no times: any file may be newer than a dataset that was packed before.
                now_s = time.time()
                for name, size_bytes, identity in listed(self.url, dict(self._stores.options.storage), folder):
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
        """What obstore says of the files below a folder, in the order of their names, behind one of them."""
        import obstore

        return aiter(obstore.list(self._stores.reading, folder or None, offset=after, chunk_size=_PAGE))

    # ---- bytes

    async def get(
        self, name: str, start: int, stop: int | None, check: Callable[[Answer], str | None] = lambda _: None
    ) -> Answer:
        """A range of a file, as far as the file goes; with None, all of it.

        Args:
            check: what is wrong with the content, in words, or None. It is asked for again; content that stays wrong is
                given as it is.

        Raises the error, which is caused by a FileNotFoundError where there is no such file.
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
        result = await obstore.get_async(self._stores.reading, name, options=asked)
        state = _state_of(result.meta)
        stop = state.size_bytes if stop is None else min(stop, max(state.size_bytes, start + 1))
        data = await result.bytes_async()
        if tuple(result.range) != (start, stop) or len(data) != stop - start:
            raise WrongAnswerError(f"{len(data):,} bytes of the range {result.range[0]}-{result.range[1]}")
        return Answer(data, state, result.meta["e_tag"], result.attributes)

    def find(self, name: str, stop: int | None = None) -> Answer | None:
        """A small file, or its first bytes; None: there is no such file. Raises the error."""

        async def find() -> Answer | None:
            with contextlib.suppress(FileNotFoundError):
                return await self._get(name, 0, stop)
            return None

        return self.wait(self.insist(find, f"{self.url / name} cannot be fetched"))

    def pieces(
        self, get: Callable[[int, int], Coroutine[Any, Any, Answer]], start: int, stop: int
    ) -> Iterator[memoryview]:
        """A range of a file, by several requests at a time, in order.

        Args:
            get: begins to fetch some of it.
        """
        begun: deque[Future[Answer]] = deque()
        try:
            for at in range(start, stop, REQUEST_BYTES):
                begun.append(self.start(get(at, min(at + REQUEST_BYTES, stop))))
                if len(begun) == _PIECES:
                    yield memoryview(begun.popleft().result().data)
            while begun:
                yield memoryview(begun.popleft().result().data)
        finally:
            for each in begun:
                each.cancel()

    # ---- files that stay as they were first seen: those of a dataset

    async def fetch(
        self,
        name: str,
        start: int,
        stop: int | None,
        *,
        size_bytes: int | None = None,
        check: Callable[[Answer], str | None] = lambda _: None,
    ) -> Answer:
        """A range of a file that nobody changes; see `get`.

        Args:
            size_bytes: that the whole file has to have; None: any.
        """

        def same(answer: Answer) -> str | None:
            self._refuse_another(name, answer, size_bytes)
            return check(answer)

        return await self.get(name, start, stop, same)

    def fetched(self, name: str, start: int, stop: int | None, size_bytes: int | None = None) -> Answer:
        """The same, and waits for it."""
        return self.wait(self.fetch(name, start, stop, size_bytes=size_bytes))

    def whole(self, name: str) -> Iterator[memoryview]:
        """All of a file that nobody changes and that is not empty, piece by piece; it may be larger than memory."""
        first = self.fetched(name, 0, REQUEST_BYTES)
        yield memoryview(first.data)
        rest = len(first.data), first.state.size_bytes
        yield from self.pieces(lambda start, stop: self.fetch(name, start, stop), *rest)

    def _refuse_another(self, name: str, answer: Answer, size_bytes: int | None) -> None:
        """Refuses a file that is not the one that the dataset's description or an earlier answer is of."""
        found = answer.state.size_bytes
        if size_bytes is not None and found != size_bytes:
            raise self._error(
                f"{self.url / name} has {found:,} bytes; expected {size_bytes:,}, as dataset.json has it. Another file "
                "has taken its place: upload the dataset again, into a folder of its own"
            )
        known = self._etags.setdefault(name, answer.etag)
        if None not in (known, answer.etag) and known != answer.etag:
            raise self._error(
                f"{self.url / name} was replaced while it was read: expected ETag {known}, got {answer.etag}. "
                "Open the dataset again; while one is in use, upload into another folder"
            )

    # ---- writing

    def put(
        self, name: str, content: Path | bytes, attributes: Mapping[str, str], *, replaces: str | None = None
    ) -> bool:
        """Writes a file, which appears whole; a large one part by part.

        Args:
            name: of it.
            content: its bytes, or the file of this machine that has them.
            attributes: that it gets.
            replaces: write only if the file that is there has this ETag; "": if there is none.

        Returns:
            False: another file is there than `replaces` says.

        Raises the error.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        size_bytes = content.stat().st_size if isinstance(content, Path) else len(content)
        mode: Any = {"e_tag": replaces} if replaces else "overwrite" if replaces is None else "create"
        part_bytes = max(_LEAST_PART_BYTES, -(-size_bytes // _MOST_PARTS))  # a smaller file is one part

        async def put() -> bool:
            try:
                await obstore.put_async(
                    self._stores.writing,
                    name,
                    content,
                    attributes=dict(attributes),
                    mode=mode,
                    chunk_size=part_bytes,
                    max_concurrency=_PARTS,
                )
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

        return self.wait(self.insist(put, f"{self.url / name} cannot be uploaded"))

    def remove(self, names: Sequence[str]) -> None:
        """Removes files, if they are there. Raises the error."""
        import obstore

        async def remove(name: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                await obstore.delete_async(self._stores.writing, name)

        if names:
            what = f"{self.url / names[0]} cannot be removed"
            self.wait(self.insist(lambda: _several(remove, names, _REMOVALS), what))


async def _several(work: Callable[[str], Awaitable[_T]], names: Sequence[str], most: int) -> list[_T]:
    """Does the same for each name, for so many at a time."""
    free = asyncio.Semaphore(most)

    async def one(name: str) -> _T:
        async with free:
            return await work(name)

    return await asyncio.gather(*map(one, names))


def _state_of(meta: Any) -> FileState:
    """The state of a file, of what obstore says of it."""
    return _state(int(meta["size"]), meta["e_tag"], meta["last_modified"].timestamp())


def _state(size_bytes: int, etag: str | None, modified_s: float) -> FileState:
    written_ns = (int(modified_s) + 1) * 10**9
    if not etag:
        return FileState(size_bytes, written_ns, written_ns)
    # Azure has quotes around it in one answer and none in another.
    bare = etag.removeprefix("W/").strip('"')
    return FileState(size_bytes, xxhash.xxh3_64_intdigest(bare.encode()) >> 1, written_ns)
