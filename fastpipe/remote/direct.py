"""A shard behind a URL -> its size and its bytes as they are there now, past the cache."""

from __future__ import annotations

from dataclasses import dataclass

from fastpipe.errors import DatasetError
from fastpipe.remote.retry import Ranges
from fastpipe.remote.store import Answer, Requests


@dataclass(frozen=True)
class DirectShard:
    """A file behind a URL.

    Attributes:
        name: of the file.
        ranges: fetches.
        requests: the thread of requests.
    """

    name: str
    ranges: Ranges
    requests: Requests

    def size_bytes(self) -> int:
        """Of the file.

        Raises:
            OSError: the server does not tell.
        """
        return self._fetched(0, 1).size_bytes

    def read(self, start: int, stop: int) -> bytes:
        """A range of the file.

        Raises:
            OSError: it does not come.
        """
        return bytes(self._fetched(start, stop).data) if start < stop else b""

    def _fetched(self, start: int, stop: int) -> Answer:
        try:
            return self.requests.result(self.ranges.fetch(self.name, start, stop))
        except DatasetError as problem:
            raise OSError(str(problem)) from problem
