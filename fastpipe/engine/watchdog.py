"""A wait for a batch that takes too long -> a warning, later an error: which thread is stuck, and where."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastpipe.errors import DatasetError, EngineError
from fastpipe.format.index import Index
from fastpipe.machine.state import machine_state

_LOG = logging.getLogger("fastpipe")
_TIMES_UNTIL_ERROR = 10


@dataclass(frozen=True)
class Activity:
    """What a thread of the engine is at."""

    stage: str  # "idle", "fetching", "awaiting" (another loader fetches it), "opening" and so on: see `_stuck`
    shard: int  # its number
    offset: int  # byte of the image in it
    seconds: float  # it has been at this row
    note: str = ""  # a sentence on what else is known


class Watchdog:
    """Watches one wait after the other: warns after so many seconds without a batch, raises after ten times as many."""

    def __init__(self, timeout_s: float, index: Index, activities: Callable[[], Sequence[Activity]]) -> None:
        self._timeout_s = timeout_s
        self._index = index
        self._activities = activities
        self._warned = False

    def wait(
        self, ended: Callable[[float], bool], stuck: str = "", check: Callable[[], object] = lambda: None
    ) -> float:
        """Waits until `ended`, which takes a timeout, says so; the seconds that it took. Meanwhile looks, as of `look`,
        and calls `check`, which may raise, every 0.1 s at least: so soon is a close() seen.
        """
        started, self._warned = time.perf_counter(), False
        waited_s, limit_s = 0.0, self._timeout_s
        while not ended(min(0.1, max(limit_s - waited_s, 0.01))):
            check()
            waited_s = time.perf_counter() - started
            self.look(waited_s, stuck)
            limit_s = self._timeout_s * (_TIMES_UNTIL_ERROR if self._warned else 1)
        return time.perf_counter() - started

    def look(self, waited_s: float, stuck: str = "") -> None:
        """Warns if this wait has been too long; EngineError after ten times the time, unless it is a wait for the work
        of the program, which may take as long as it likes: `stuck` says then for what.
        """
        until_error_s = self._timeout_s * _TIMES_UNTIL_ERROR
        if waited_s >= until_error_s and not stuck:
            raise EngineError(self._report(waited_s, stuck))
        if waited_s >= self._timeout_s and not self._warned:
            self._warned = True
            then = "" if stuck else f"; after {until_error_s:g} s (10 times stall_timeout) there is an error"
            _LOG.warning("%s\nstill waiting%s", self._report(waited_s, stuck), then)

    def _report(self, waited_s: float, stuck: str) -> str:
        activities = list(self._activities())
        threads = [f"  thread {number}: {self._words(each)}" for number, each in enumerate(activities)]
        first = f"no batch for {waited_s:.0f} s: {stuck or self._stuck(activities)}"
        return "\n".join([first, *threads, f"  machine: {machine_state()}"])

    def _stuck(self, activities: Sequence[Activity]) -> str:
        busy = [each for each in activities if each.stage != "idle"]
        if not busy:
            return "no thread is at work on it, which is a fault of fastpipe; report it with these lines"
        slowest = max(busy, key=lambda each: each.seconds)
        advice = {
            "fetching": "the server is slow, or does not answer; check the network",
            "opening": "the file system does not answer; check the disk or the network",
            "reading": "the disk or the network does not answer; check it, or copy the dataset to a local disk",
            "decoding": "this image is slow to decode, or other programs use the CPUs",
            "converting": "this image is no baseline JPEG or PNG, and slow to convert; `fastpipe pack` does it once",
            "resizing": "other programs use the CPUs, or the output is very large",
        }
        words = filter(None, (advice.get(slowest.stage), slowest.note))
        return f"stuck {slowest.stage} {self._place(slowest)}, for {slowest.seconds:.0f} s so far. {'. '.join(words)}"

    def _words(self, activity: Activity) -> str:
        if activity.stage == "idle":
            return "idle"
        return f"{activity.stage} {self._place(activity)}, {activity.seconds:.1f} s"

    def _place(self, activity: Activity) -> str:
        shard = self._index.shards[activity.shard]
        try:
            sample = self._index.sample_at(activity.shard, activity.offset)
            if sample is not None:
                path, key, offset = self._index.where(sample)
                return f"sample {sample} (key {key}) at byte {offset} of {path}"
        except DatasetError:  # what it is about matters more than that the index is gone, too
            pass
        return f"byte {activity.offset} of {self._index.path / shard.name}"
