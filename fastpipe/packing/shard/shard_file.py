"""Pieces of bytes -> a synced file and its hash, sent to the disk while more is being written."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import xxhash

from fastpipe.store.files import no_link

# Written at once: with each write this thread lets go of the GIL, and waits until it gets it back.
_BUFFER_BYTES = 1 << 20
# The disk begins after so many bytes, so that little is left to wait for in the end.
_SYNC_BYTES = 32 << 20


class ShardFile:
    """A file that is written from start to end.

    Args:
        path: of the file; one that is there is replaced, unless it is a link.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "wb", _BUFFER_BYTES, opener=no_link)  # noqa: SIM115 (held until finish or discard)
        self._hash = xxhash.xxh3_64()
        self._syncs = ThreadPoolExecutor(1, thread_name_prefix="fastpipe-sync")
        self._syncing: Future[None] | None = None
        self._next_sync_bytes = _SYNC_BYTES
        self.size_bytes = 0

    def write(self, piece: bytes) -> None:
        """Appends a piece.

        Raises:
            OSError: the disk refuses, also where it refused an earlier piece only now.
        """
        self._hash.update(piece)
        self._file.write(piece)
        self.size_bytes += len(piece)
        if self.size_bytes >= self._next_sync_bytes and (self._syncing is None or self._syncing.done()):
            self._check_sync()
            self._file.flush()
            sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
            self._syncing = self._syncs.submit(sync, self._file.fileno())
            self._next_sync_bytes = self.size_bytes + _SYNC_BYTES

    def finish(self) -> str:
        """Syncs and closes the file; returns the XXH3-64 of its bytes in hex."""
        self._check_sync()
        self._syncs.shutdown()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._hash.hexdigest()

    def discard(self) -> None:
        """Removes the file."""
        self._syncs.shutdown()
        with contextlib.suppress(OSError):  # a full disk refuses what is left in the buffer, too
            self._file.close()
        with contextlib.suppress(OSError):  # what made us discard it is to be told
            self._path.unlink(missing_ok=True)

    def _check_sync(self) -> None:
        """Waits for the sync under way. The system tells of a piece that it lost once only, so its word is needed."""
        if self._syncing is not None:
            self._syncing.result()
            self._syncing = None
