"""The files beside a dataset's shards -> whether they still have the hashes that dataset.json has for them."""

from __future__ import annotations

import os
import stat
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import DatasetError
from fastpipe.format.description import read_self_checksum
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, SOURCES_FILE

_CHUNK_BYTES = 4 << 20
_AT_ONCE_BYTES = 256 << 20


class Intact:
    """Compares, once, dataset.json, index.npy and the columns of the fields in use with their hashes, in a thread."""

    def __init__(self, index: Index, fields: Iterable[str]) -> None:
        self._files = list(index.hashed_files(fields))
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


def intact_sources(index: Index) -> NDArray[np.void]:
    """(n,) of SOURCES_DTYPE, of a packed dataset's samples, mapped into memory. DatasetError: the file has changed."""
    file = index.files / SOURCES_FILE
    if file_hash(file) != index.info["sources"]["file_xxh3_64"]:
        raise DatasetError(f"{file} has changed since it was packed; find the damage with fastpipe verify first")
    return np.lib.format.open_memmap(file, mode="r")


def file_hash(file: Path, ended: Callable[[], bool] = bool) -> str:
    """XXH3-64 of a regular file in hex, in a pass that keeps a few MB; of no use if it has `ended` before. OSError: it
    cannot be read, or is no regular file.
    """
    digest = xxhash.xxh3_64()
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # no waiting for the writer of a pipe
    with open(handle, "rb", buffering=0) as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise OSError("not a regular file")
        while not ended() and (data := source.read(_CHUNK_BYTES)):
            digest.update(data)
    return digest.hexdigest()
