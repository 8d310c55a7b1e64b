"""Parts that are wanted -> requests, as many at a time as the link likes; checked answers -> written, and told.

Two kinds of threads meet here: the thread of requests, which alone begins fetches; and a few that write what has come
into the caches' files or the ring. Wants.lock guards what they share.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from fastpipe.errors import EngineError
from fastpipe.store.remote.blocks import BLOCK_BYTES
from fastpipe.store.remote.cache import WRITTEN, Cache
from fastpipe.store.remote.objects import REQUEST_BYTES, Answer
from fastpipe.store.remote.requests import request_thread
from fastpipe.store.remote.ring import Key, ShardPart
from fastpipe.store.remote.wants import Wants

_LOG = logging.getLogger("fastpipe")

_WRITERS, _WRITER_NAME = 3, "fastpipe-write"
_LOOK_S = 0.01  # how often blocks are looked at that other processes fetch
_CLAIM_S = 0.2  # how often it is seen whether such a process is gone
_SYNC_S = 5.0
_BUSY_S = 2.0
LEAST, MOST = 16, 64  # requests at a time
_STEP = 8
_WORTH_IT = 1.05  # more requests stay if the link became so many times faster
_MEASURE_S = 1.0
_MOST_NAMED = 3  # ranges in a message


class Delay(NamedTuple):
    """What takes long."""

    stage: str  # "fetching", or "awaiting" where another loader of this machine fetches it
    shard: int
    offset: int  # of its first byte
    seconds: float  # so far
    note: str  # a sentence on what else is known, or ""


class Flow:
    """Tries more requests at a time while there is work for them, and goes back where that did not pay."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.most = LEAST  # requests that may be under way
        self._since = now()
        self._bytes = 0
        self._starved = False  # there were fewer requests than there might have been
        self._before = 0.0  # the rate with fewer requests
        self._settled = False

    def add(self, size: int, *, starved: bool, busy: bool) -> None:
        """Counts bytes that came; starved: too little was to be fetched; busy: the server wants fewer requests."""
        self._bytes += size
        self._starved |= starved
        seconds = self._now() - self._since
        if seconds < _MEASURE_S:
            return
        rate = self._bytes / seconds
        if busy:  # later it may take more again
            self.most, self._before, self._settled = max(LEAST // 4, self.most // 2), 0.0, False
        elif not self._starved and not self._settled:
            if rate <= _WORTH_IT * self._before:
                self.most, self._settled = max(LEAST, self.most - _STEP), True
            elif self.most < MOST:
                self._before = rate
                self.most += _STEP
        self._since, self._bytes, self._starved = self._now(), 0, False


class Fetcher:
    """Fetches what is wanted."""

    def __init__(self, wants: Wants) -> None:
        self._wants, self._caches = wants, wants.caches
        self._thread = request_thread()
        self._patience_s = max(each.objects.patience_s for each in self._caches.remote)
        self.fetched_bytes = 0  # by the network
        self.damaged: set[int] = set()  # samples that are wrong at their source, too
        self._flow = Flow()
        self._under_way: dict[ShardPart, float] = {}  # parts that are being fetched, and since when
        self._awaited: dict[int, float] = {}  # blocks that another process fetches -> since when
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix=_WRITER_NAME)
        self._writing: set[Future[None]] = set()
        self.closed = False  # it begins nothing any more

    def begin(self, owner: object) -> None:
        self._thread.start(self._look_around(weakref.ref(owner)))

    def wake(self) -> None:
        if not self.closed:
            self._thread.call(self._pump)

    def check_usable(self) -> None:
        """Raises EngineError if the program ends."""
        self._thread.check_usable()

    def close(self, patience_s: float) -> None:
        """Begins nothing more; waits so long for what is being written, and lets go of the cache's files after it."""
        self.closed = True
        with suppress(EngineError, TimeoutError):  # EngineError: the program ends, and has cancelled all
            finished = self._thread.start(self._finish())
            if self._may_wait():
                finished.result(patience_s)

    def _may_wait(self) -> bool:
        """Whether the calling thread is none that `_finish` needs, and that thread runs: a `__del__` or a signal
        handler comes in the middle of any line, also one that holds the lock.
        """
        is_needed = self._thread.is_current() or threading.current_thread().name.startswith(_WRITER_NAME)
        if sys.is_finalizing() or is_needed:
            return False
        with suppress(RuntimeError):  # the calling thread does not hold it
            threading.Condition(self._wants.lock).notify()  # changes nothing
            return False
        return True

    def delay(self) -> Delay | None:
        now, found = time.monotonic(), []
        with self._wants.lock:
            if self._under_way:
                part = min(self._under_way, key=self._under_way.__getitem__)
                trouble = self._caches.of[part.shard].objects.trouble
                note = f"A request failed with: {trouble}" if trouble else ""
                found.append(Delay("fetching", part.shard, part.start, now - self._under_way[part], note))
            awaited = dict(self._awaited)
        if awaited:
            block = min(awaited, key=awaited.__getitem__)
            shard, start, _ = self._caches.blocks.place(range(block, block + 1))
            cache = self._caches.at(block)
            theirs = [each for each in sorted(awaited) if self._caches.at(each) is cache]
            found.append(Delay("awaiting", shard, start, now - awaited[block], self._words_of(cache, theirs)))
        return max(found, key=lambda each: each.seconds, default=None)

    def _words_of(self, cache: Cache, awaited: list[int]) -> str:
        blocks = self._caches.blocks
        runs = blocks.runs(awaited, int(blocks.first[-1]) * BLOCK_BYTES)
        places = [blocks.place(run) for run in runs[:_MOST_NAMED]]
        parts = [f"{start:,} to {stop:,} of {cache.name_of(shard)}" for shard, start, stop in places]
        more = f" and {len(runs) - _MOST_NAMED} more ranges" if len(runs) > _MOST_NAMED else ""
        who = [f"{'this ' * (each == os.getpid())}process {each}" for each in cache.holders(awaited)]
        return (
            f"Another loader, in {' and '.join(who) or 'a process of another user or container'}, fetches bytes "
            f"{', '.join(parts)}{more} into the cache {cache.folder}. If it does not go on, close it or end its "
            f"process; after {self._patience_s:g} s this loader fetches them itself"
        )

    def __len__(self) -> int:
        return len(self._under_way)

    # ---- in the thread of requests

    def _pump(self) -> None:
        with self._wants.lock:
            while not self.closed and len(self._under_way) < self._flow.most:
                # Beside those of a first batch nothing else is fetched.
                urgent, queue = self._wants.urgent, self._wants.queue
                if not urgent and (not queue or any(each.first for each in self._under_way)):
                    return
                part = (urgent or queue).popleft()
                if part.dead:  # whoever waits for it asks again
                    self._tell([part])
                    continue
                for piece in [part] if part.blocks is None else self._claimed(part.blocks):
                    self._under_way[piece] = time.monotonic()
                    task = asyncio.get_running_loop().create_task(self._bring(piece))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    def _claimed(self, blocks: Iterable[int]) -> list[ShardPart]:
        """Parts of those blocks that nobody else fetches; the others are awaited."""
        mine, there = [], []
        for block in blocks:
            cache = self._caches.at(block)
            if not cache.is_there(block) and not cache.claim(block):
                self._awaited.setdefault(block, time.monotonic())
            elif cache.is_there(block):  # by now
                cache.release(range(block, block + 1))
                there.append(block)
            else:
                mine.append(block)
        if there:
            self._tell(there)
        numbered = self._caches.blocks
        return [ShardPart(*numbered.place(run), blocks=run) for run in numbered.runs(mine, REQUEST_BYTES)]

    async def _bring(self, part: ShardPart) -> None:
        problem: Exception | None = None
        wrong: list[int] = []

        def check(answer: Answer) -> str | None:
            wrong[:] = self._wants.extents.wrong(part.shard, part.start, answer.data)
            return f"bytes of sample {wrong[0]} whose hash is not the recorded one" if wrong else None

        cache = self._caches.of[part.shard]
        try:
            name, size_bytes = cache.name_of(part.shard), int(self._caches.blocks.sizes[part.shard])
            answer = await cache.objects.fetch(name, part.start, part.stop, size_bytes=size_bytes, check=check)
            with self._wants.lock:
                self.fetched_bytes += part.stop - part.start
            await asyncio.wrap_future(self.in_thread(self._write, part, answer.data))
        except Exception as failed:
            problem = failed
        finally:
            with self._wants.lock:
                self._under_way.pop(part, None)
                self.damaged.update(wrong)
                if part.blocks is not None and not self.closed:
                    cache.release(part.blocks)
        self._tell(part.keys, problem)
        busy = time.monotonic() - cache.objects.busy_at < _BUSY_S
        self._flow.add(0 if problem else part.stop - part.start, starved=not len(self._wants), busy=busy)
        self._pump()

    def _tell(self, keys: Iterable[Key], problem: Exception | None = None) -> None:
        keys = list(keys)
        with self._wants.lock:
            for key in keys:
                if isinstance(key, int):
                    self._awaited.pop(key, None)
            told = self._wants.arrived(keys, problem)
        for ticket, outcome in told:
            ticket.go(outcome)

    async def _look_around(self, owner: weakref.ref[object]) -> None:
        """Looks after blocks that other processes fetch, and has the disk sync, as long as the owner lives."""
        synced = claimed = time.monotonic()
        while not self.closed and owner() is not None:
            await asyncio.sleep(_LOOK_S if self._awaited else 0.1)
            if self.closed:  # the cache's files may be
                break
            now = time.monotonic()
            if now - synced > _SYNC_S:
                synced = now
                await asyncio.wrap_future(self.in_thread(self.sync))
            if self._awaited and not self.closed:
                with self._wants.lock:
                    blocks = np.array(list(self._awaited), dtype=np.int64)
                    there = blocks[self._caches.states(blocks) >= WRITTEN]
                    self._wants.cache_hit_bytes += int(self._caches.blocks.bytes_of(there).sum())
                self._tell(there.tolist())
                if now - claimed > _CLAIM_S:
                    claimed = now
                    self._claim_awaited(now)
        await self._finish()

    def _claim_awaited(self, now: float) -> None:
        """Fetches blocks whose process is gone; those that one takes too long for are fetched past it."""
        with self._wants.lock:
            late = [block for block, since in self._awaited.items() if now - since > self._patience_s]
            self._wants.impatient.update(late)
            awaited, self._awaited = self._awaited, {}
            for run in self._caches.blocks.runs(list(awaited), REQUEST_BYTES):
                self._wants.urgent.extend(self._claimed(run))
            for block in self._awaited:
                self._awaited[block] = awaited.get(block, now)
        if late:
            self._tell(late)
        self._pump()

    async def _finish(self) -> None:
        """May be called twice: by `close`, and at the end of the owner's life."""
        with self._wants.lock:
            self.closed = True
        for task in self._tasks:
            task.cancel()
        self._writers.shutdown(wait=False)
        # The loop goes on meanwhile, because it has the requests of all datasets.
        if writing := [asyncio.wrap_future(each) for each in list(self._writing)]:
            await asyncio.wait(writing)
        self._writers.shutdown()  # at once: nothing is left to do
        for each in self._caches.remote:
            each.close()

    # ---- in the threads that write

    def in_thread(self, work: Callable[..., None], *given: Any) -> Future[None]:
        begun = self._writers.submit(work, *given)
        self._writing.add(begun)
        begun.add_done_callback(self._writing.discard)
        return begun

    def _write(self, part: ShardPart, data: Any) -> None:
        if self.closed:
            return
        if part.blocks is None:
            self._wants.ring_parts.store(part, data)
            return
        cache = self._caches.of[part.shard]
        try:
            cache.write(part.shard, part.start, data)
        except OSError as problem:
            is_told = self._caches.given_up
            cache.limit = 0  # what is there stays
            if not is_told:
                _LOG.warning(
                    "the cache in %s takes no more (%s): from here on, what it does not have is fetched in each epoch. "
                    "Make room on that disk, or pass another cache_dir=",
                    cache.root,
                    problem.strerror or problem,
                )

    def sync(self) -> None:
        """Has the disks write what the caches have."""
        for cache in self._caches.remote:
            try:
                if not self.closed:
                    cache.sync()
            except OSError as problem:
                _LOG.warning("the cache in %s: the disk does not write: %s", cache.root, problem.strerror)
