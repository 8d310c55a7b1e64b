"""A range that does not come -> whether and when to try again, and in the end an error with all that is known."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from fastpipe.errors import DatasetError, FastpipeError
from fastpipe.remote.store import Answer, Store, WrongAnswerError

_T = TypeVar("_T")

_STATUS = re.compile(r"status code: (\d{3}) ?([^:\n]*)")
_KINDS = {
    "Timeout": "no byte for read_timeout seconds",
    "Connect": "no connection",
    "Interrupted": "the connection broke off",
    "Request": "the connection broke off",
}
_EXPIRED = re.compile(r"expired|InvalidToken|RequestTimeTooSkewed", re.IGNORECASE)
_NO_SIZE = re.compile(r"Header missing from response|Failed to parse value for CONTENT_\w+ header")
_MOST_WAIT_S = 10.0
ATTEMPTS = 3  # to get content whose hash is right


@dataclass(frozen=True)
class Verdict:
    """What an answer means.

    Attributes:
        tries: how often to try at most; None: as long as there is time.
        busy: the server wants fewer requests.
        renew: credentials may have changed.
        kind: "denied", "missing", "busy", "replaced", "refused", "region", "named" or "network": other users have
            other advice.
        advice: what to do if it stays so.
    """

    tries: int | None
    busy: bool = False
    renew: bool = False
    kind: str = "network"
    advice: str = "Check the network, and that the server is up"


def verdict_on(problem: Exception) -> Verdict:
    """Judges by kind and HTTP status."""
    text = str(problem)
    found = _STATUS.search(text)
    status = int(found[1]) if found else None
    if status in (401, 403) or (status == 400 and _EXPIRED.search(text)):
        advice = "Check the credentials, and that they may read the bucket; storage_options= takes others"
        return Verdict(4, renew=True, kind="denied", advice=advice)
    if isinstance(problem, FileNotFoundError) or status in (404, 410):
        advice = "Check the URL; it is that of the folder which has dataset.json in it"
        return Verdict(3, kind="missing", advice=advice)
    if status in (429, 500, 502, 503, 504, 408):
        advice = "The server is overloaded: train later, or with fewer ranks, or copy the dataset"
        return Verdict(None, busy=status in (429, 503), kind="busy", advice=advice)
    if status in (412, 416):
        advice = "The file has been replaced since the dataset was opened: open it again"
        return Verdict(1, kind="replaced", advice=advice)
    if status is not None and status >= 400:
        return Verdict(2, kind="refused", advice="Check URL and storage_options")
    if type(problem).__name__ == "NotSupportedError":
        advice = "The server has to answer ranges (HTTP 206); copy the dataset to one that does"
        return Verdict(3, kind="refused", advice=advice)
    if _NO_SIZE.search(text):
        advice = "The server has to tell sizes (Content-Length, Content-Range); copy the dataset to one that does"
        return Verdict(3, kind="refused", advice=advice)
    if "redirect without LOCATION" in text:
        advice = (
            'The bucket is in another region: set AWS_REGION, or pass storage_options={"region": "..."}. If the region '
            "is right, check the URL"
        )
        return Verdict(2, kind="region", advice=advice)
    if type(problem).__name__ == "InvalidPathError":
        advice = (
            "Names must have no empty part, as in a//b, no part . or .., and no control character: rename that object, "
            "or move it to another folder"
        )
        return Verdict(1, kind="named", advice=advice)
    if isinstance(problem, (ValueError, TypeError)):
        return Verdict(1, kind="refused", advice="Check URL and storage_options")
    return Verdict(None)


@dataclass
class Trouble:
    """What is counted of all requests of a dataset.

    Attributes:
        requests: made.
        retries: those of them that were made again.
        busy_at: when a server last wanted fewer requests; of time.monotonic().
        last: what went wrong last, in words; "" if nothing did.
    """

    requests: int = 0
    retries: int = 0
    busy_at: float = 0.0
    last: str = ""


async def insist(
    work: Callable[[], Awaitable[_T]],
    what: str,
    store: Store,
    patience_s: float,
    trouble: Trouble,
    *,
    advice: Mapping[str, str] | None = None,
    error: type[FastpipeError] = DatasetError,
) -> _T:
    """Makes a request until it succeeds.

    Args:
        work: makes it once.
        what: the sentence that an error begins with: "URL cannot be fetched".
        store: that gets new credentials if the old ones are refused.
        patience_s: how long it is tried.
        trouble: is counted up.
        advice: kind of a verdict -> what to do, where that is not what the verdict says.
        error: that is raised.

    Raises:
        FastpipeError: `error`: it does not succeed.
    """
    began, attempt = time.monotonic(), 0
    while True:
        attempt += 1
        trouble.requests += 1
        trouble.retries += attempt > 1
        asked_at = time.monotonic()
        try:
            return await work()
        except FastpipeError:
            raise
        except Exception as problem:
            verdict, words = verdict_on(problem), words_of(problem)
            if trouble.last != words:
                trouble.last = words
            late = time.monotonic() - began > patience_s
            if late or (verdict.tries is not None and attempt >= verdict.tries):
                raise error(
                    f"{what}: {words}, after {attempt} attempt{'s' * (attempt > 1)} in "
                    f"{time.monotonic() - began:.1f} s. {(advice or {}).get(verdict.kind, verdict.advice)}"
                ) from problem
        if verdict.busy:
            trouble.busy_at = time.monotonic()
        await asyncio.sleep(pause_s(attempt, verdict.busy, patience_s))
        if verdict.renew and store.made_at < asked_at:  # once for all requests that were refused together
            store.renew()


@dataclass
class Ranges:
    """Fetches ranges of a dataset's files.

    Attributes:
        store: to ask.
        patience_s: how long a range is tried, and how long another process may take for a block.
        trouble: is counted up.
    """

    store: Store
    patience_s: float
    trouble: Trouble = field(default_factory=Trouble)
    _etags: dict[str, str | None] = field(default_factory=dict)

    async def fetch(
        self,
        name: str,
        start: int,
        stop: int | None,
        *,
        size_bytes: int | None = None,
        check: Callable[[Answer], str | None] = lambda _: None,
    ) -> Answer:
        """A range, tried until it comes.

        Args:
            name: of the file.
            start, stop: first byte, and the one after the last; None: all.
            size_bytes: that the whole file has to have; None: any.
            check: what is wrong with the content, in words, or None. Content that stays wrong is given as it is.

        Raises:
            DatasetError: it does not come.
        """
        asked = "" if stop is None else f", bytes {start:,} to {stop:,}"
        wrong = 0

        async def get() -> Answer:
            nonlocal wrong
            answer = await self.store.get(name, start, stop)
            self._pin(name, answer, size_bytes)
            complaint = check(answer)
            wrong += 1
            if complaint is None or wrong == ATTEMPTS:
                return answer
            raise WrongAnswerError(complaint)

        what = f"{self.store.url / name}{asked} cannot be fetched"
        return await insist(get, what, self.store, self.patience_s, self.trouble)

    def _pin(self, name: str, answer: Answer, size_bytes: int | None) -> None:
        """Refuses a file that is not the one that the dataset's description or an earlier answer is of."""
        if size_bytes is not None and answer.size_bytes != size_bytes:
            raise DatasetError(
                f"{self.store.url / name} has {answer.size_bytes:,} bytes; expected {size_bytes:,}, as dataset.json "
                "has it. Another file has taken its place: upload the dataset again, into a folder of its own"
            )
        known = self._etags.setdefault(name, answer.etag)
        if None not in (known, answer.etag) and known != answer.etag:
            raise DatasetError(
                f"{self.store.url / name} was replaced while it was read: expected ETag {known}, got {answer.etag}. "
                "Open the dataset again; while one is in use, upload into another folder"
            )


