"""An S3 server for tests (moto's), a bucket of the test's own, and a proxy before it that does what networks do."""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

KEYS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}


def environment(endpoint: str) -> dict[str, str]:
    """The variables by which a program finds a server and its keys."""
    return {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
    }


@dataclass
class Bucket:
    """A bucket, and what packing needs to use it.

    Attributes:
        name: of it.
        client: of boto3.
        options: storage_options for it.
        environment: the same as variables, for a program.
    """

    name: str
    client: Any
    options: dict[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.options["endpoint"])

    def url(self, key: str) -> str:
        """Of a folder or object."""
        return f"s3://{self.name}/{key}"

    def through(self, endpoint: str, **client_options: str) -> dict[str, Any]:
        """The options with another way to the server."""
        return {**self.options, "endpoint": endpoint, "client_options": client_options}

    def upload(self, folder: Path, key: str) -> str:
        """Puts the files of a folder into it; gives their URL."""
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.client.upload_file(str(file), self.name, f"{key}/{file.relative_to(folder)}")
        return self.url(key)

    def objects(self, key: str) -> dict[str, bytes]:
        """Name below a folder -> content, of every object."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.name, Prefix=f"{key}/"
        )
        names = [each["Key"] for page in pages for each in page.get("Contents", ())]
        found = {}
        for name in names:
            with contextlib.suppress(
                self.client.exceptions.NoSuchKey
            ):  # the last request of a program that was killed
                found[name.removeprefix(f"{key}/")] = self.client.get_object(
                    Bucket=self.name, Key=name
                )["Body"].read()
        return found

    def unfinished_uploads(self) -> int:
        """Multipart uploads that have neither been completed nor aborted."""
        return len(self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", ()))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import ThreadedMotoServer

        served = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        served.start()
    yield "http://{}:{}".format(*served.get_host_and_port())
    served.stop()


def new_bucket(server: str) -> Bucket:
    """A bucket that nobody else uses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import boto3

        client = boto3.client("s3", endpoint_url=server, region_name="us-east-1", **KEYS)
        name = f"test-{uuid.uuid4().hex[:12]}"
        client.create_bucket(Bucket=name)
    return Bucket(name, client, {"endpoint": server, "region": "us-east-1", **KEYS})


@pytest.fixture
def bucket(s3_server: str) -> Bucket:
    """A new bucket."""
    return new_bucket(s3_server)


@dataclass
class Asked:
    """A request that came to the proxy.

    Attributes:
        method, target: of its first line.
        headers: by name in small letters.
        attempt: how often the same was asked for before.
    """

    method: str
    target: str
    headers: dict[str, str]
    attempt: int


@dataclass
class Wrong:
    """What the proxy does in place of passing a request on.

    Attributes:
        status: answers so; None: no answer.
        stall_s: waits so long, then closes the connection.
        lose_answer: passes the request on, and closes the connection in place of the answer.
    """

    status: int | None = None
    stall_s: float = 0.0
    lose_answer: bool = False


@dataclass
class Proxy:
    """Stands before a server. Used in a `with`.

    Attributes:
        upstream: the server's address.
        fault: gives what goes wrong with a request, or None.
        asked: all requests so far.
    """

    upstream: str
    fault: Callable[[Asked], Wrong | None] = lambda _: None
    asked: list[Asked] = field(default_factory=list)

    def __enter__(self) -> Proxy:
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str, str], int] = {}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            data = b""
            while b"\r\n\r\n" not in data:
                more = connection.recv(1 << 16)
                if not more:
                    return
                data += more
            head, body = data.split(b"\r\n\r\n", 1)
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, value in (line.split(":", 1) for line in lines)
            }
            left = int(headers.get("content-length", 0)) - len(body)
            asked = self._note(*first.split(" ")[:2], headers)
            wrong = self.fault(asked)
            if wrong is not None and wrong.stall_s:
                self._stopping.wait(wrong.stall_s)
                return
            while left > 0:
                more = connection.recv(1 << 20)
                if not more:
                    return
                body += more
                left -= len(more)
            if wrong is not None and wrong.status is not None:
                said = b"<Error><Code>Injected</Code></Error>"
                answer = f"HTTP/1.1 {wrong.status} X\r\nContent-Length: {len(said)}\r\nConnection: close\r\n\r\n"
                connection.sendall(answer.encode() + said)
                return
            if wrong is not None and not wrong.lose_answer:
                return
            answer = self._passed_on(first, headers, body)
            if wrong is None:
                connection.sendall(answer)

    def _note(self, method: str, target: str, headers: dict[str, str]) -> Asked:
        with self._lock:
            key = method, target, headers.get("range", "")
            attempt = self._seen.get(key, 0)
            self._seen[key] = attempt + 1
            self.asked.append(Asked(method, target, headers, attempt))
            return self.asked[-1]

    def _passed_on(self, first: str, headers: dict[str, str], body: bytes) -> bytes:
        host, port = self.upstream.removeprefix("http://").split(":")
        lines = "".join(
            f"{name}: {value}\r\n" for name, value in {**headers, "connection": "close"}.items()
        )
        with socket.create_connection((host, int(port))) as server:
            server.sendall(f"{first}\r\n{lines}\r\n".encode("latin-1") + body)
            answer = b""
            while data := server.recv(1 << 20):
                answer += data
        return answer
