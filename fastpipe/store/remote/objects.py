"""The files behind a URL -> listed, read by ranges, written, removed; tried until it succeeds."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import time
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import xxhash

from fastpipe.dataset.format.folder import Url
from fastpipe.dataset.format.layout import shard_number
from fastpipe.dataset.format.open_file import FileState
from fastpipe.errors import DatasetError, FastpipeError, PackError, format_count
from fastpipe.store.remote.connection import (
    Connection,
    endpoint_of,
    lacks_credentials,
    listed_by_hub,
)
from fastpipe.store.remote.options import RemoteOptions
from fastpipe.store.remote.requests import request_thread
from fastpipe.store.remote.retry import (
    AGAIN,
    ATTEMPTS,
    NO_CREDENTIALS,
    NO_ENDPOINT,
    REMEDIES,
    Failure,
    Remedy,
    RequestError,
    WrongAnswerError,
    failure_of,
    pause_s,
)

_T = TypeVar("_T")
_LOG = logging.getLogger("fastpipe")

# A larger range is split into several requests.
REQUEST_BYTES = 8 << 20
_STATS_AT_A_TIME = 64
_PIECES_AT_A_TIME = 8
_REMOVALS_AT_A_TIME = 16
_NAMES_PER_PAGE = 1000
# An upload sends so many parts at a time. S3 takes at most 10,000 parts of a file.
_PARTS_AT_A_TIME = 4
_MIN_PART_BYTES = 8 << 20
_MAX_PARTS = 9000
# By kind of failure: a server that has never answered is tried for so long.
_FIRST_CONTACT_S = {
    "closed": 10.0,  # the server may start at the same time as this program
    "host": 2.0,  # a wrong name stays wrong
    "certificate": 2.0,
    "role": 5.0,  # most machines have none
}
# By these kinds of failure, a server of the user's own may be meant.
_KINDS_OF_WRONG_SERVER = ("denied", "role", "host")
# The log says that requests fail if one has failed for so long, and then at most so often.
_TELL_AFTER_S = 5.0
_TELL_EVERY_S = 60.0
# A shard is only fetched if dataset.json is there, so the URL is right.
_MISSING_SHARD = (
    "dataset.json lists this shard, so it was removed or not uploaded: upload it again from a copy of "
    "the dataset, or pack the source again"
)
# HTTP's Too Many Requests and Service Unavailable: the server wants fewer requests.
_BUSY_STATUS = (429, 503)


@dataclass(frozen=True)
class Answer:
    """Bytes of a file, and what the server says of the whole file."""

    # Has the buffer protocol.
    data: Any
    state: FileState
    etag: str | None
    attributes: Mapping[str, str]


# Returns what is wrong with the content of an answer, or None.
Check = Callable[[Answer], str | None]


class ShardError(DatasetError, OSError):
    """A shard behind a URL cannot be read. It is an OSError for code that reads files."""


class Objects:
    """The files behind a URL. Requests are made until they succeed. Safe in threads.

    All that is `async` runs in the thread of requests. `error` is raised if a request does not
    succeed; its class decides which advice the message gives.
    """

    def __init__(
        self,
        url: Url,
        options: RemoteOptions,
        error: type[FastpipeError] = DatasetError,
    ) -> None:
        self.url = url
        self.patience_s = options.patience_s
        self.has_lists = not url.is_web
        # On the Hub, a name at a commit always has the same content. ETags are not compared there,
        # because they differ from server to server.
        self.pinned = url.scheme == "hf"
        self._thread = request_thread()
        self._connection = Connection(url, options)
        self._begin(error)

    def _begin(self, error: type[FastpipeError]) -> None:
        """Sets what `apart` does not share."""
        self._error = error
        self.requests = 0
        self.retries = 0
        # When a server last wanted fewer requests, by time.monotonic().
        self.busy_at = 0.0
        # The last error, in a line.
        self.trouble = ""
        self._under_way: set[Future[Any]] = set()
        self._is_cancelled = False
        # The ETag that each file had at the first request.
        self._etags: dict[str, str | None] = {}

    def apart(self, error: type[FastpipeError] | None = None) -> Self:
        """The same files, with requests of its own: to cancel, to count, or with other errors."""
        other = copy.copy(self)
        other._begin(error or self._error)
        return other

    def start(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Runs a coroutine in the thread of requests.

        Raises:
            CancelledError: `cancel` was called.
            EngineError: the program ends.
        """
        if self._is_cancelled:
            work.close()
            raise CancelledError
        future = self._thread.start(work)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        # `cancel` may have been called since the first look.
        if self._is_cancelled:
            future.cancel()
        return future

    def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine and waits for its result. Errors as of `start`."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def cancel(self) -> None:
        """Cancels all requests.

        Whoever waits for one gets CancelledError, and so does every later request.
        """
        self._is_cancelled = True
        for future in list(self._under_way):
            future.cancel()

    async def insist(
        self,
        work: Callable[[], Awaitable[_T]],
        failure_text: str,
        if_missing: str = "",
    ) -> _T:
        """Makes a request until it succeeds.

        Args:
            work: makes the request.
            failure_text: how an error begins, such as "URL cannot be fetched".
            if_missing: the advice if the file does not exist; "": to check the URL.
        """
        first_start = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            self.requests += 1
            if attempt > 1:
                self.retries += 1
            start_time = time.monotonic()
            try:
                result = await work()
                self._connection.has_answered = True
                return result
            except FastpipeError:
                # Ours are final, as of a replaced file. WrongAnswerError is none of ours, and the
                # request is made again.
                raise
            except Exception as problem:
                failure = failure_of(problem)
                remedy = REMEDIES[failure.kind]
                if failure.kind == "missing" and if_missing:
                    remedy = remedy._replace(loading=if_missing)
                self.trouble = failure.words
                elapsed_s = time.monotonic() - first_start
                has_tries = remedy.tries is None or attempt < remedy.tries
                patience_s = self._patience_for(failure)
                left_s = patience_s - elapsed_s
                if left_s <= 0 or not has_tries:
                    _LOG.debug("%s: %s", failure_text, problem)
                    raise self._last_error(
                        failure_text, failure, remedy, attempt, elapsed_s
                    ) from RequestError(failure)
                if elapsed_s > _TELL_AFTER_S:
                    self._tell(failure_text, failure, remedy, elapsed_s, patience_s)
            is_busy = failure.status in _BUSY_STATUS
            if is_busy:
                self.busy_at = time.monotonic()
            # The last try begins when the time is over, not a long pause later.
            await asyncio.sleep(min(left_s, pause_s(attempt, is_busy, patience_s)))
            # Requests that were refused together read the credentials once.
            if remedy.renew and self._connection.made_at < start_time:
                self._connection.renew()

    def _patience_for(self, failure: Failure) -> float:
        """How long a request is made again that fails in this way.

        A server that restarts refuses connections for a time, and its name may be unknown while
        its network changes. One that has never answered has most likely another address.
        """
        if failure.status:
            self._connection.has_answered = True
        if self._connection.has_answered:
            return self.patience_s
        first_contact_s = _FIRST_CONTACT_S.get(failure.kind, self.patience_s)
        return min(first_contact_s, self.patience_s)

    def _tell(
        self,
        failure_text: str,
        failure: Failure,
        remedy: Remedy,
        elapsed_s: float,
        patience_s: float,
    ) -> None:
        """Logs that a request is made again, now and then: nobody should wait without knowing why."""
        now_s = time.monotonic()
        if now_s - self._connection.told_at < _TELL_EVERY_S:
            return
        self._connection.told_at = now_s
        _LOG.warning(
            "%s: %s, for %.0f s so far. The request is made again for up to %.0f s. %s",
            failure_text,
            failure.words,
            elapsed_s,
            patience_s,
            self._advice(failure, remedy),
        )

    def _last_error(
        self,
        failure_text: str,
        failure: Failure,
        remedy: Remedy,
        attempts: int,
        elapsed_s: float,
    ) -> FastpipeError:
        advice = self._advice(failure, remedy)
        if self._error is PackError:
            advice = f"{advice}. {AGAIN}"
        times = format_count(attempts, "attempt")
        return self._error(
            f"{failure_text}: {failure.words}, after {times} in {elapsed_s:.1f} s. {advice}"
        )

    def _advice(self, failure: Failure, remedy: Remedy) -> str:
        """What to do about a failure, for somebody who loads or packs."""
        advice = remedy.loading
        if self._error is PackError and remedy.packing:
            advice = remedy.packing
        options = dict(self._connection.options.storage)
        is_denied = failure.kind in ("denied", "role")
        if is_denied and lacks_credentials(self.url, options):
            advice = NO_CREDENTIALS
        has_own_server = self.url.scheme != "s3" or endpoint_of(self.url, options)
        if failure.kind in _KINDS_OF_WRONG_SERVER and not has_own_server:
            advice = f"{advice}. {NO_ENDPOINT}"
        return advice

    def _for_each(
        self,
        work: Callable[[str], Awaitable[_T]],
        names: Iterable[str],
        action: str,
        at_a_time: int,
    ) -> list[_T]:
        """Makes a request for each file. Returns the results in order."""

        def begin(name: str) -> Future[_T]:
            return self.start(
                self.insist(lambda: work(name), f"{self.url / name} cannot be {action}")
            )

        return list(in_order(map(begin, names), at_a_time))

    def stats(self, names: Sequence[str]) -> list[FileState | None]:
        """The states of files, several at a time; None if there is no such file."""
        import obstore

        async def head(name: str) -> FileState | None:
            # ValueError: no object can have such a name.
            with contextlib.suppress(FileNotFoundError, ValueError):
                return _state_of(
                    await obstore.head_async(self._connection.reading, name)
                )
            return None

        return self._for_each(head, names, "read", _STATS_AT_A_TIME)

    def listed(self, folder: str) -> Iterator[tuple[str, FileState]]:
        """The files below a folder, by name.

        If a page of the list cannot be fetched, it is asked for again, behind the last name.
        """
        if self.pinned:
            return self._listed_by_hub(folder)
        return self._listed_by_pages(folder)

    def _listed_by_hub(self, folder: str) -> Iterator[tuple[str, FileState]]:
        # The Hub has no times of files: any may be newer than a dataset that was packed before.
        now_s = time.time()
        options = dict(self._connection.options.storage)
        try:
            for name, size_bytes, content_id in listed_by_hub(
                self.url, options, folder
            ):
                yield name, _state(size_bytes, content_id, now_s)
        except DatasetError as problem:
            raise self._error(str(problem)) from problem

    def _listed_by_pages(self, folder: str) -> Iterator[tuple[str, FileState]]:
        last_name: str | None = None
        pages: AsyncIterator[Sequence[Any]] | None = None

        async def next_page() -> Sequence[Any]:
            nonlocal last_name, pages
            if pages is None:
                pages = self._pages(folder, last_name)
            try:
                async for page in pages:
                    last_name = page[-1]["path"]
                    return page
            except Exception:
                # The next try begins a new list behind the last name.
                pages = None
                raise
            return ()

        top = self.url / folder if folder else self.url
        while page := self.wait(self.insist(next_page, f"{top} cannot be listed")):
            for entry in page:
                yield entry["path"], _state_of(entry)

    def _pages(self, folder: str, after: str | None) -> AsyncIterator[Sequence[Any]]:
        import obstore

        pages = obstore.list(
            self._connection.reading,
            folder or None,
            offset=after,
            chunk_size=_NAMES_PER_PAGE,
        )
        return aiter(pages)

    async def get(
        self, name: str, start: int, stop: int | None, check: Check = lambda _: None
    ) -> Answer:
        """Fetches a range of a file, up to its end if the file ends before.

        Args:
            name: the file's name.
            start: the first byte.
            stop: the byte after the last; None for the whole file.
            check: says what is wrong with the content, which is then asked for again. Content that
                stays wrong is returned as it is.

        Raises:
            the error of this object. Its `kind_of_failure` is "missing" if there is no such file.
        """
        num_wrong = 0

        async def get_checked() -> Answer:
            nonlocal num_wrong
            answer = await self._get(name, start, stop)
            complaint = check(answer)
            num_wrong += 1
            if complaint is None or num_wrong == ATTEMPTS:
                return answer
            raise WrongAnswerError(complaint)

        byte_range = ""
        if stop is not None:
            byte_range = f", bytes {start:,} to {stop:,}"
        failure_text = f"{self.url / name}{byte_range} cannot be fetched"
        if_missing = _MISSING_SHARD if shard_number(name) >= 0 else ""
        return await self.insist(get_checked, failure_text, if_missing)

    async def _get(self, name: str, start: int, stop: int | None) -> Answer:
        import obstore

        options: Any = {}
        if stop is not None:
            options = {"range": (start, stop)}
        result = await obstore.get_async(
            self._connection.reading, name, options=options
        )
        state = _state_of(result.meta)
        size_bytes = state.size_bytes
        if stop is None:
            stop = size_bytes
        else:
            stop = min(stop, max(size_bytes, start + 1))
        data = await result.bytes_async()
        # Some servers ignore the range, or send less than they say.
        is_range = tuple(result.range) == (start, stop)
        if not is_range or len(data) != stop - start:
            got_start, got_stop = result.range
            raise WrongAnswerError(
                f"{len(data):,} bytes of the range {got_start}-{got_stop}"
            )
        return Answer(data, state, result.meta["e_tag"], result.attributes)

    def find(self, name: str, stop: int | None = None) -> Answer | None:
        """A small file, or its first bytes up to `stop`; None if there is no such file."""

        async def find() -> Answer | None:
            with contextlib.suppress(FileNotFoundError):
                return await self._get(name, 0, stop)
            return None

        request = self.insist(find, f"{self.url / name} cannot be fetched")
        return self.wait(request)

    def find_optional(self, name: str) -> Answer | None:
        """A small file that most folders do not have; None: it is not there.

        Many buckets answer 403 for a file that does not exist, if the user may not list them.
        """

        async def find() -> Answer | None:
            try:
                return await self._get(name, 0, None)
            except Exception as problem:
                if failure_of(problem).kind in ("missing", "denied"):
                    return None
                raise

        request = self.insist(find, f"{self.url / name} cannot be fetched")
        return self.wait(request)

    def pieces(
        self,
        get: Callable[[int, int], Coroutine[Any, Any, Answer]],
        start: int,
        stop: int,
    ) -> Iterator[memoryview]:
        """A range of a file, in order. `get` fetches pieces of it, several at a time."""

        def begin(piece_start: int) -> Future[Answer]:
            piece_stop = min(piece_start + REQUEST_BYTES, stop)
            return self.start(get(piece_start, piece_stop))

        futures = map(begin, range(start, stop, REQUEST_BYTES))
        for answer in in_order(futures, _PIECES_AT_A_TIME):
            yield memoryview(answer.data)

    async def fetch(
        self,
        name: str,
        start: int,
        stop: int | None,
        size_bytes: int | None = None,
        check: Check = lambda _: None,
    ) -> Answer:
        """Fetches a range of a file that nobody changes. See `get`.

        Args:
            start, stop: the range; None as `stop` for the whole file, from 0.
            size_bytes: the size that the file has to have; None for any.
            check: says what is wrong with an answer, which is then asked for again; the last
                attempt's content is returned even if it is wrong.
        """

        def check_same(answer: Answer) -> str | None:
            got_bytes = answer.state.size_bytes
            if size_bytes is not None and got_bytes != size_bytes:
                raise self._error(
                    f"{self.url / name} has {got_bytes:,} bytes; expected {size_bytes:,}, as "
                    "dataset.json has it. Another file has taken its place: upload the dataset "
                    "again, into a folder of its own"
                )
            known = self._etags.setdefault(name, answer.etag)
            has_etags = known is not None and answer.etag is not None
            if has_etags and known != answer.etag:
                raise self._error(
                    f"{self.url / name} was replaced while it was read: expected ETag {known}, got "
                    f"{answer.etag}. Open the dataset again; while one is in use, upload into "
                    "another folder"
                )
            return check(answer)

        return await self.get(name, start, stop, check_same)

    def fetched(
        self, name: str, start: int, stop: int | None, size_bytes: int | None = None
    ) -> Answer:
        """Waits for `fetch`."""
        return self.wait(self.fetch(name, start, stop, size_bytes))

    def fetch_pieces(self, name: str) -> Iterator[memoryview]:
        """All of a file, piece by piece; it may be larger than memory.

        Nobody changes the file, and it is not empty.
        """
        first = self.fetched(name, 0, REQUEST_BYTES)
        yield memoryview(first.data)
        yield from self.pieces(
            lambda start, stop: self.fetch(name, start, stop),
            len(first.data),
            first.state.size_bytes,
        )

    def put(
        self,
        name: str,
        content: Path | bytes,
        attributes: Mapping[str, str],
        *,
        replaces: str | None = None,
    ) -> bool:
        """Writes a file, which appears whole. A large one is sent part by part.

        Args:
            name: the file's name.
            content: a file of this machine, or the bytes.
            attributes: the metadata.
            replaces: the ETag of the file that it replaces; "" if no file may have the name; None
                to replace any file.

        Returns:
            False if another file has the name than `replaces` says.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        size_bytes = (
            content.stat().st_size if isinstance(content, Path) else len(content)
        )
        mode: Any = "overwrite"
        if replaces == "":
            mode = "create"
        elif replaces is not None:
            mode = {"e_tag": replaces}
        # A file that is smaller than a part is sent in one request.
        part_bytes = max(_MIN_PART_BYTES, -(-size_bytes // _MAX_PARTS))

        async def put() -> bool:
            with contextlib.suppress(AlreadyExistsError, PreconditionError):
                await obstore.put_async(
                    self._connection.writing,
                    name,
                    content,
                    attributes=dict(attributes),
                    mode=mode,
                    chunk_size=part_bytes,
                    max_concurrency=_PARTS_AT_A_TIME,
                )
                return True
            return False

        request = self.insist(put, f"{self.url / name} cannot be uploaded")
        return self.wait(request)

    def remove(self, names: Sequence[str]) -> None:
        """Removes files that exist."""
        import obstore

        async def delete(name: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                await obstore.delete_async(self._connection.writing, name)

        self._for_each(delete, names, "removed", _REMOVALS_AT_A_TIME)


def without_cause(error: FastpipeError) -> FastpipeError:
    """The same error of a request, whose traceback begins where it is raised again.

    The message says already what its cause says.
    """
    error.__cause__ = None
    return error.with_traceback(None)


def in_order(futures: Iterable[Future[_T]], at_a_time: int) -> Iterator[_T]:
    """The results of futures, in order. Taking a future from the iterable begins it."""
    begun: deque[Future[_T]] = deque()
    try:
        for future in futures:
            begun.append(future)
            if len(begun) == at_a_time:
                yield begun[0].result()
                begun.popleft()
        while begun:
            yield begun[0].result()
            begun.popleft()
    finally:
        for future in begun:
            future.cancel()


def _state_of(meta: Any) -> FileState:
    size_bytes = int(meta["size"])
    modified_s = meta["last_modified"].timestamp()
    return _state(size_bytes, meta["e_tag"], modified_s)


def _state(size_bytes: int, etag: str | None, modified_s: float) -> FileState:
    written_ns = (int(modified_s) + 1) * 10**9
    if not etag:
        return FileState(size_bytes, written_ns, written_ns)
    # Azure puts quotes around the ETag in some answers only.
    bare_etag = etag.removeprefix("W/").strip('"')
    # FileState has a signed number.
    etag_hash = xxhash.xxh3_64_intdigest(bare_etag.encode()) >> 1
    return FileState(size_bytes, etag_hash, written_ns)
