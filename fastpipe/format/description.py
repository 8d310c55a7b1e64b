"""The content of dataset.json <-> its bytes; whether these and the files beside the shards have the hashes it tells."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, Self

import xxhash

from fastpipe.errors import DatasetError
from fastpipe.format.folder import Place, why_no_dataset
from fastpipe.format.layout import DATASET_FILE, DATASET_FORMAT, FORMAT_VERSION

_CHUNK_BYTES = 4 << 20
_AT_ONCE_BYTES = 256 << 20  # of files that are compared while a loader begins
REPACK = "pack the source again, with --overwrite"
SELF_CHECKSUM = "self_xxh3_64"

_BLANK = b"0" * 16
_AT_END = re.compile(rb'\n "%s": "([0-9a-f]{16})"\n}\n\Z' % SELF_CHECKSUM.encode())


def with_self_checksum(info: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The content with a last field, and its bytes: the XXH3-64 of these, with zeros in place of its digits."""
    text = io.BytesIO()  # of many shards the pieces would take much more memory than the text
    for piece in json.JSONEncoder(indent=1).iterencode({**info, SELF_CHECKSUM: _BLANK.decode()}):
        text.write(piece.encode())
    text.write(b"\n")
    digest = xxhash.xxh3_64_hexdigest(text.getbuffer())
    text.seek(-len(_BLANK + b'"\n}\n'), io.SEEK_END)
    text.write(digest.encode())
    return {**info, SELF_CHECKSUM: digest}, text.getvalue()


def read_self_checksum(data: bytes) -> tuple[str, str] | None:
    """The hash that the bytes of a dataset.json carry, and the one that they have; None if they carry none."""
    found = _AT_END.search(data, max(0, len(data) - 64))
    if found is None:
        return None
    start, end = found.span(1)
    return found[1].decode(), xxhash.xxh3_64_hexdigest(data[:start] + _BLANK + data[end:])


def fingerprint(info: dict[str, Any]) -> str:
    """What names a dataset's content and order: XXH3-128 of what dataset.json says of samples, classes and files."""
    content = {name: info[name] for name in ("samples", "classes", "shards", "fields")}
    content["index"] = {name: info["index"][name] for name in ("name", "xxh3_64")}
    shards, encode = content.pop("shards"), json.JSONEncoder(sort_keys=True).encode
    digest = xxhash.xxh3_128(encode(content)[:-1].encode() + b', "shards": [')  # the last, and long
    for at, shard in enumerate(shards):
        digest.update(b", " * (at > 0) + encode(shard).encode())
    digest.update(b"]}")
    return digest.hexdigest()


class _Folder(Protocol):
    """A path, on this machine or behind a URL."""

    def __truediv__(self, name: str, /) -> Self: ...
    def read_bytes(self) -> bytes: ...


def is_dataset(folder: _Folder) -> bool:
    """Whether a folder has a dataset.json of ours. OSError: it is there and cannot be read."""
    try:
        info = json.loads((folder / DATASET_FILE).read_bytes())
    except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
        return False
    return isinstance(info, dict) and info.get("format") == DATASET_FORMAT


def is_foreign(folder: _Folder) -> bool:
    """Whether its dataset.json is JSON of another program: none of ours, and none that was damaged."""
    try:
        data = (folder / DATASET_FILE).read_bytes()
        return read_self_checksum(data) is None and json.loads(data).get("format") != DATASET_FORMAT
    except (MemoryError, OSError, ValueError, AttributeError, RecursionError):
        return False


def read_info(
    path: Path, hook: Callable[[dict[str, Any]], Any] | None = None, version: int | None = None
) -> dict[str, Any]:
    """The content of a version's dataset.json, None: the newest; `hook`: json's object_hook. Or DatasetError."""
    file = path / DATASET_FILE
    if version is not None:
        file = path / (described_in(path, version, read_info(path)["version"]) + DATASET_FILE)
    try:
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as problem:
        raise DatasetError(why_no_dataset(path)) from problem
    except OSError as problem:
        raise DatasetError(
            f"{file} cannot be read: {problem.strerror}; check its permissions, the disk and the limit on open files "
            "(ulimit -n)"
        ) from problem
    return info_in(data, file, hook)


