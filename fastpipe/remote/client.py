"""A URL -> obstore's stores for it, and requests to them, each made until it succeeds."""

from __future__ import annotations

import asyncio
import copy
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from datetime import timedelta
from typing import Any, Self, TypeVar
from urllib.parse import quote

from fastpipe.errors import ConfigError, DatasetError, EngineError, FastpipeError, PackError
from fastpipe.format.folder import Url
from fastpipe.remote.options import RemoteOptions
from fastpipe.remote.retry import pause_s, verdict_on, words_of

_T = TypeVar("_T")

THREAD_NAME = "fastpipe-requests"

# Options that name another server than the cloud's own.
_ENDPOINTS = (
    *("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url"),
    *("azure_endpoint", "azure_storage_endpoint", "base_url", "google_base_url"),
)
# A part is sent and answered within _UPLOAD times read_timeout: at a slow link 8 MiB take their time.
_UPLOAD = 3
_PART_RETRIES = 6

# Note [obstore and fork]
# obstore's requests run in threads of a runtime that a process has once. After a fork the child has the runtime and
# none of its threads: a request would wait for ever. So a child of a process that has used obstore is refused; one of
# a process that has not starts its own.
_started: tuple[int, asyncio.AbstractEventLoop] | None = None  # the process, and the loop


def refuse_forked() -> None:
    """Raises EngineError in a forked child of a process that has read remote data; Note [obstore and fork]."""
    if _started is not None and _started[0] != os.getpid():
        raise EngineError(
            f"process {_started[0]} has read remote data, and this is its forked child {os.getpid()}: the threads "
            "that make requests do not exist here. Start workers in another way: pass "
            'multiprocessing_context="forkserver" to the DataLoader, or call '
            'torch.multiprocessing.set_start_method("forkserver") before'
        )


def loop_of_process() -> asyncio.AbstractEventLoop:
    """The event loop of the thread that makes all requests of a process: one that hangs is given up at once. It is
    started with the first dataset. ConfigError: obstore is not installed. EngineError: this is a forked child.
    """
    global _started
    refuse_forked()
    if _started is None:
        try:
            import obstore  # noqa: F401
        except ImportError as missing:
            raise ConfigError("reading a dataset by its URL needs obstore: pip install 'fastpipe[remote]'") from missing
        _started = os.getpid(), asyncio.new_event_loop()
        threading.Thread(target=_run, args=_started[1:], name=THREAD_NAME, daemon=True).start()
    return _started[1]


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


class _Stores:
    """obstore's stores for a URL: one to read, and one with more patience to write. They get credentials together."""

    def __init__(self, url: Url, options: RemoteOptions) -> None:
        self._url, self.options = url, options
        self.renew()

    def renew(self) -> None:
        """Makes them again: with the credentials of this moment."""
        self.reading = _store(self._url, self.options)
        self._writing: Any = None
        self.made_at = time.monotonic()

    @property
    def writing(self) -> Any:
        if self._writing is None:
            self._writing = _store(self._url, self.options, uploads=True)
        return self._writing


class Client:
    """Makes requests to a URL until they succeed, in the thread of requests. Safe in threads.

    Args:
        url: that names begin behind.
        options: credentials and timeouts.
        error: that is raised where a request does not succeed; the advice in it follows from that.

    Attributes:
        url: as given.
        patience_s: how long a request is tried.
        has_lists: the server can list files; web servers cannot.
        pinned: content never changes behind a name; so ETags, which differ from server to server, are not compared.
        loop: of the thread of requests.
        requests: made.
        retries: those of them that were made again.
        busy_at: when a server last wanted fewer requests; of time.monotonic().
        trouble: what went wrong last, in words; "" if nothing did.

    Raises:
        ConfigError: the options are none that obstore's store knows.
    """

    def __init__(self, url: Url, options: RemoteOptions, error: type[FastpipeError] = DatasetError) -> None:
        self.url, self.patience_s = url, options.patience_s
        scheme = url.split("://")[0].lower()
        self.has_lists, self.pinned = scheme not in ("http", "https"), scheme == "hf"
        self.loop = loop_of_process()
        self._stores = _Stores(url, options)
        self._begin(error)

    def _begin(self, error: type[FastpipeError]) -> None:
        self._error = error
        self.requests = self.retries = 0
        self.busy_at = 0.0
        self.trouble = ""
        self._flying: set[Future[Any]] = set()
        self._cancelled = False

    def apart(self, error: type[FastpipeError] | None = None) -> Self:
        """The same, with requests of its own: to cancel, to count, or with other errors."""
        other = copy.copy(self)
        other._begin(error or self._error)
        return other

    def start(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Has the thread of requests do something."""
        if self._cancelled:
            work.close()
            raise CancelledError
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        self._flying.add(future)
        future.add_done_callback(self._flying.discard)
        if self._cancelled:
            future.cancel()
        return future

    def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The same, and waits for it; Ctrl-C gives it up."""
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
        """Makes a request until it succeeds.

        Args:
            work: makes it once.
            what: the sentence that an error begins with: "URL cannot be fetched".
        """
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
                verdict, self.trouble = verdict_on(problem), words_of(problem)
                late = time.monotonic() - began > self.patience_s
                if late or (verdict.tries is not None and attempt >= verdict.tries):
                    advice = verdict.packing if self._error is PackError and verdict.packing else verdict.loading
                    raise self._error(
                        f"{what}: {self.trouble}, after {attempt} attempt{'s' * (attempt > 1)} in "
                        f"{time.monotonic() - began:.1f} s. {advice}"
                    ) from problem
            if verdict.busy:
                self.busy_at = time.monotonic()
            await asyncio.sleep(pause_s(attempt, verdict.busy, self.patience_s))
            if verdict.renew and self._stores.made_at < asked_at:  # once for all requests that were refused together
                self._stores.renew()


def _store(url: Url, options: RemoteOptions, *, uploads: bool = False) -> Any:
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
    # Tries are counted and told by Client.
    retry: Any = {"max_retries": 0, "retry_timeout": timedelta(0)}
    if uploads:  # but parts are uploaded by obstore: one that fails should not make all of them go again
        retry = {"max_retries": _PART_RETRIES, "retry_timeout": timedelta(seconds=options.patience_s)}
    scheme = url.split("://")[0].lower()
    try:
        if scheme in ("hf", "http", "https"):
            page, headers = str(url), dict[str, str]()
            if scheme == "hf":
                from fastpipe.remote.hub import resolved

                page, headers = resolved(url, config)
            elif config:
                raise ConfigError(
                    f"storage_options: expected only client_options for {scheme}://, got {', '.join(config)}"
                )
            client["default_headers"] = {**headers, **client.get("default_headers", {})}
            client = {"allow_http": page.lower().startswith("http://"), **client}
            return web(page, client_options=client, retry_config=retry)
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
