"""A URL -> byte ranges of the files behind it, by obstore; each answer is checked to be what was asked for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from fastpipe.errors import ConfigError, EngineError
from fastpipe.format.folder import Url
from fastpipe.remote.options import RemoteOptions

_T = TypeVar("_T")

THREAD_NAME = "fastpipe-requests"

# Options that name another server than the cloud's own.
_ENDPOINTS = (
    *("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url"),
    *("azure_endpoint", "azure_storage_endpoint", "base_url", "google_base_url"),
)
_PAGE = 1000
# A part is sent and answered within _UPLOAD times read_timeout: at a slow link 8 MiB take their time.
_UPLOAD = 3
_PARTS, _LEAST_PART_BYTES, _MOST_PARTS = 4, 8 << 20, 9000
_PART_RETRIES = 6
_REMOVALS = 16  # at a time

# Note [obstore and fork]
# obstore's requests run in threads of a runtime that a process has once. After a fork the child has the runtime and
# none of its threads: a request would wait for ever. So a child of a process that has used obstore is refused; one of
# a process that has not starts its own.
_first_used_in: int | None = None


def refuse_forked() -> None:
    """Raises EngineError in a forked child of a process that has read remote data; Note [obstore and fork]."""
    if _first_used_in not in (None, os.getpid()):
        raise EngineError(
            f"process {_first_used_in} has read remote data, and this is its forked child {os.getpid()}: the threads "
            "that make requests do not exist here. Start workers in another way: pass "
            'multiprocessing_context="forkserver" to the DataLoader, or call '
            'torch.multiprocessing.set_start_method("forkserver") before'
        )


class Requests:
    """A thread that makes requests. It runs an event loop, so that a request that hangs can be given up at once.

    obstore itself is imported here, when the first remote dataset is opened.

    Raises:
        ConfigError: obstore is not installed.
        EngineError: this is a forked child.
    """

    def __init__(self) -> None:
        global _first_used_in
        refuse_forked()
        try:
            import obstore  # noqa: F401
        except ImportError as missing:
            raise ConfigError("reading a dataset by its URL needs obstore: pip install 'fastpipe[remote]'") from missing
        _first_used_in = os.getpid()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def begin(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Has the thread do it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def result(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Waits for it; Ctrl-C gives it up."""
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


_requests: tuple[int, Requests] | None = None  # of this process


def requests_of_process() -> Requests:
    """The thread of requests, which all datasets of a process share."""
    global _requests
    if _requests is None or _requests[0] != os.getpid():
        _requests = os.getpid(), Requests()
    return _requests[1]


@dataclass(frozen=True)
class Answer:
    """Bytes of a file.

    Attributes:
        data: them; anything with the buffer protocol.
        size_bytes: of the whole file.
        etag: of the file, as far as the server names one.
        modified_ns: when the file was written, in nanoseconds since 1970.
        attributes: that the file carries.
    """

    data: Any
    size_bytes: int
    etag: str | None
    modified_ns: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)


class Written(NamedTuple):
    """A file behind a URL, as a list or a HEAD request has it.

    Attributes:
        name: from the URL on.
        size_bytes, etag, modified_ns: as of Answer.
    """

    name: str
    size_bytes: int
    etag: str | None
    modified_ns: int


class WrongAnswerError(Exception):
    """A server sent something else than it was asked for; the text says what."""


