"""Parts that have arrived -> written, by a few threads, into the cache's files or the ring."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from fastpipe.remote.caches import Caches
from fastpipe.remote.parts import Part
from fastpipe.remote.wants import Wants

_LOG = logging.getLogger("fastpipe")

THREAD_NAMES = "fastpipe-write"  # how they begin

_WRITERS = 3


class Arrivals:
    """Writes what comes: blocks into the caches, all else into the ring, where somebody wants it."""

    def __init__(self, wants: Wants, caches: Caches) -> None:
        self._wants, self._caches = wants, caches
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix=THREAD_NAMES)
        self._begun: set[Future[None]] = set()
        self._closed = False

    def store(self, part: Part, data: Any) -> Future[None]:
        """Has a thread put a part into its file."""
        return self._begin(self._store, part, data)

    def sync(self) -> Future[None]:
        """Has a thread have the disk write what came."""
        return self._begin(self.sync_now)

    def _begin(self, work: Callable[..., None], *given: Any) -> Future[None]:
        begun = self._writers.submit(work, *given)
        self._begun.add(begun)
        begun.add_done_callback(self._begun.discard)
        return begun

    def _store(self, part: Part, data: Any) -> None:
        if self._closed:
            return
        if part.blocks is None:
            self._wants.ring_parts.store(part, data)
            return
        dataset, shard = self._caches.of_shard(part.shard)
        try:
            dataset.cache.write(shard, part.start, data)
        except OSError as problem:
            is_told = self._caches.given_up
            dataset.cache.give_up()
            if not is_told:
                _LOG.warning(
                    "the cache in %s takes no more (%s): from here on, what it does not have is fetched in each epoch. "
                    "Make room on that disk, or pass another cache_dir=",
                    dataset.cache.root,
                    problem.strerror or problem,
                )

    def sync_now(self) -> None:
        """Has the disk write what came."""
        for cache in [each.cache for each in self._caches.remote if not self._closed]:
            try:
                cache.sync()
            except OSError as problem:
                _LOG.warning("the cache in %s: the disk does not write: %s", cache.root, problem.strerror)

    async def close(self) -> None:
        """Writes nothing from now on, and waits for what is being written; the loop goes on meanwhile, because it has
        the requests of all datasets.
        """
        self._closed = True
        self._writers.shutdown(wait=False)
        if begun := [asyncio.wrap_future(each) for each in list(self._begun)]:
            await asyncio.wait(begun)
        self._writers.shutdown()  # at once: nothing is left to do
