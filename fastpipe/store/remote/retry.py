"""A request that fails -> what went wrong, as data; whether to try again, and what to do."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from fastpipe.errors import FastpipeError, in_one_line

_MAX_PAUSE_S = 10.0
# Content with a wrong hash is fetched so many times before its error is raised.
ATTEMPTS = 3


class WrongAnswerError(Exception):
    """A server sent something else than the request asked for. The text says what it sent."""


class Remedy(NamedTuple):
    """What to do about a kind of failure."""

    # The most tries; None as long as there is time.
    tries: int | None
    # The advice, if it stays so, for somebody who loads a dataset.
    loading: str
    # The advice for somebody who packs; "" for the same one.
    packing: str = ""
    # Whether the credentials may have changed, so that they should be read again.
    renew: bool = False


NO_CREDENTIALS = (
    "No credentials were found: AWS_ACCESS_KEY_ID is not set, and there is no ~/.aws/credentials. Set "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run aws configure; for a public bucket, in "
    'Python storage_options={"skip_signature": True}'
)
# Follows the advice if no server was named, and Amazon's was asked or could not be found.
NO_ENDPOINT = (
    "Requests go to amazonaws.com: for a server of your own set AWS_ENDPOINT_URL, or in Python "
    'storage_options={"endpoint": "http://..."}'
)
REMEDIES = {
    "network": Remedy(None, "Check the network, and that the server is up"),
    "closed": Remedy(
        None,
        "Nothing listens at that host and port: check the endpoint, and that the server is up",
    ),
    "host": Remedy(
        None,
        "No host has that name: check it in the URL or the endpoint, and check the network",
    ),
    "certificate": Remedy(
        None,
        "Check the host's name in the URL or the endpoint. If your organisation signs its certificates "
        "itself, set SSL_CERT_FILE to a file with the certificate of its authority, in PEM",
    ),
    "denied": Remedy(
        4,
        "Check the credentials, and that they may read the bucket; in Python storage_options= takes others",
        "Check the credentials, and that they may read SRC, list and write DST",
        renew=True,
    ),
    "role": Remedy(
        None,
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; profiles in ~/.aws are read if boto3 is "
        "installed",
        renew=True,
    ),
    "missing": Remedy(
        3,
        "Check the URL; it is that of the folder which has dataset.json in it",
        "Check the URL",
    ),
    "bucket": Remedy(
        1,
        "There is no such bucket: check its name in the URL, and the endpoint and the region",
    ),
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
        "The server has to answer ranges (HTTP 206) and to give sizes (Content-Length, "
        "Content-Range); copy the data to one that does",
    ),
    "region": Remedy(
        2,
        "The bucket is in another region: set AWS_REGION, or pass "
        'storage_options={"region": "..."}. If the region is right, check the URL',
    ),
    "name": Remedy(
        1,
        "Names must have no empty part, as in a//b, no part . or .., and no control character: "
        "rename that object, or move it to another folder",
    ),
}
# Follows the advice for somebody who packs.
AGAIN = "Run the same command again: it continues where it stopped"
_KIND_OF_STATUS = {
    401: "denied",
    403: "denied",
    404: "missing",
    410: "missing",
    408: "overloaded",
    429: "overloaded",
    500: "overloaded",
    502: "overloaded",
    503: "overloaded",
    504: "overloaded",
    412: "replaced",
    416: "replaced",
}
# Failures of the way to a server, of the server at that time, or of a file to be uploaded, which the
# machine may have lost.
_KINDS_OF_MACHINE = (
    "network",
    "closed",
    "host",
    "certificate",
    "overloaded",
    "missing",
)
_MESSAGE_OF_KIND = {
    "Timeout": "no byte for read_timeout seconds",
    "Connect": "no connection",
}
_MAX_MESSAGE_LENGTH = 200
# The address at which a machine of AWS asks for the credentials of its role. obstore asks there if
# it has found no others, and its error is then about that request.
_ROLE_SERVER = "169.254.169.254"
# What a name server that works says of a host that does not exist, on Linux and macOS. One that
# does not answer is a "Temporary failure in name resolution".
_NO_SUCH_HOST = re.compile(
    r"Name or service not known|nodename nor servname provided|No address associated"
)


class Failure(NamedTuple):
    """A request that did not succeed."""

    # A key of REMEDIES.
    kind: str
    # What the server or the network said, in a line.
    words: str
    # The HTTP status; 0 if there was no answer, or none with an error.
    status: int = 0


class RequestError(OSError):
    """A request that is not made again: the cause of the error for the user.

    It has obstore's error in a line. That one has 40 lines that nobody can read.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        return self.failure.words

    @property
    def is_of_machine(self) -> bool:
        """Whether another machine may have no such failure."""
        return self.failure.kind in _KINDS_OF_MACHINE


