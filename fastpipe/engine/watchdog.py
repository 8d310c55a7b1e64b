"""A wait for a batch that takes too long -> a warning, later an error: which thread is stuck."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fastpipe.dataset.format.index import Index
from fastpipe.errors import DatasetError, EngineError, readable
from fastpipe.machine.state import describe_machine_state

_LOG = logging.getLogger("fastpipe")
_ERROR_FACTOR = 10  # the error comes after so many times the time until the warning
_LOOK_S = 0.1  # between two looks at the engine while waiting
_ADVICE = {
    "fetching": "the server is slow, or does not answer; check the network",
    "opening": "the file system does not answer; check the disk or the network",
    "reading": "the disk or the network does not answer; check it, or copy the dataset to a local "
    "disk",
    "decoding": "this image is slow to decode, or other programs use the CPUs",
    "converting": "this image is no baseline JPEG or PNG, and slow to convert; "
    "`fastpipe pack` does it once",
    "resizing": "other programs use the CPUs, or the output is very large",
}


@dataclass(frozen=True)
class Activity:
    """What a thread of the engine is doing."""

    # "idle", "opening", "reading", "decoding", "resizing", "converting", "fetching", or "awaiting",
    # which means that another loader fetches the sample.
    stage: str
    shard: int  # its number
    offset: int  # of the image in it, in bytes
    seconds: float  # since it began with this row
    note: str = ""  # a sentence with more about it


class Watchdog:
    """Watches one wait after the other.

    Warns after `timeout_s` seconds without a batch, and raises after ten times as long.
    `activities` reads what the engine's threads are doing.
    """

    def __init__(
        self,
        timeout_s: float,
        index: Index,
        activities: Callable[[], Sequence[Activity]],
    ) -> None:
        self._timeout_s = timeout_s
        self._index = index
        self._activities = activities
        self._has_warned = False  # of the present wait

    def wait(
        self,
        wait_until_done: Callable[[float], bool],
        user_work: str = "",
        check: Callable[[], object] = lambda: None,
    ) -> float:
        """Waits, watches, and returns the seconds that it took.

        Args:
            wait_until_done: waits for at most so many seconds; returns whether the wait is over.
            user_work: a sentence, if it is a wait for the user's own work: see `look`.
            check: called every 0.1 s, so that a close in another thread is noticed; it may raise.
        """
        started = time.perf_counter()
        self._has_warned = False
        waited_s = 0.0
        limit_s = self._timeout_s
        # The wait ends when the next limit is reached, so that a warning comes on time.
        while not wait_until_done(min(_LOOK_S, max(limit_s - waited_s, _LOOK_S / 10))):
            check()
            waited_s = time.perf_counter() - started
            # The machine may have held this thread up, and the batch has come meanwhile: then the
            # engine's threads are idle, and there is nothing to say.
            if waited_s >= limit_s and wait_until_done(0):
                break
            self.look(waited_s, user_work)
            limit_s = self._timeout_s
            if self._has_warned:
                limit_s *= _ERROR_FACTOR
        return time.perf_counter() - started

    def look(self, waited_s: float, user_work: str = "") -> None:
        """Warns once if a wait takes long; raises EngineError after ten times as long.

        The user's own work may take as long as it likes: then there is a warning, and no error.
        """
        error_after_s = self._timeout_s * _ERROR_FACTOR
        if waited_s >= error_after_s and not user_work:
            raise EngineError(self._report(waited_s, user_work))
        if waited_s < self._timeout_s or self._has_warned:
            return
        self._has_warned = True
        outlook = "still waiting"
        if not user_work:
            outlook += f"; after {error_after_s:g} s (10 times stall_timeout) there is an error"
        _LOG.warning("%s\n%s", self._report(waited_s, user_work), outlook)

    def _report(self, waited_s: float, user_work: str) -> str:
        activities = list(self._activities())
        cause = user_work or self._describe_slowest(activities)
        lines = [f"no batch for {waited_s:.0f} s: {cause}"]
        for number, activity in enumerate(activities):
            description = self._describe(activity)
            lines.append(f"  thread {number}: {description}")
        machine = describe_machine_state()
        lines.append(f"  machine: {machine}")
        return "\n".join(lines)

    def _describe_slowest(self, activities: Sequence[Activity]) -> str:
        """Names the thread that has been at its row for the longest time, and what to do."""
        busy = [activity for activity in activities if activity.stage != "idle"]
        if not busy:
            return (
                "no thread is at work on it, which is a fault of fastpipe; report it with these "
                "lines"
            )
        slowest = max(busy, key=lambda activity: activity.seconds)
        place = self._describe_place(slowest)
        text = f"stuck {slowest.stage} {place}, for {slowest.seconds:.0f} s so far. "
        hints = [_ADVICE.get(slowest.stage), slowest.note]
        return text + ". ".join(hint for hint in hints if hint)

    def _describe(self, activity: Activity) -> str:
        if activity.stage == "idle":
            return "idle"
        place = self._describe_place(activity)
        return f"{activity.stage} {place}, {activity.seconds:.1f} s"

    def _describe_place(self, activity: Activity) -> str:
        shard = self._index.shards[activity.shard]
        shard_path = self._index.path / shard.name
        place = f"byte {activity.offset} of {shard_path}"
        try:
            sample = self._index.sample_at(activity.shard, activity.offset)
            if sample is None:
                return place
            path, member, offset = self._index.where(sample)
            # The path of a packed sample is in its shard. Reading it could wait for ever, too.
            (key,) = self._index.paths_of(np.array([sample]))
        except DatasetError:  # the index is gone, too; the thread is what matters here
            return place
        name = readable(key or f"member {member}")
        return f"sample {sample} ({name}) at byte {offset} of {path}"
