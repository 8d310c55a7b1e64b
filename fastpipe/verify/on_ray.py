"""Shards -> their damage, found by tasks of a Ray cluster.

A task gets names, sizes, hashes and index records, 54 bytes a sample, and gives back findings. It reads the shards
itself, from the folder or URL that all machines see.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import xxhash

from fastpipe.format.folder import Url
from fastpipe.format.layout import DATASET_FILE
from fastpipe.machine.progress import HowFar
from fastpipe.packing.cluster.session import session
from fastpipe.packing.cluster.tasks import run_tasks
from fastpipe.store.remote.dataset import RemoteIndex
from fastpipe.store.remote.objects import Objects, ShardError
from fastpipe.store.remote.options import RemoteOptions
from fastpipe.verify.check_shards import IndexPart, ShardFindings, check_shards
from fastpipe.verify.shard_facts import ShardFacts

_MOST_BYTES = 1 << 30  # of the shards of a task, unless one alone has more: some seconds of work
_TASKS_PER_CPU = 4  # at least, so that all CPUs have work until the end
_MEMORY_BYTES = 256 << 20  # of a task's process


@dataclass(frozen=True)
class Seen:
    """A dataset as each task has to see it."""

    folder: Path  # absolute path of it, or of the cache of what is behind the URL
    description_xxh3_64: str  # of dataset.json
    url: Url | None = None  # where it is, if it is no folder; and how it is read
    options: RemoteOptions | None = None

    @classmethod
    def of(cls, folder: Path, remote: RemoteIndex | None) -> Seen:
        """The dataset in a folder of this machine, or behind a URL."""
        digest = xxhash.xxh3_64_hexdigest((folder / DATASET_FILE).read_bytes())
        where = () if remote is None else (remote.url, remote.options)
        return cls(Path(os.path.abspath(folder)), digest, *where)

    def shards(self, shards: Sequence[ShardFacts]) -> list[ShardFacts]:
        """Shards as this process reads them. OSError: this machine does not see the dataset, and would take every shard
        for lost.
        """
        there = None
        if self.url is None or self.options is None:
            description = (self.folder / DATASET_FILE).read_bytes()
        else:
            there = Objects(self.url, self.options, ShardError)
            description = bytes(there.fetched(DATASET_FILE, 0, None).data)
        if (found := xxhash.xxh3_64_hexdigest(description)) != self.description_xxh3_64:
            raise OSError(
                errno.ESTALE,
                f"another {DATASET_FILE} is on this machine than where the check was started: expected XXH3-64 "
                f"{self.description_xxh3_64}, got {found}. All machines have to see the same dataset",
                str(self.url or self.folder),
            )
        return [replace(shard, path=self.folder / shard.name, direct=there) for shard in shards]


class _Run(NamedTuple):
    """The shards of a task, which follow one another, and their part of the index."""

    shards: list[ShardFacts]
    part: IndexPart | None


def check_run(seen: Seen, whole_index: bool, run: _Run) -> ShardFindings:
    """Runs in a task."""
    return check_shards(seen.shards(run.shards), run.part, whole_index=whole_index, threads=1)


def check_on_ray(
    shards: Sequence[ShardFacts],
    index: IndexPart | None,
    seen: Seen,
    *,
    whole_index: bool,
    workers: int | None = None,
    address: str | None = None,
    on_progress: Callable[[HowFar], None] = lambda _: None,
) -> ShardFindings:
    """As `check_shards`, of the dataset `seen`, in tasks; workers, address and errors as of `session`."""
    plain = [replace(shard, direct=None) for shard in shards]  # a connection stays in its process
    totals = sum(shard.samples for shard in shards), sum(shard.size_bytes for shard in shards)
    found: dict[int, ShardFindings] = {}
    samples, bytes_done, findings = 0, 0, 0
    with session(address, workers=workers) as cpus:
        most = min(_MOST_BYTES, totals[1] // (_TASKS_PER_CPU * max(cpus, 1)))
        check = partial(check_run, seen, whole_index)
        for run, outcome in run_tasks(check, _runs(plain, index, most), name=_name, memory=_MEMORY_BYTES):
            found[run.shards[0].number] = outcome
            samples += sum(shard.samples for shard in run.shards)
            bytes_done += sum(shard.size_bytes for shard in run.shards)
            findings += len(outcome.damages)
            on_progress(HowFar(samples, totals[0], bytes_done, totals[1], findings))
    in_order = [found[number] for number in sorted(found)]
    return ShardFindings(
        [damage for each in in_order for damage in each.of_sizes],
        [damage for each in in_order for damage in each.of_contents],
        sum(each.bytes_read for each in in_order),
    )


def _runs(shards: Sequence[ShardFacts], index: IndexPart | None, most_bytes: int) -> Iterator[_Run]:
    run: list[ShardFacts] = []
    size_bytes = 0
    for place, shard in enumerate(shards):
        run.append(shard)
        size_bytes += shard.size_bytes
        if place + 1 == len(shards) or size_bytes + shards[place + 1].size_bytes > most_bytes:
            yield _Run(run, None if index is None else index.cut(run))
            run, size_bytes = [], 0


def _name(run: _Run) -> str:
    first, last = run.shards[0].name, run.shards[-1].name
    return f"verify {first}" if len(run.shards) == 1 else f"verify {first} to {last}"