def kind_of_failure(error: FastpipeError) -> str:
    """The kind of failure of the request that an error comes from; "" if it comes from none."""
    cause = error.__cause__
    return cause.failure.kind if isinstance(cause, RequestError) else ""


def failure_of(problem: Exception) -> Failure:
    """Classifies an error of a request.

    obstore's errors have no attributes. Their texts are read here, and nowhere else.
    """
    text = str(problem)
    error_name = type(problem).__name__
    if isinstance(problem, WrongAnswerError):
        return Failure("network", f"the server sent {text}")
    if _asked_server(text) == _ROLE_SERVER:
        message = f"no credentials, as {_ROLE_SERVER} has no role for this machine"
        return Failure("role", message)

    status = re.search(r"status code: (\d{3}) ?([^:\n]*)", text)
    if status:
        return _failure_of_status(int(status[1]), status[2], text)
    if error_name == "NotSupportedError":
        return Failure(
            "incapable", "HTTP 200 instead of 206: the server sent the whole file"
        )

    message = _first_line(text)
    if isinstance(problem, FileNotFoundError):
        return Failure("missing", message)
    if error_name == "InvalidPathError":
        return Failure("name", message)
    bad_header = (
        r"Header missing from response|Failed to parse value for CONTENT_\w+ header"
    )
    if re.search(bad_header, text):
        return Failure("incapable", message)
    if "redirect without LOCATION" in text:
        return Failure("region", message)

    broken = re.search(r"kind: (Timeout|Connect|Interrupted|Request)\b", text)
    if broken:
        message = _MESSAGE_OF_KIND.get(broken[1], "the connection broke off")
        server = _asked_server(text)
        if broken[1] == "Connect" and server:
            message = f"{message} to {server}"
        certificate = re.search(r"InvalidCertificate\(\s*(\w+)", text)
        if certificate:
            message = (
                f"{server or 'the server'} has no valid certificate ({certificate[1]})"
            )
            return Failure("certificate", message)
        details = (
            r"(dns error|Connection refused|reset by peer|IncompleteBody|UnexpectedEof)"
        )
        detail = re.search(details, text)
        if detail:
            message = f"{message} ({detail[1]})"
        if _NO_SUCH_HOST.search(text):
            return Failure("host", message)
        if detail is not None and detail[1] == "Connection refused":
            return Failure("closed", message)
        return Failure("network", message)
    if isinstance(problem, (ValueError, TypeError)):
        return Failure("refused", message)
    return Failure("network", message)


def _failure_of_status(status: int, reason: str, text: str) -> Failure:
    message = f"HTTP {status} {reason}".strip()
    part = re.search(r"partNumber=(\d+)", text)
    if part:
        # obstore tries the parts of an upload again itself, and tells how often.
        retries = re.search(r"after (\d+) retries", text)
        requests = ""
        if retries:
            num_requests = int(retries[1]) + 1
            requests = f", {num_requests} requests an attempt"
        message = f"{message} (part {part[1]}{requests})"
    code = re.search(r"<Code>(\w+)</Code>", text)
    if code and status in (400, 401, 403):
        message = f"{message} ({code[1]})"
    # S3 answers 400 for a token that has expired.
    expired = r"expired|InvalidToken|RequestTimeTooSkewed"
    if status == 400 and re.search(expired, text, re.IGNORECASE):
        return Failure("denied", message, status)
    if status == 404 and "NoSuchBucket" in text:
        return Failure("bucket", message, status)
    other = "refused" if status >= 400 else "network"
    kind = _KIND_OF_STATUS.get(status, other)
    return Failure(kind, message, status)


def _asked_server(text: str) -> str:
    """The host and port in obstore's text of an error; "" if it names none."""
    match = re.search(r"Error performing \w+ https?://([^/\s]+)", text)
    return match[1] if match else ""


def _first_line(text: str) -> str:
    """The part of obstore's text that says what happened, in a line."""
    line = in_one_line(text.partition("Debug source")[0])
    line = line.removeprefix("Generic HTTP error: ")
    line = re.sub(r"Error performing \w+ \S+ in \S+ - ", "", line)
    return line[:_MAX_MESSAGE_LENGTH]


def pause_s(attempt: int, busy: bool, patience_s: float) -> float:
    """The pause before the next attempt.

    It doubles with each attempt. It is random, so that many clients do not come back at once.

    Args:
        attempt: the number of attempts so far.
        busy: whether the server wants fewer requests.
        patience_s: how long a request is tried.
    """
    # Servers name a second or more in Retry-After, which obstore does not show.
    first_s = 1.0 if busy else 0.1
    longest_s = min(_MAX_PAUSE_S, patience_s / 8)
    doublings = min(attempt - 1, 16)
    pause_s = min(longest_s, first_s * 2.0**doublings)
    return pause_s * random.uniform(0.5, 1.0)
