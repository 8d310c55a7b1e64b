"""A folder -> an HTTP server of byte ranges in this process, with latency, and faults to inject."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

_PIECE_BYTES = 64 << 10


@dataclass
class Request:
    """What a client asked for.

    Attributes:
        path: of the file, from the folder.
        start, stop: first byte, and the one after the last; (0, size) without a Range header.
        number: of the request, from 0.
        attempt: how often this range of this file was asked for before.
        headers: by their names in lower case.
    """

    path: str
    start: int
    stop: int
    number: int
    attempt: int
    headers: dict[str, str]


@dataclass
class Fault:
    """How an answer is wrong.

    Attributes:
        status: answer with this status and no file; 200 sends the whole file for a range.
        headers: sent besides the others, or in place of them.
        body: of an answer with no file.
        cut: close the connection after this many bytes of the body; -1: before the status line.
        short: announce this many bytes fewer and send so.
        flip: position in the body of a byte to flip.
        stall: send this many bytes of the body, then nothing more for `stall_s`.
        stall_s: how long.
    """

    status: int = 206
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"<Error>injected</Error>"
    cut: int | None = None
    short: int = 0
    flip: int | None = None
    stall: int | None = None
    stall_s: float = 30.0


class RangeServer:
    """Serves files of a folder.

    Args:
        folder: that is served.
        latency_s: before each answer.
        fault: called with each request; gives what is to go wrong, or None.
        port: to listen at; 0: any.

    Attributes:
        requests: those answered so far.
        sent_bytes: of bodies, so far.
        sent_by_name: the same by file.
    """

    def __init__(
        self,
        folder: Path,
        *,
        latency_s: float = 0.0,
        fault: Callable[[Request], Fault | None] | None = None,
        port: int = 0,
    ) -> None:
        self.folder = folder
        self.latency_s = latency_s
        self.fault = fault
        self.requests: list[Request] = []
        self.sent_bytes = 0
        self.sent_by_name: dict[str, int] = {}
        self.etags: dict[str, str] = {}
        self._lock = threading.Lock()
        self._attempts: dict[tuple[str, int, int], int] = {}
        self._stopping = threading.Event()
        self._connections: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> RangeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuses connections from now on, and closes those that are open."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Closes the connections that are open; new ones are answered."""
        with self._lock:
            for each in self._connections:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Counts from 0 again."""
        with self._lock:
            self.requests.clear()
            self.sent_by_name.clear()
            self.sent_bytes = 0

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for method, path, headers in _requests(connection):
                if not self._answer(connection, method, path, headers):
                    break
        with self._lock:
            self._connections.discard(connection)

    def _answer(
        self, connection: socket.socket, method: str, path: str, headers: dict[str, str]
    ) -> bool:
        """False where the connection is to be closed."""
        file = self.folder / path.lstrip("/")
        if not file.is_file():
            return _send(connection, 404, {}, b"no such file")
        size = file.stat().st_size
        start, stop = 0, size
        ranged = headers.get("range", "").removeprefix("bytes=")
        if ranged:
            first, last = ranged.split("-")
            start, stop = int(first), min(int(last) + 1 if last else size, size)
        with self._lock:
            attempt = self._attempts.get((path, start, stop), 0)
            self._attempts[path, start, stop] = attempt + 1
            request = Request(path.lstrip("/"), start, stop, len(self.requests), attempt, headers)
            self.requests.append(request)
        time.sleep(self.latency_s)
        fault = (self.fault(request) if self.fault is not None else None) or Fault(
            status=206 if ranged else 200
        )
        if fault.cut == -1:
            return False
        if fault.status not in (200, 206):
            return _send(connection, fault.status, fault.headers, fault.body)
        if fault.status == 200:
            start, stop = 0, size
        answer = {
            "Content-Length": str(stop - start - fault.short),
            "ETag": self.etags.get(request.path, f'"{size:x}-{file.stat().st_mtime_ns:x}"'),
            "Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT",
            "Accept-Ranges": "bytes",
        }
        if fault.status == 206:
            answer["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        _head(connection, fault.status, {**answer, **fault.headers})
        if method == "HEAD":
            return True
        return self._send_body(connection, file, start, stop - fault.short, fault, request.path)

    def _send_body(
        self, connection: socket.socket, file: Path, start: int, stop: int, fault: Fault, name: str
    ) -> bool:
        with open(file, "rb") as source:
            place = start
            while place < stop:
                piece = min(_PIECE_BYTES, stop - place)
                for edge in (fault.cut, fault.stall):
                    if edge is not None and place - start < edge:
                        piece = min(piece, edge - (place - start))
                if fault.cut is not None and place - start >= fault.cut:
                    return False
                if fault.stall is not None and place - start >= fault.stall:
                    self._stopping.wait(fault.stall_s)
                    return False
                if fault.flip is not None and 0 <= fault.flip - (place - start) < piece:
                    data = bytearray(os.pread(source.fileno(), piece, place))
                    data[fault.flip - (place - start)] ^= 0x10
                    connection.sendall(data)
                else:
                    left = piece
                    while left:
                        left -= os.sendfile(
                            connection.fileno(), source.fileno(), place + piece - left, left
                        )
                place += piece
                with self._lock:
                    self.sent_bytes += piece
                    self.sent_by_name[name] = self.sent_by_name.get(name, 0) + piece
        return True


def _requests(connection: socket.socket) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Method, path and headers of each request of a connection."""
    buffer = b""
    while True:
        while b"\r\n\r\n" not in buffer:
            data = connection.recv(1 << 16)
            if not data:
                return
            buffer += data
        head, buffer = buffer.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        pairs = (line.split(":", 1) for line in lines)
        yield (
            method,
            unquote(path.split("?")[0]),
            {name.strip().lower(): value.strip() for name, value in pairs},
        )


def _head(connection: socket.socket, status: int, headers: dict[str, str]) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection.sendall(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode("latin-1"))


def _send(connection: socket.socket, status: int, headers: dict[str, str], body: bytes) -> bool:
    _head(connection, status, {"Content-Length": str(len(body)), **headers})
    connection.sendall(body)
    return True