def described_in(path: Place, version: int, newest: int) -> str:
    """The folder of a version's dataset.json, with "/" behind it: "" for the newest. DatasetError: it is not there."""
    if not 0 < version <= newest:
        raise DatasetError(
            f"{path} has no version {version}; expected 1 to {newest}, the newest: see fastpipe log {path}"
        )
    return "" if version == newest else f"v{version}/"


def info_in(data: bytes, file: Path | str, hook: Callable[[dict[str, Any]], Any] | None = None) -> dict[str, Any]:
    """As `read_info`, of the bytes of that file."""
    try:
        info: object = json.loads(data, object_hook=hook)
    except (ValueError, RecursionError) as problem:
        raise DatasetError(f"{file} is not valid JSON ({problem}); {REPACK}") from problem
    if not isinstance(info, dict) or info.get("format") != DATASET_FORMAT:
        raise DatasetError(f"{file} does not describe a fastpipe dataset; expected format {DATASET_FORMAT!r}")
    if info.get("format_version") != FORMAT_VERSION:
        raise DatasetError(
            f"{file} has format version {info.get('format_version')!r}; this fastpipe reads version {FORMAT_VERSION}. "
            f"Install the version of fastpipe that packed it, or {REPACK}"
        )
    if not isinstance(info.get("version"), int) or not 0 < info["version"] < 2**31:
        raise DatasetError(f"{file} has a missing or invalid field ('version': {info.get('version')!r}); {REPACK}")
    return info


class Intact:
    """Compares, once, files with their hashes, in a thread; `files` are as of `Index.hashed_files`."""

    def __init__(self, files: Iterable[tuple[Path, str, str]]) -> None:
        self._files = list(files)
        self._found: list[DatasetError] = []
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begins, unless it has, and waits if the files are small; `check` tells of large ones. Raises as it does."""
        if self._thread is None:
            owner = weakref.ref(self._closed)  # who is dropped needs no result; see Note [callbacks] in slots.py
            work = self._files, self._found, lambda: (closed := owner()) is None or closed.is_set()
            self._thread = threading.Thread(target=_compare, args=work, name="fastpipe-hashes", daemon=True)
            self._thread.start()
            self.check(end=sum(file.stat().st_size for file, *_ in self._files if file.exists()) <= _AT_ONCE_BYTES)

    def check(self, *, end: bool = False) -> None:
        """Raises DatasetError if a file is known to have changed; `end`: waits until all that it began is compared."""
        if end and self._thread is not None:
            self._thread.join()
        if self._found:
            raise self._found[0]

    def close(self) -> None:
        """Has the thread end, soon."""
        self._closed.set()


def _compare(files: list[tuple[Path, str, str]], found: list[DatasetError], ended: Callable[[], bool]) -> None:
    for file, expected, restored_by in files:
        try:
            if file.name == DATASET_FILE:
                expected, got = read_self_checksum(file.read_bytes()) or ("", "")
            else:
                got = file_hash(file, ended)
            words = f"has changed since it was packed: expected XXH3-64 {expected}, got {got}"
        except OSError as problem:
            got, words = "", f"cannot be read: {problem.strerror or problem}"
        if ended():
            return
        if got != expected:
            found.append(DatasetError(f"{file} {words}. Its values cannot be trusted: {restored_by}"))
            return


def file_hash(file: Path, ended: Callable[[], bool] = bool) -> str:
    """XXH3-64 of a file in hex; of no use if it has `ended` before. OSError: it cannot be read, or is not regular."""
    digest = xxhash.xxh3_64()
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # no waiting for the writer of a pipe
    with open(handle, "rb", buffering=0) as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise OSError("not a regular file")
        while not ended() and (data := source.read(_CHUNK_BYTES)):
            digest.update(data)
    return digest.hexdigest()
