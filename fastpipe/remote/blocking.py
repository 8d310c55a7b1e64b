"""Samples that the calling thread wants now -> it waits until they are here, and their bytes are found to be right."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import DatasetError
from fastpipe.remote.reader import Reader
from fastpipe.remote.retry import ATTEMPTS
from fastpipe.remote.tickets import Where


@contextmanager
def brought(reader: Reader, samples: NDArray[np.int64]) -> Iterator[Where]:
    """Where samples are; they stay there inside the `with`. Ctrl-C ends the wait.

    Raises:
        DatasetError: a range does not come.
    """
    outcome: list[Where | Exception] = []
    arrived = threading.Event()

    def go(where: Where | Exception) -> None:
        outcome.append(where)
        arrived.set()

    started = time.monotonic()
    ticket = reader.ticket(samples, go)
    try:
        arrived.wait()
        reader.waited(time.monotonic() - started)
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        yield outcome[0]
    finally:
        reader.end(ticket, used=False)


def check(reader: Reader, sample: int, shard: int, offset: int, size: int, expected: int) -> None:
    """Compares the hash of a sample's bytes, which are here, and fetches them again if it is another one.

    Args:
        reader: of the dataset.
        sample: its number.
        shard, offset, size: where its bytes are in the shard.
        expected: their XXH3-64.

    Raises:
        DatasetError: they are damaged at their source.
    """
    one = np.array([sample], dtype=np.int64)
    for _ in range(ATTEMPTS):
        found = xxhash.xxh3_64_intdigest(reader.read(shard, offset, offset + size))
        if found == expected:
            return
        reader.again(one)
        with brought(reader, one):
            continue
    raise DatasetError(
        f"expected XXH3-64 {expected:016x}, got {found:016x}; its bytes were fetched again and are no better, so the "
        "file behind the URL is damaged"
    )
