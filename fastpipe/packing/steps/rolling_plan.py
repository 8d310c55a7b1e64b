"""Parts as they are converted -> the shards that can be made, as soon as they can.

Note [a rolling plan]
Parts that are runs in packing order need not all be converted before the first shard is made. When the first parts are
there, so are the first shards: a shard ends where the next sample does not fit, so all shards but the last one are
certain. They are assembled while later parts are converted, and the spool files that are only of finished shards are
removed. So the spool has a few parts, not the whole dataset; what was written a moment ago is read from memory; and
what is removed soon is not written to a disk at all. Rows of tables lie anywhere in packing order: there all parts have
to be converted first.

A pack that goes on begins behind the unbroken run of finished shards, with what their journal says was agreed. Spool
files up to there are gone; all others are kept, also behind shards that were finished out of turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.output.journal import ShardEntry
from fastpipe.packing.steps.agreed import Placed, agreed_blocks, must_agree, states_at
from fastpipe.packing.steps.convert_step import read_columns
from fastpipe.packing.steps.cut import cut, most_blocks
from fastpipe.packing.steps.job import Job, Part
from fastpipe.packing.steps.plan_step import plan_step
from fastpipe.packing.steps.ranges import ranges_of
from fastpipe.packing.steps.records import LINES_BYTES, records
from fastpipe.packing.steps.shard_plan import ShardPlan
from fastpipe.packing.steps.sources import Sources


class RollingPlan(Protocol):
    """Says what can be assembled, and what is no longer needed.

    Attributes:
        shards: that are planned or were finished before.
    """

    shards: int

    def needed(self) -> Sequence[Part]:
        """The parts that the shards are made of which are not finished."""

    def converted(self, part: Part) -> Iterable[ShardPlan]:
        """Takes note that one of these is there; returns the shards that can be made now."""

    def finished(self, shard: ShardPlan) -> list[Part]:
        """Takes note that a shard is there; returns the parts whose spool files are not needed any more."""


def rolling_plan(job: Job, sources: Sources, done: Sequence[ShardEntry]) -> RollingPlan:
    """The plan of a pack.

    Args:
        job: of it.
        sources: that are packed.
        done: the unbroken run of finished shards.
    """
    return _AtOnce(job, sources) if sources.listed.kind else _InRuns(job, sources, done)


class _AtOnce:
    """All shards, when all parts are there."""

    def __init__(self, job: Job, sources: Sources) -> None:
        self._job, self._parts = job, sources.parts
        self._left = {part.name for part in sources.parts}
        self.shards = 0

    def needed(self) -> Sequence[Part]:
        return self._parts

    def converted(self, part: Part) -> Iterable[ShardPlan]:
        self._left.discard(part.name)
        if self._left:
            return []
        plan = plan_step(self._job)
        self.shards = len(plan)
        return plan.shards()

    def finished(self, shard: ShardPlan) -> list[Part]:
        return []


class _InRuns:
    """Parts that are runs in packing order. Note [a rolling plan]"""

    def __init__(self, job: Job, sources: Sources, done: Sequence[ShardEntry]) -> None:
        self._store, self._sources = job.store(), sources
        self._most = most_blocks(job.options.shard_size)
        kinds = sources.kinds
        state = done[-1].agreed if done else None
        # Of the samples of all parts so far, and of those before the next shard.
        self._agreed = (Agreement(kinds, state), Agreement(kinds, state)) if must_agree(kinds) else None
        # The next shard: its number, and so how many there are; the position of its first source, and its first sample.
        self.shards, self._start = len(done), done[-1].next_source if done else 0
        self._first_sample = sum(entry.samples for entry in done)
        self._blocks = np.zeros(0, np.uint32)  # from there on
        self._first = self._next = int(np.searchsorted(sources.ends, self._start, side="right"))
        self._open: list[tuple[Part, NDArray[np.void]]] = []  # parts with these
        self._there: set[int] = set()  # parts that are converted
        self._unfinished: dict[int, int] = {}  # shard -> its start

    def needed(self) -> Sequence[Part]:
        return self._sources.parts[self._next :]

    def converted(self, part: Part) -> list[ShardPlan]:
        self._there.add(part.number)
        if part.number != self._next:
            return []
        while self._next in self._there:
            self._take(self._sources.parts[self._next])
            self._next += 1
        return self._cut(is_end=self._next == len(self._sources.parts))

    def finished(self, shard: ShardPlan) -> list[Part]:
        del self._unfinished[shard.number]
        start = min(self._unfinished.values(), default=self._start)
        first, self._first = self._first, int(np.searchsorted(self._sources.ends, start, side="right"))
        return self._sources.parts[first : self._first]

    def _take(self, part: Part) -> None:
        """The blocks of the samples of one more part."""
        columns = read_columns(self._store, part)
        rows = columns[columns["position"] >= self._start]
        blocks = rows["blocks"].copy()
        if self._agreed is not None and len(rows):
            for position, now in agreed_blocks(self._agreed[0], self._behind(records(self._store, part, LINES_BYTES))):
                blocks[position - rows["position"][0]] = now
        self._blocks = np.concatenate((self._blocks, blocks))
        self._open.append((part, columns))

    def _cut(self, *, is_end: bool) -> list[ShardPlan]:
        """The shards that are certain."""
        lengths, samples = cut(self._blocks, self._most)
        whole = len(lengths) - (not is_end)
        if whole <= 0:
            return []
        stops = [self._start + length for length in lengths[:whole]]
        starts = [self._start, *stops[:-1]]
        ranges = ranges_of((columns for _, columns in self._open), stops, self._start)
        files = [part.spool_file for part, _ in self._open]
        states: list[dict[str, Any] | None] = [None] * whole
        if self._agreed is not None:
            read = chain.from_iterable(records(self._store, part, LINES_BYTES) for part, _ in self._open)
            states[:] = states_at(self._agreed[1], self._behind(read), [self._start, *stops])
        of = self._sources.kinds, self._sources.listed.root
        shards = []
        for at, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            state = self._sources.digest_with_times(start, stop + 1)
            runs = ranges.of(at, files)
            facts = self.shards, start, stop, self._first_sample, samples[at], runs, states[at], *of, state
            shards.append(ShardPlan(*facts))
            self._unfinished[self.shards] = start
            self.shards, self._first_sample = self.shards + 1, self._first_sample + samples[at]
        self._blocks = self._blocks[lengths[whole - 1] :]
        self._start = stops[-1]
        self._open = [each for each in self._open if self._sources.ends[each[0].number] > self._start]
        return shards

    def _behind(self, placed: Iterable[Placed]) -> Iterable[Placed]:
        """Leaves out the samples of shards that are planned, or were finished before."""
        return (each for each in placed if each[0] >= self._start)
