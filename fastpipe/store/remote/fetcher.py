"""Parts that are wanted -> requests, as many at a time as the link takes; answers -> written.

Two kinds of threads meet here. The thread of requests alone begins fetches. A few others write what
has come into the caches' files or the ring. Wants.lock guards what they share.
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

from fastpipe.errors import EngineError, FastpipeError, first_names
from fastpipe.store.remote.blocks import BLOCK_BYTES
from fastpipe.store.remote.cache import WRITTEN, Cache
from fastpipe.store.remote.objects import REQUEST_BYTES, Answer, without_cause
from fastpipe.store.remote.requests import request_thread
from fastpipe.store.remote.ring import Key, ShardPart
from fastpipe.store.remote.wants import Wants

_LOG = logging.getLogger("fastpipe")

_NUM_WRITERS = 3
_WRITER_NAME = "fastpipe-write"
# The fetcher looks so often for blocks that other processes fetch. Without such blocks the pause is
# longer.
_LOOK_S = 0.01
_IDLE_LOOK_S = 0.1
# It looks so often whether a process that fetches such blocks has ended.
_CLAIM_S = 0.2
_SYNC_S = 5.0
# A server that wanted fewer requests counts as busy for so long.
_BUSY_S = 2.0
# The limits of the number of requests at a time, and how much it changes at once.
MIN_REQUESTS = 16
MAX_REQUESTS = 64
_STEP = 8
# More requests at a time stay if the link became so many times as fast.
_WORTH_IT = 1.05
_MEASURE_S = 1.0
_MAX_RANGES_SHOWN = 3


class Delay(NamedTuple):
    """What takes long."""

    # "fetching", or "awaiting" if another loader of this machine fetches it.
    stage: str
    shard: int
    # The offset of its first byte.
    offset: int
    # How long it has taken so far.
    seconds: float
    # A sentence on what else is known, or "".
    note: str


class Flow:
    """The number of requests at a time.

    It tries more requests while there is work for them, and goes back where that did not pay.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The number of requests that may be under way.
        self.most = MIN_REQUESTS
        # What was counted since the last decision.
        self._start_time = clock()
        self._bytes = 0
        self._was_starved = False
        # The rate with fewer requests, in bytes a second.
        self._last_rate = 0.0
        self._is_settled = False

    def add(self, size: int, *, starved: bool, busy: bool) -> None:
        """Counts bytes that came.

        Args:
            size: the number of bytes.
            starved: whether there was less to fetch than requests were allowed.
            busy: whether the server wants fewer requests.
        """
        self._bytes += size
        self._was_starved |= starved
        elapsed_s = self._clock() - self._start_time
        if elapsed_s < _MEASURE_S:
            return
        self._decide(self._bytes / elapsed_s, busy=busy)
        self._start_time = self._clock()
        self._bytes = 0
        self._was_starved = False

    def _decide(self, rate: float, *, busy: bool) -> None:
        if busy:
            # The server may take more again later.
            self.most = max(MIN_REQUESTS // 4, self.most // 2)
            self._last_rate = 0.0
            self._is_settled = False
        elif self._was_starved or self._is_settled:
            return
        elif rate <= _WORTH_IT * self._last_rate:
            self.most = max(MIN_REQUESTS, self.most - _STEP)
            self._is_settled = True
        elif self.most < MAX_REQUESTS:
            self._last_rate = rate
            self.most += _STEP


class Fetcher:
    """Fetches what is wanted."""

    def __init__(self, wants: Wants) -> None:
        self._wants = wants
        self._caches = wants.caches
        self._thread = request_thread()
        self._patience_s = max(
            cache.objects.patience_s for cache in self._caches.remote
        )
        # Bytes that came over the network.
        self.fetched_bytes = 0
        # Samples that are wrong behind the URL, too.
        self.damaged: set[int] = set()
        self._flow = Flow()
        # When the fetch of each part began, and the wait for each block of another process.
        self._under_way: dict[ShardPart, float] = {}
        self._awaited: dict[int, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers = ThreadPoolExecutor(
            _NUM_WRITERS, thread_name_prefix=_WRITER_NAME
        )
        self._writing: set[Future[None]] = set()
        # Whether it begins nothing any more.
        self.closed = False

    def begin(self, owner: object) -> None:
        """Starts work, which goes on as long as the owner lives."""
        self._thread.start(self._look_around(weakref.ref(owner)))

    def wake(self) -> None:
        """Fetches what has become wanted."""
        if not self.closed:
            self._thread.call(self._begin_fetches)

    def check_usable(self) -> None:
        """Raises EngineError if the program ends."""
        self._thread.check_usable()

    def close(self, patience_s: float) -> None:
        """Begins nothing more, and closes the cache's files after what is being written.

        Waits for that at most `patience_s`.
        """
        self.closed = True
        # EngineError: the program ends, and has cancelled all.
        with suppress(EngineError, TimeoutError):
            is_finished = self._thread.start(self._finish())
            if self._may_wait():
                is_finished.result(patience_s)

    def _may_wait(self) -> bool:
        """Whether the calling thread may wait for `_finish`.

        A `__del__` or a signal handler interrupts any line. `_finish` may need the thread that was
        interrupted, or the lock that this thread holds.
        """
        is_needed = self._thread.is_current() or _is_writer(threading.current_thread())
        if sys.is_finalizing() or is_needed:
            return False
        with suppress(RuntimeError):
            # Only a thread that holds the lock may notify. Nobody waits for it, so it changes
            # nothing. RLock itself does not say who holds it.
            threading.Condition(self._wants.lock).notify()
            return False
        return True

    def delay(self) -> Delay | None:
        """What has taken longest so far; None if nothing is under way."""
        now_s = time.monotonic()
        delays: list[Delay] = []
        with self._wants.lock:
            if self._under_way:
                part = min(self._under_way, key=self._under_way.__getitem__)
                elapsed_s = now_s - self._under_way[part]
                trouble = self._caches.cache_of_shard[part.shard].objects.trouble
                note = f"A request failed with: {trouble}" if trouble else ""
                delays.append(
                    Delay("fetching", part.shard, part.start, elapsed_s, note)
                )
            awaited = dict(self._awaited)
        if awaited:
            block = min(awaited, key=awaited.__getitem__)
            shard, start, _ = self._caches.blocks.range_of(block)
            cache = self._caches.at(block)
            blocks = [
                other for other in sorted(awaited) if self._caches.at(other) is cache
            ]
            note = self._describe_awaited(cache, blocks)
            waited_s = now_s - awaited[block]
            delays.append(Delay("awaiting", shard, start, waited_s, note))
        return max(delays, key=lambda delay: delay.seconds, default=None)

    def _describe_awaited(self, cache: Cache, awaited: list[int]) -> str:
        blocks = self._caches.blocks
        # The limit is the size of all shards, so that neighbours are always one run.
        all_bytes = int(blocks.first_blocks[-1]) * BLOCK_BYTES
        runs = blocks.runs(awaited, all_bytes)
        ranges: list[str] = []
        for run in runs:
            shard, start, stop = blocks.byte_range(run)
            name = cache.name_of(shard)
            ranges.append(f"{start:,} to {stop:,} of {name}")
        shown_ranges = first_names(ranges, _MAX_RANGES_SHOWN)
        processes: list[str] = []
        for pid in cache.holders(awaited):
            this = "this " if pid == os.getpid() else ""
            processes.append(f"{this}process {pid}")
        owner = " and ".join(processes) or "a process of another user or container"
        return (
            f"Another loader, in {owner}, fetches bytes {shown_ranges} into the cache "
            f"{cache.folder}. If it does not go on, close it or end its process; after "
            f"{self._patience_s:g} s this loader fetches them itself"
        )

    def __len__(self) -> int:
        """The number of requests under way."""
        return len(self._under_way)

    # ---- in the thread of requests

    def _begin_fetches(self) -> None:
        """Begins as many fetches as the flow allows."""
        with self._wants.lock:
            while not self.closed and len(self._under_way) < self._flow.most:
                urgent = self._wants.urgent
                queue = urgent or self._wants.queue
                if not queue:
                    return
                # While a first batch is fetched, nothing else is.
                if not urgent and any(part.is_first_batch for part in self._under_way):
                    return
                self._begin_fetch(queue.popleft())

    def _begin_fetch(self, part: ShardPart) -> None:
        if part.dead:
            # Whoever waits for it asks again.
            self._report([part])
            return
        if part.blocks is None:
            pieces = [part]
        else:
            pieces = self._claim(part.blocks)
        for piece in pieces:
            self._under_way[piece] = time.monotonic()
            task = asyncio.get_running_loop().create_task(self._fetch(piece))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _claim(self, blocks: Iterable[int]) -> list[ShardPart]:
        """Parts of those blocks that nobody else fetches. The others are awaited."""
        mine: list[int] = []
        written: list[int] = []
        for block in blocks:
            cache = self._caches.at(block)
            if not cache.is_there(block) and not cache.claim(block):
                self._awaited.setdefault(block, time.monotonic())
            elif cache.is_there(block):
                # Another process has written it since the first look.
                cache.release(range(block, block + 1))
                written.append(block)
            else:
                mine.append(block)
        if written:
            self._report(written)
        parts: list[ShardPart] = []
        for run in self._caches.blocks.runs(mine, REQUEST_BYTES):
            shard, start, stop = self._caches.blocks.byte_range(run)
            parts.append(ShardPart(shard, start, stop, blocks=run))
        return parts

    async def _fetch(self, part: ShardPart) -> None:
        """Fetches a part, reports it, and begins the next one."""
        problem: Exception | None = None
        try:
            await self._fetch_and_write(part)
        except FastpipeError as failure:
            problem = without_cause(failure)
        except Exception as failure:
            # Whatever it is, whoever waits for the part gets it. Without an answer they wait forever.
            problem = failure
        self._report(part.keys, problem)

        # The speed of this fetch, and the server's answers, decide how many requests follow.
        objects = self._caches.cache_of_shard[part.shard].objects
        size = 0 if problem else part.stop - part.start
        busy_for_s = time.monotonic() - objects.busy_at
        is_busy = busy_for_s < _BUSY_S
        is_starved = not len(self._wants)
        self._flow.add(size, starved=is_starved, busy=is_busy)
        self._begin_fetches()

    async def _fetch_and_write(self, part: ShardPart) -> None:
        """Fetches a part, checks its samples, and has it written."""
        wrong_samples: list[int] = []

        def check(answer: Answer) -> str | None:
            # A wrong answer is fetched again. So only the last answer's wrong samples stay.
            extents = self._wants.extents
            wrong_samples[:] = extents.wrong(part.shard, part.start, answer.data)
            if not wrong_samples:
                return None
            return (
                f"bytes of sample {wrong_samples[0]} whose hash is not the recorded one"
            )

        cache = self._caches.cache_of_shard[part.shard]
        shard_bytes = int(self._caches.blocks.sizes[part.shard])
        try:
            answer = await cache.objects.fetch(
                cache.name_of(part.shard),
                part.start,
                part.stop,
                size_bytes=shard_bytes,
                check=check,
            )
            with self._wants.lock:
                self.fetched_bytes += part.stop - part.start
            written = self.in_thread(self._write, part, answer.data)
            await asyncio.wrap_future(written)
        finally:
            # A task that is cancelled ends here, too: the claims of its blocks must not stay.
            with self._wants.lock:
                self._under_way.pop(part, None)
                self.damaged.update(wrong_samples)
                if part.blocks is not None and not self.closed:
                    cache.release(part.blocks)

    def _report(self, keys: Iterable[Key], problem: Exception | None = None) -> None:
        """Tells those who wait that blocks or parts are there, or cannot come."""
        keys = list(keys)
        with self._wants.lock:
            for key in keys:
                if isinstance(key, int):
                    self._awaited.pop(key, None)
            ready = self._wants.arrived(keys, problem)
        # Without the lock, because `on_ready` runs code of the engine.
        for ticket, outcome in ready:
            ticket.on_ready(outcome)

    async def _look_around(self, owner: weakref.ref[object]) -> None:
        """Looks for blocks that other processes fetch, and syncs, as long as the owner lives."""
        sync_time = time.monotonic()
        claim_time = sync_time
        while not self.closed and owner() is not None:
            pause_s = _LOOK_S if self._awaited else _IDLE_LOOK_S
            await asyncio.sleep(pause_s)
            if self.closed:
                # The cache's files may be closed, too.
                break
            now_s = time.monotonic()
            if now_s - sync_time > _SYNC_S:
                sync_time = now_s
                await asyncio.wrap_future(self.in_thread(self.sync))
            if self._awaited and not self.closed:
                self._report_awaited()
                if now_s - claim_time > _CLAIM_S:
                    claim_time = now_s
                    self._claim_awaited(now_s)
        await self._finish()

    def _report_awaited(self) -> None:
        """Reports the awaited blocks that another process has written."""
        with self._wants.lock:
            blocks = np.array(list(self._awaited), dtype=np.int64)
            written = blocks[self._caches.states(blocks) >= WRITTEN]
            self._wants.cache_hit_bytes += int(
                self._caches.blocks.bytes_of(written).sum()
            )
        self._report(written.tolist())

    def _claim_awaited(self, now_s: float) -> None:
        """Fetches blocks whose process has ended.

        If a process takes too long for a block, this loader fetches the samples past it.
        """
        with self._wants.lock:
            late: list[int] = []
            for block, start_time in self._awaited.items():
                if now_s - start_time > self._patience_s:
                    late.append(block)
            self._wants.impatient.update(late)
            awaited = self._awaited
            self._awaited = {}
            for run in self._caches.blocks.runs(list(awaited), REQUEST_BYTES):
                self._wants.urgent.extend(self._claim(run))
            # Those that are awaited again keep their start.
            for block in self._awaited:
                self._awaited[block] = awaited.get(block, now_s)
        if late:
            # Whoever waits for these blocks asks again, and gets the samples through the ring.
            self._report(late)
        self._begin_fetches()

    async def _finish(self) -> None:
        """May be called twice: by `close`, and at the end of the owner's life."""
        with self._wants.lock:
            self.closed = True
        for task in self._tasks:
            task.cancel()
        self._writers.shutdown(wait=False)
        # The loop goes on meanwhile, because it makes the requests of all datasets.
        writing = [asyncio.wrap_future(future) for future in list(self._writing)]
        if writing:
            await asyncio.wait(writing)
        # Nothing is left to write, so this returns at once.
        self._writers.shutdown()
        for cache in self._caches.remote:
            cache.close()

    # ---- in the threads that write

    def in_thread(self, work: Callable[..., None], *arguments: Any) -> Future[None]:
        """Calls a function in a thread that writes."""
        future = self._writers.submit(work, *arguments)
        self._writing.add(future)
        future.add_done_callback(self._writing.discard)
        return future

    def _write(self, part: ShardPart, data: Any) -> None:
        """Writes a part into the cache or the ring."""
        if self.closed:
            return
        if part.blocks is None:
            self._wants.ring_parts.store(part, data)
            return
        cache = self._caches.cache_of_shard[part.shard]
        try:
            cache.write(part.shard, part.start, data)
        except OSError as problem:
            has_warned = self._caches.given_up
            # The blocks that the cache has stay.
            cache.limit = 0
            if not has_warned:
                _LOG.warning(
                    "the cache in %s takes no more (%s): from here on, what it does not have is "
                    "fetched in each epoch. Make room on that disk, or pass another cache_dir=",
                    cache.root,
                    problem.strerror or problem,
                )

    def sync(self) -> None:
        """Syncs the files of the caches."""
        for cache in self._caches.remote:
            try:
                if not self.closed:
                    cache.sync()
            except OSError as problem:
                reason = problem.strerror or problem
                _LOG.warning("cannot write to the cache in %s: %s", cache.root, reason)


def _is_writer(thread: threading.Thread) -> bool:
    return thread.name.startswith(_WRITER_NAME)