def pause_s(attempt: int, busy: bool, patience_s: float) -> float:
    """Doubles with each attempt; random, so that many clients do not come back at once."""
    # obstore does not show Retry-After. Servers name a second or more in it.
    first = 1.0 if busy else 0.1
    longest = min(_MOST_WAIT_S, patience_s / 8)
    return min(longest, first * 2.0 ** min(attempt - 1, 16)) * random.uniform(0.5, 1.0)


def words_of(problem: Exception) -> str:
    """What the server or the network said, in a line."""
    text = str(problem)
    found = _STATUS.search(text)
    if found:
        part, again = re.search(r"partNumber=(\d+)", text), re.search(r"after (\d+) retries", text)
        requests = f", {int(again[1]) + 1} requests an attempt" if again else ""
        return f"HTTP {found[1]} {found[2]}".strip() + (f" (part {part[1]}{requests})" if part else "")
    if isinstance(problem, WrongAnswerError):
        return f"the server sent {problem}"
    if type(problem).__name__ == "NotSupportedError":
        return "HTTP 200 instead of 206: the server sent the whole file"
    kind = re.search(r"kind: (Timeout|Connect|Interrupted|Request)\b", text)
    detail = re.search(r"(dns error|Connection refused|reset by peer|IncompleteBody|UnexpectedEof)", text)
    if kind is not None:
        return _KINDS[kind[1]] + (f" ({detail[1]})" if detail else "")
    line = " ".join(text.split("Debug source")[0].split()).removeprefix("Generic HTTP error: ")
    return re.sub(r"Error performing \w+ \S+ in \S+ - ", "", line)[:200]
