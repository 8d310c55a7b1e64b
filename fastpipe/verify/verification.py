"""A packed dataset -> a Report of its damage, found on this machine or on a Ray cluster.

A task of a cluster gets names, sizes, hashes and index records of shards, 54 bytes a sample, and gives back findings.
It reads the shards itself, from the folder or URL that all machines see.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from fastpipe.errors import ConfigError
from fastpipe.format.description import file_hash
from fastpipe.format.fields import FIELDS_FOLDER
from fastpipe.format.folder import Place, Url
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, INDEX_FILE, SOURCES_FILE, version_folder
from fastpipe.machine.progress import HowFar
from fastpipe.packing.cluster import THREADS, on_ray, run_tasks, session
from fastpipe.packing.shard.options import PackOptions
from fastpipe.store.remote.dataset import RemoteIndex
from fastpipe.store.remote.objects import Objects, ShardError
from fastpipe.store.remote.options import RemoteOptions
from fastpipe.verify.check_shards import IndexPart, ShardFindings, check_index, check_quickly, check_shards
from fastpipe.verify.damage import Damage, Report
from fastpipe.verify.shard_facts import Description, ShardFacts, describe

_MOST_BYTES = 1 << 30  # of the shards of a task, unless one alone has more: some seconds of work
_TASKS_PER_CPU = 4  # at least, so that all CPUs have work until the end
_MEMORY_BYTES = 256 << 20  # of a task's process


def verify(
    path: Place,
    *,
    quick: bool = False,
    workers: int | None = None,
    executor: str = THREADS,
    address: str | None = None,
    on_progress: Callable[[HowFar], None] = lambda _: None,
) -> Report:
    """Checks a packed dataset.

    dataset.json, index.npy and the sidecars of fields by their hashes, the first two also by their sense; each shard by
    its size and hash; in it each sample's tar members, label and hash, and that its image decodes. A changed bit
    anywhere in these files is found.

    Args:
        path: the dataset's folder, or its URL: then shards are read there, past the cache.
        quick: check only sizes and structure; read no shard.
        workers: number of threads, or of tasks of Ray at a time; None: the CPUs granted to this process.
        executor: read the shards in "threads" of this process, or with "ray" in tasks of a Ray cluster that sees it.
        address: with `executor` "ray": the cluster, as "auto" (that of this machine) or HOST:PORT; None: $RAY_ADDRESS,
            else Ray is started on this machine.
        on_progress: called now and then, in this thread.

    Raises:
        DatasetError: there is no dataset, or it is unfinished.
        ConfigError: an argument is wrong, or Ray is not installed.
        ClusterError: the cluster cannot be reached, or a task fails on its machines again and again.
    """
    in_tasks = on_ray(executor, address)
    if quick and in_tasks:
        raise ConfigError("--quick reads no shard, so there is nothing for a cluster to do; leave out --on ray")
    threads = PackOptions(workers=workers).threads
    started = time.monotonic()
    said, folder, url = _described(path)
    findings = list(said.findings)
    index = None
    if (whole := said.index) is not None and said.info is not None:
        findings += _check_files(whole, said.info)
        # Its records stay in the file.
        index = IndexPart(whole.records, 0, whole.records.offset, whole.least_label, len(whole.classes))
    bytes_read = 0
    if quick:
        findings += check_quickly(said.shards, index)
    else:
        before, whole_index = len(findings), not any(found.file == INDEX_FILE for found in findings)

        def tell(now: HowFar) -> None:
            on_progress(now._replace(problems=now.problems + before))

        check: Callable[..., ShardFindings] = partial(check_shards, threads=threads)
        if in_tasks:
            check = partial(check_on_ray, seen=Seen.of(folder, url), workers=workers, address=address)
        found = check(said.shards, index, whole_index=whole_index, on_progress=tell)
        findings += found.damages
        bytes_read = found.bytes_read
    at = version_folder(said.info["version"]) if said.info is not None else ""
    beside = INDEX_FILE, SOURCES_FILE, f"{FIELDS_FOLDER}/"
    findings = [replace(each, file=at + each.file) if each.file.startswith(beside) else each for each in findings]
    samples = sum(shard.samples for shard in said.shards)
    seconds = time.monotonic() - started
    return Report(str(path), quick, samples, len(said.shards), bytes_read, seconds, findings)


def _described(path: Place) -> tuple[Description, Path, RemoteIndex | None]:
    """What dataset.json says, the folder that holds it and the small files, and the dataset behind a URL."""
    if isinstance(path, Path):
        return describe(path), path, None
    index = RemoteIndex(path, RemoteOptions())
    index.fetch_small()
    said = describe(index.folder)
    said.shards = [replace(shard, direct=index.past_cache) for shard in said.shards]
    return said, index.folder, index


def _check_files(index: Index, info: dict[str, Any]) -> Iterator[Damage]:
    """Hashes index.npy, sources.npy and each sidecar, in passes that keep a few MB; sums up what the index has."""
    expected_of = {INDEX_FILE: info["index"]["file_xxh3_64"], SOURCES_FILE: info["sources"]["file_xxh3_64"]}
    for field in index.fields.values():
        expected_of |= {f"{FIELDS_FOLDER}/{name}": digest for name, digest in field.files.items()}
    for name, expected in expected_of.items():
        try:
            found = file_hash(index.files / name)
        except OSError as problem:
            yield Damage(name, f"cannot be read: {problem.strerror or problem}")
            continue
        if found != expected:
            yield Damage(name, "its content has changed since it was packed: hash", expected, found)
        elif name == INDEX_FILE:
            yield from check_index(index)


@dataclass(frozen=True)
class Seen:
    """A dataset as each task has to see it."""

    folder: Path  # absolute path of it, or of the cache of what is behind the URL
    description_xxh3_64: str  # of dataset.json
    remote: tuple[Url, RemoteOptions] | None = None  # where it is, if it is no folder, and how it is read

    @classmethod
    def of(cls, folder: Path, remote: RemoteIndex | None) -> Seen:
        """The dataset in a folder of this machine, or behind a URL."""
        digest = xxhash.xxh3_64_hexdigest((folder / DATASET_FILE).read_bytes())
        return cls(Path(os.path.abspath(folder)), digest, None if remote is None else (remote.url, remote.options))

    def shards(self, shards: Sequence[ShardFacts]) -> list[ShardFacts]:
        """Shards as this process reads them. OSError: this machine does not see the dataset, and would take every shard
        for lost.
        """
        there = None
        if self.remote is None:
            description = (self.folder / DATASET_FILE).read_bytes()
        else:
            there = Objects(*self.remote, ShardError)
            description = bytes(there.fetched(DATASET_FILE, 0, None).data)
        if (found := xxhash.xxh3_64_hexdigest(description)) != self.description_xxh3_64:
            raise OSError(
                errno.ESTALE,
                f"another {DATASET_FILE} is on this machine than where the check was started: expected XXH3-64 "
                f"{self.description_xxh3_64}, got {found}. All machines have to see the same dataset",
                str(self.folder if self.remote is None else self.remote[0]),
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
