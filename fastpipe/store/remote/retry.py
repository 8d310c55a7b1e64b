"""A request that does not succeed -> what went wrong, as data; whether to try again, and what to do about it."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

_MOST_WAIT_S = 10.0
ATTEMPTS = 3  # to get content whose hash is right


class WrongAnswerError(Exception):
    """A server sent something else than it was asked for; the text says what."""


class Remedy(NamedTuple):
    """What to do about a kind of failure."""

    tries: int | None  # at most; None: as long as there is time
    loading: str  # what to do if it stays so, for one who loads a dataset
    packing: str = ""  # for one who packs; "": the same
    renew: bool = False  # credentials may have changed


REMEDIES = {
    "network": Remedy(None, "Check the network, and that the server is up"),
    "denied": Remedy(
        4,
        "Check the credentials, and that they may read the bucket; storage_options= takes others",
        "Check the credentials, and that they may read SRC, list and write DST",
        renew=True,
    ),
    "missing": Remedy(3, "Check the URL; it is that of the folder which has dataset.json in it", "Check the URL"),
    "overloaded": Remedy(
        None,
        "The server is overloaded: train later, or with fewer ranks, or copy the dataset",
        "The server is overloaded",
    ),
    "replaced": Remedy(
        1,
        "The file has been replaced since the dataset was opened: open it again",
        "Another program writes there. Wait until nothing changes it",
    ),
    "refused": Remedy(2, "Check the URL and storage_options"),
    "incapable": Remedy(
        3,
        "The server has to answer ranges (HTTP 206) and to tell sizes (Content-Length, Content-Range); copy the data "
        "to one that does",
    ),
    "region": Remedy(
        2,
        'The bucket is in another region: set AWS_REGION, or pass storage_options={"region": "..."}. If the region is '
        "right, check the URL",
    ),
    "name": Remedy(
        1,
        "Names must have no empty part, as in a//b, no part . or .., and no control character: rename that object, or "
        "move it to another folder",
    ),
}
AGAIN = "Finished shards are kept; run the same command again: it continues there"  # said to one who packs
_OF_STATUS = {
    **dict.fromkeys((401, 403), "denied"),
    **dict.fromkeys((404, 410), "missing"),
    **dict.fromkeys((408, 429, 500, 502, 503, 504), "overloaded"),
    **dict.fromkeys((412, 416), "replaced"),
}


class Failure(NamedTuple):
    """A request that did not succeed."""

    kind: str  # a key of REMEDIES
    words: str  # what the server or the network said, in a line
    status: int = 0  # of HTTP; 0: there was no answer, or none with an error


def failure_of(problem: Exception) -> Failure:
    """What an error is. obstore's errors have no attributes: here, and nowhere else, their texts are read."""
    text, name = str(problem), type(problem).__name__
    if isinstance(problem, WrongAnswerError):
        return Failure("network", f"the server sent {text}")
    if found := re.search(r"status code: (\d{3}) ?([^:\n]*)", text):
        status, words = int(found[1]), f"HTTP {found[1]} {found[2]}".strip()
        part, again = re.search(r"partNumber=(\d+)", text), re.search(r"after (\d+) retries", text)
        if part:
            words += f" (part {part[1]}{f', {int(again[1]) + 1} requests an attempt' if again else ''})"
        kind = _OF_STATUS.get(status, "refused" if status >= 400 else "network")
        if status == 400 and re.search(r"expired|InvalidToken|RequestTimeTooSkewed", text, re.IGNORECASE):
            kind = "denied"
        return Failure(kind, words, status)
    if name == "NotSupportedError":
        return Failure("incapable", "HTTP 200 instead of 206: the server sent the whole file")
    line = " ".join(text.split("Debug source")[0].split()).removeprefix("Generic HTTP error: ")
    line = re.sub(r"Error performing \w+ \S+ in \S+ - ", "", line)[:200]
    if isinstance(problem, FileNotFoundError):
        return Failure("missing", line)
    if name == "InvalidPathError":
        return Failure("name", line)
    if re.search(r"Header missing from response|Failed to parse value for CONTENT_\w+ header", text):
        return Failure("incapable", line)
    if "redirect without LOCATION" in text:
        return Failure("region", line)
    if found := re.search(r"kind: (Timeout|Connect|Interrupted|Request)\b", text):
        words = {"Timeout": "no byte for read_timeout seconds", "Connect": "no connection"}.get(found[1], "")
        detail = re.search(r"(dns error|Connection refused|reset by peer|IncompleteBody|UnexpectedEof)", text)
        return Failure("network", (words or "the connection broke off") + (f" ({detail[1]})" if detail else ""))
    return Failure("refused" if isinstance(problem, (ValueError, TypeError)) else "network", line)


def pause_s(attempt: int, busy: bool, patience_s: float) -> float:
    """Doubles with each attempt; random, so that many clients do not come back at once."""
    # obstore does not show Retry-After. Servers name a second or more in it.
    first = 1.0 if busy else 0.1
    longest = min(_MOST_WAIT_S, patience_s / 8)
    return min(longest, first * 2.0 ** min(attempt - 1, 16)) * random.uniform(0.5, 1.0)
