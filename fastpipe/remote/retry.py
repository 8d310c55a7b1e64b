"""A request that does not succeed -> whether and when to try again, what it met, in words, and what to do about it."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

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


class WrongAnswerError(Exception):
    """A server sent something else than it was asked for; the text says what."""


class Verdict(NamedTuple):
    """What an answer means.

    Attributes:
        tries: how often to try at most; None: as long as there is time.
        loading: what to do if it stays so, for one who loads a dataset.
        packing: the same for one who packs; "": the same words.
        busy: the server wants fewer requests.
        renew: credentials may have changed.
    """

    tries: int | None
    loading: str
    packing: str = ""
    busy: bool = False
    renew: bool = False


_AGAIN = "Finished shards are kept; run the same command again: it continues there"
_CHECK = "Check the URL, the options of its store, and that the server answers ranges (HTTP 206)"
_NETWORK = Verdict(
    None, "Check the network, and that the server is up", f"Check the network, and that the server is up. {_AGAIN}"
)
_DENIED = Verdict(
    4,
    "Check the credentials, and that they may read the bucket; storage_options= takes others",
    f"Check the credentials, and that they may read SRC, list and write DST. {_AGAIN}",
    renew=True,
)
_MISSING = Verdict(
    3, "Check the URL; it is that of the folder which has dataset.json in it", f"Check the URL. {_AGAIN}"
)
_OVERLOADED = Verdict(
    None,
    "The server is overloaded: train later, or with fewer ranks, or copy the dataset",
    f"The server is overloaded. {_AGAIN}",
)
_REPLACED = Verdict(
    1,
    "The file has been replaced since the dataset was opened: open it again",
    f"Another program writes there. Wait until nothing changes it. {_AGAIN}",
)
_REFUSED = Verdict(2, "Check URL and storage_options", _CHECK)
_NO_RANGES = Verdict(3, "The server has to answer ranges (HTTP 206); copy the dataset to one that does", _CHECK)
_NO_SIZES = Verdict(
    3, "The server has to tell sizes (Content-Length, Content-Range); copy the dataset to one that does", _CHECK
)
_REGION = Verdict(
    2,
    'The bucket is in another region: set AWS_REGION, or pass storage_options={"region": "..."}. If the region is '
    "right, check the URL",
)
_NAMED = Verdict(
    1,
    "Names must have no empty part, as in a//b, no part . or .., and no control character: rename that object, or "
    "move it to another folder",
)


def verdict_on(problem: Exception) -> Verdict:
    """Judges by kind and HTTP status."""
    text, kind = str(problem), type(problem).__name__
    found = _STATUS.search(text)
    status = int(found[1]) if found else 0
    if status in (401, 403) or (status == 400 and _EXPIRED.search(text)):
        return _DENIED
    if isinstance(problem, FileNotFoundError) or status in (404, 410):
        return _MISSING
    if status in (408, 429, 500, 502, 503, 504):
        return _OVERLOADED._replace(busy=status in (429, 503))
    if status in (412, 416):
        return _REPLACED
    if status >= 400:
        return _REFUSED
    if kind == "NotSupportedError":
        return _NO_RANGES
    if kind == "InvalidPathError":
        return _NAMED
    if _NO_SIZE.search(text):
        return _NO_SIZES
    if "redirect without LOCATION" in text:
        return _REGION
    return _REFUSED if isinstance(problem, (ValueError, TypeError)) else _NETWORK


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
