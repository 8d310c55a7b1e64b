"""Converted samples in order -> shards, each published when it is full, and a tally of what became of the sources."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.format.fields import Field
from fastpipe.format.layout import shard_name
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.output.files import cannot_write
from fastpipe.packing.output.journal import ShardEntry, Tally
from fastpipe.packing.output.shard_writer import FinishedShard, ShardWriter
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.source.files import SourcePath


class Begins(NamedTuple):
    """What a series of shards follows.

    Attributes:
        shard, sample, source: numbers of its first shard, sample and source.
        agreed: `Agreement.state` before it; None: nothing is.
    """

    shard: int = 0
    sample: int = 0
    source: int = 0
    agreed: Mapping[str, Any] | None = None


class Publisher(Protocol):
    """Where shards go: a Journal, or what a worker of a cluster has in its place.

    Attributes:
        destination: of the dataset.
        folder: for what is not finished.
    """

    destination: Path
    folder: Path

    def finished(self) -> list[ShardEntry]:
        """The shards that are done."""

    def publish_shard(
        self, number: int, shard: FinishedShard, next_source: int, sources: str, tally: Tally, agreed: dict[str, Any]
    ) -> ShardEntry:
        """Records a shard and gives it its final name."""


class ShardSeries:
    """The shards of a pack: those that an earlier run had finished, and those that this one adds.

    Args:
        journal: of the destination.
        shard_size: bytes a shard is filled up to.
        fail_fast: the first sample that cannot be packed stops the pack.
        kinds: name -> kind of the fields.
        sources: names the state of the sources from one position up to another, for the journal.
        root: the source folder, for messages.
        begins: of what the shards follow, where that is not what the journal has.

    Attributes:
        shards: that are published.
        tally: of all sources; complete after `finish`.
    """

    def __init__(
        self,
        journal: Publisher,
        shard_size: int,
        *,
        fail_fast: bool,
        kinds: Mapping[str, str],
        sources: Callable[[int, int], str],
        root: SourcePath,
        begins: Begins | None = None,
    ) -> None:
        self._journal = journal
        self._shard_size = shard_size
        self._fail_fast = fail_fast
        self._sources = sources
        self._root = root
        self._begins = begins or Begins()
        self.shards = [] if begins else journal.finished()
        self._agreement = Agreement(kinds, self.shards[-1].agreed if self.shards else self._begins.agreed)
        self.tally = Tally()
        for shard in self.shards:
            self.tally.add(shard.tally)
        self._since = Tally()  # the last whole shard
        self._writer: ShardWriter | None = None

    @property
    def next_source(self) -> int:
        """Position of the first source that is in no finished shard."""
        return self.shards[-1].next_source if self.shards else self._begins.source

    @property
    def rejected(self) -> int:
        """How many sources were rejected so far."""
        return len(self.tally.rejected) + len(self._since.rejected)

    @property
    def fields(self) -> list[Field]:
        """The fields, without hashes of files."""
        return self._agreement.fields()

    def add(self, position: int, path: str, label: int, size_bytes: int, outcome: Packed | str) -> None:
        """Adds what became of a source.

        Args:
            position: of the source in the packing order.
            path: names it, in the sample and in messages.
            label: its label; NO_LABEL: none.
            size_bytes: of the source.
            outcome: the picture, or why there is none.

        Raises:
            PackError: the disk refuses, or the sample cannot be packed and `fail_fast` says to stop.
        """
        packed, reason = (None, outcome) if isinstance(outcome, str) else self._admitted(outcome)
        if packed is None:
            self.refuse(path, reason)
            self._since.rejected.append((path, reason))
        else:
            with self._disk():
                self._write(position, path, label, packed)
            self._since.count(packed)
        self._since.source_bytes += size_bytes

    def refuse(self, path: str, reason: str) -> None:
        """Raises PackError if a source that cannot be packed has to stop the pack."""
        if self._fail_fast:
            raise cannot_be_packed(self._root / path, reason)

    def finish(self, position: int) -> None:
        """Publishes the last shard. `position` is that of the end."""
        if self._writer is not None:
            with self._disk():
                self._publish(position)
        self.tally.add(self._since)
        self._since = Tally()

    def discard(self) -> None:
        """Removes the shard that is not finished."""
        if self._writer is not None:
            self._writer.discard()

    def _admitted(self, packed: Packed) -> tuple[Packed | None, str]:
        if not packed.values:
            return packed, ""
        try:
            return replace(packed, values=tuple(self._agreement.admit(packed.values))), ""
        except ImageError as problem:
            return None, str(problem)

    def _write(self, position: int, path: str, label: int, packed: Packed) -> None:
        self._writer = self._writer or self._new_writer()
        if not self._writer.add(packed, label, path):
            self._publish(position)
            self._writer = self._new_writer()
            self._writer.add(packed, label, path)

    def _publish(self, next_source: int) -> None:
        assert self._writer is not None  # there is a shard to publish
        sources = self._sources(self.next_source, next_source + 1)
        shard = self._writer.finish()
        agreed = self._agreement.state() if self._agreement.kinds else {}
        self.shards.append(self._journal.publish_shard(self._number, shard, next_source, sources, self._since, agreed))
        self.tally.add(self._since)
        self._writer, self._since = None, Tally()

    def _new_writer(self) -> ShardWriter:
        first_sample = self._begins.sample + sum(shard.samples for shard in self.shards)
        file = self._journal.folder / shard_name(self._number)
        return ShardWriter(file, self._number, first_sample, self._shard_size, self._agreement.kinds)

    @property
    def _number(self) -> int:
        """Of the next shard."""
        return self._begins.shard + len(self.shards)

    def _disk(self) -> contextlib.AbstractContextManager[None]:
        return disk_errors(self._journal.destination / shard_name(self._number), "write")


def cannot_be_packed(path: SourcePath, reason: str) -> PackError:
    """The error for a source at which the pack has to stop."""
    return PackError(
        f"{readable(str(path))} cannot be packed: {reason}. Repair or remove it, or pack without --on-error fail to "
        "leave out such files"
    )


@contextlib.contextmanager
def disk_errors(path: Path, verb: str = "use") -> Iterator[None]:
    """Names the file that the disk refused: `path`, or what is being used of it."""
    try:
        yield
    except OSError as problem:
        named = (problem.filename2 or problem.filename) if verb == "use" else None
        raise cannot_write(Path(named or path), problem, verb) from problem