class Store:
    """The files behind a URL.

    Args:
        url: of the folder.
        options: credentials and timeouts.
        uploads: it is there to write files.

    Attributes:
        url: as given.
        made_at: when it got its credentials; of time.monotonic().

    Raises:
        ConfigError: the options are none that the store knows.
    """

    def __init__(self, url: Url, options: RemoteOptions, *, uploads: bool = False) -> None:
        self.url = url
        self._options = options
        self._uploads = uploads
        self.renew()

    def renew(self) -> None:
        """Makes the store again: with the credentials of this moment."""
        self._store = _open(self.url, self._options, uploads=self._uploads)
        self.made_at = time.monotonic()

    async def get(self, name: str, start: int, stop: int | None) -> Answer:
        """A range of a file, as far as the file goes; None: all of it.

        Raises:
            WrongAnswerError: the answer is not what was asked for.
            Exception: of obstore: there is no answer.
        """
        import obstore

        if stop is not None:
            result = await obstore.get_async(self._store, name, options={"range": (start, stop)})
        else:
            result = await obstore.get_async(self._store, name)
            start, stop = 0, int(result.meta["size"])
        size_bytes = int(result.meta["size"])
        stop = min(stop, max(size_bytes, start + 1))
        data = await result.bytes_async()
        if tuple(result.range) != (start, stop) or len(data) != stop - start:
            raise WrongAnswerError(f"{len(data):,} bytes of the range {result.range[0]}-{result.range[1]}")
        modified_ns = _nanoseconds(result.meta["last_modified"])
        return Answer(data, size_bytes, result.meta["e_tag"], modified_ns, result.attributes)

    async def head(self, name: str) -> Written:
        """A file without its bytes.

        Raises:
            Exception: of obstore: there is no answer.
        """
        import obstore

        return _written(await obstore.head_async(self._store, name))

    async def pages(self, folder: str, after: str | None = None) -> AsyncIterator[list[Written]]:
        """The files below a folder, a page at a time, in the order of their names.

        Args:
            folder: "" is the URL's own.
            after: leaves out the names up to this one.

        Raises:
            Exception: of obstore: there is no answer.
        """
        import obstore

        async for page in obstore.list(self._store, folder or None, offset=after, chunk_size=_PAGE):
            yield [_written(each) for each in page]

    async def put(
        self,
        name: str,
        content: Path | bytes,
        attributes: Mapping[str, str] | None = None,
        *,
        replaces: str | None = None,
    ) -> None:
        """Writes a file, which appears whole; a large one part by part.

        Args:
            name: of it.
            content: its bytes, or the file of this machine that has them.
            attributes: that it gets.
            replaces: the ETag of the file that it takes the place of; "": there must be none; None: whatever there is.

        Raises:
            FileExistsError: another file is there.
            Exception: of obstore: there is no answer.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        size_bytes = content.stat().st_size if isinstance(content, Path) else len(content)
        part_bytes = max(_LEAST_PART_BYTES, -(-size_bytes // _MOST_PARTS))
        if size_bytes <= part_bytes and isinstance(content, Path):
            content = content.read_bytes()
        try:
            await obstore.put_async(
                self._store,
                name,
                content,
                attributes=dict(attributes or {}),
                mode={"e_tag": replaces} if replaces else "overwrite" if replaces is None else "create",
                use_multipart=size_bytes > part_bytes and replaces is None,
                chunk_size=part_bytes,
                max_concurrency=_PARTS,
            )
        except (AlreadyExistsError, PreconditionError) as problem:
            raise FileExistsError(str(self.url / name)) from problem

    async def remove(self, names: Sequence[str]) -> None:
        """Removes files, if they are there.

        Raises:
            Exception: of obstore: there is no answer.
        """
        import obstore

        limit = asyncio.Semaphore(_REMOVALS)

        async def remove(name: str) -> None:
            async with limit:
                with contextlib.suppress(FileNotFoundError):
                    await obstore.delete_async(self._store, name)

        await asyncio.gather(*map(remove, names))


def _written(meta: Any) -> Written:
    return Written(meta["path"], int(meta["size"]), meta["e_tag"], _nanoseconds(meta["last_modified"]))


def _nanoseconds(time: datetime) -> int:
    return int(time.timestamp()) * 10**9 + time.microsecond * 1000


def _open(url: Url, options: RemoteOptions, *, uploads: bool = False) -> Any:
    from obstore.exceptions import BaseError
    from obstore.store import HTTPStore, from_url

    web: Any = HTTPStore  # their options are typed one by one
    cloud: Any = from_url
    config = dict(options.storage)
    client: dict[str, Any] = {
        # Of a whole answer: at a slow link 8 MiB take their time, and a stalled one is seen by read_timeout.
        "timeout": timedelta(hours=1),
        "connect_timeout": timedelta(seconds=min(options.read_timeout_s, 10.0)),
        "read_timeout": timedelta(seconds=options.read_timeout_s * (_UPLOAD if uploads else 1)),
        "pool_max_idle_per_host": "64",
        **config.pop("client_options", {}),
    }
    # Tries are counted and told in retry.py.
    retry: Any = {"max_retries": 0, "retry_timeout": timedelta(0)}
    if uploads:  # but parts are uploaded by obstore: one that fails should not make all of them go again
        retry = {"max_retries": _PART_RETRIES, "retry_timeout": timedelta(seconds=options.patience_s)}
    scheme = url.split("://")[0].lower()
    try:
        if scheme == "hf":
            from fastpipe.remote.hub import resolved

            page, headers = resolved(url, config)
            client["default_headers"] = {**headers, **client.get("default_headers", {})}
            client = {"allow_http": page.startswith("http://"), **client}
            return web(page, client_options=client, retry_config=retry)
        if scheme in ("http", "https"):
            if config:
                raise ConfigError(
                    f"storage_options: expected only client_options for {scheme}://, got {', '.join(config)}"
                )
            return web(str(url), client_options={"allow_http": scheme == "http", **client}, retry_config=retry)
        of_aws = os.environ.get("AWS_ENDPOINT_URL", "") if scheme == "s3" else ""
        named = [config[name] for name in _ENDPOINTS if name in config] or [of_aws]
        if named[0] and not str(named[0]).startswith(("http://", "https://")):  # obstore would panic at each request
            raise ConfigError(
                f"storage_options: the endpoint {named[0]} of {url} has to begin with https:// or http://"
            )
        client = {"allow_http": str(named[0]).startswith("http://"), **client}
        if scheme == "s3":
            config = {**_aws_profile(config), **config}
        # Names in buckets have no escapes, but obstore takes %20 of a URL for a space.
        return cloud(quote(url, safe=":/@"), client_options=client, retry_config=retry, **config)
    except (BaseError, ValueError, TypeError) as problem:
        if isinstance(problem, ConfigError):
            raise
        words = " ".join(str(problem).split("Debug source")[0].split())[:300].rstrip(".")
        raise ConfigError(
            f"storage_options: {url} cannot be opened with {', '.join(config) or 'none'}: {words}; pass them as "
            "obstore's stores name them: https://developmentseed.org/obstore/latest/api/store/aws/"
        ) from problem


def _aws_profile(config: dict[str, Any]) -> dict[str, Any]:
    """Credentials of ~/.aws, where boto3 is installed and nothing else says who one is; obstore itself reads the
    environment, and the services of EC2, ECS and EKS.
    """
    said = any(
        "key" in name or name.removeprefix("aws_") in ("skip_signature", "credential_provider") for name in config
    )
    files = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), "~/.aws/config"
    there = "AWS_PROFILE" in os.environ or any(os.path.exists(os.path.expanduser(each)) for each in files)
    if said or "AWS_ACCESS_KEY_ID" in os.environ or not there:
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return {}
    return {"credential_provider": Boto3CredentialProvider()}
