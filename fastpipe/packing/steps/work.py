"""What a pack has still to do -> parts and shards, as they come to be known. Note [a rolling plan]"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from fastpipe.packing.output.journal import Journal
from fastpipe.packing.steps.job import Job, Part
from fastpipe.packing.steps.rolling_plan import rolling_plan
from fastpipe.packing.steps.shard_plan import ShardPlan
from fastpipe.packing.steps.sources import Sources


class Work:
    """Gives the parts that are to be converted, and before them the shards that can be made and are not there.

    An iterator that has ended may go on when an item is done.

    Args:
        job: the pack.
        journal: of its destination.
        sources: that are packed.

    Attributes:
        parts: that are converted in this run.
        resumed: shards that were there.
        assembled: sources that are in finished shards.
    """

    def __init__(self, job: Job, journal: Journal, sources: Sources) -> None:
        self._store, self._journal = job.store(), journal
        done, there = journal.finished(), self._store.sizes()
        self._plan = rolling_plan(job, sources, done)
        self.resumed, self.assembled = len(done), done[-1].next_source if done else 0
        needed = self._plan.needed()
        self.parts = [part for part in needed if not part.is_converted(there)]
        self._parts, self._shards = deque(self.parts), deque[Iterator[ShardPlan]]()
        for part in needed:
            if part.is_converted(there):
                self.done(part)

    def __iter__(self) -> Work:
        return self

    def __next__(self) -> Part | ShardPlan:
        while self._shards:
            shard = next(self._shards[0], None)
            if shard is None:
                self._shards.popleft()
            elif self._journal.entry(shard.number) is None:
                return shard
            else:
                self.resumed += 1
                self.done(shard)
        if self._parts:
            return self._parts.popleft()
        raise StopIteration

    @property
    def shards(self) -> int:
        """How many there are, as far as it is known: all, when all parts are converted."""
        return self._plan.shards

    def done(self, item: Part | ShardPlan) -> None:
        """Takes note that a part is converted, or that a shard is there."""
        if isinstance(item, Part):
            self._shards.append(iter(self._plan.converted(item)))
            return
        self.assembled += item.stop - item.start
        self._store.remove([part.spool_file for part in self._plan.finished(item)])
