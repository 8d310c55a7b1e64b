"""A packed dataset -> a Report of its damage, found on this machine or on a Ray cluster.

A task of a cluster gets names, sizes, hashes and index records of shards, 54 bytes a sample, and
returns findings. It reads the shards itself, from the folder or URL that all machines see.
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

from fastpipe.dataset.format.description import file_hash
from fastpipe.dataset.format.fields import FIELDS_FOLDER
from fastpipe.dataset.format.folder import Place, Url
from fastpipe.dataset.format.layout import (
    DATASET_FILE,
    INDEX_FILE,
    SOURCES_FILE,
    version_folder,
)
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError
from fastpipe.machine.progress import WorkProgress
from fastpipe.packing.cluster import THREADS, on_ray, run_tasks, session
from fastpipe.packing.shard.options import thread_count
from fastpipe.store.remote.dataset import RemoteIndex
from fastpipe.store.remote.objects import Objects, ShardError
from fastpipe.store.remote.options import RemoteOptions
from fastpipe.tools.verify.check_shards import (
    IndexPart,
    ShardFindings,
    check_index,
    check_quickly,
    check_shards,
)
from fastpipe.tools.verify.damage import Damage, Report
from fastpipe.tools.verify.shard_facts import (
    Description,
    ShardFacts,
    read_description,
)

# The shards of a task have at most so many bytes, unless one alone has more: some seconds of work.
_MAX_GROUP_BYTES = 1 << 30
# There are at least so many tasks for each CPU, so that all have work until the end.
_TASKS_PER_CPU = 4
# The process of a task needs so much: a few spans, and the records of its shards.
_MEMORY_BYTES = 256 << 20


def verify(
    path: Place,
    *,
    quick: bool = False,
    workers: int | None = None,
    executor: str = THREADS,
    address: str | None = None,
    on_progress: Callable[[WorkProgress], None] = lambda _: None,
) -> Report:
    """Checks a packed dataset.

    dataset.json, index.npy and the sidecars of fields by their hashes, the first two also by their
    sense; each shard by its size and hash; in it each sample's tar members, label and hash, and
    that its image decodes. A changed bit anywhere in these files is found.

    Args:
        path: the dataset's folder, or its URL: then shards are read there, past the cache.
        quick: check the hashes of dataset.json, index and columns, and the sizes of shards; read no
            shard.
        workers: number of threads, or of tasks of Ray on this machine at a time; None: the CPUs
            granted to this process. On a cluster, Ray decides.
        executor: read the shards in "threads" of this process, or with "ray" in tasks of a Ray
            cluster that sees it.
        address: with `executor` "ray": the cluster, as "auto" (that of this machine) or HOST:PORT;
            None: $RAY_ADDRESS, else Ray is started on this machine.
        on_progress: called now and then, in this thread.

    Raises:
        DatasetError: there is no dataset, or it is unfinished.
        ConfigError: an argument is wrong, or Ray is not installed.
        ClusterError: the cluster cannot be reached, or a task fails repeatedly.
    """
    in_tasks = on_ray(executor, address)
    if quick and in_tasks:
        raise ConfigError(
            "--quick reads no shard, so there is nothing for a cluster to do; leave out --on ray"
        )
    # A wrong number of workers is refused with `quick`, too, which has no use for it.
    threads = thread_count(workers)
    started = time.monotonic()
    description, folder, remote = _read_place(path)
    findings = list(description.findings)
    index_part = None
    index = description.index
    if index is not None and description.info is not None:
        findings += _check_files(index, description.info)
        # The records stay in the file: a copy could be larger than the memory.
        index_part = IndexPart(
            index.records,
            0,
            index.records.offset,
            index.least_label,
            len(index.classes),
        )

    bytes_read = 0
    samples_unread = 0
    if quick:
        findings += check_quickly(description.shards, index_part)
    else:
        # Progress shows all problems, also those that are known before the shards are read.
        known_count = len(findings)

        def add_known(progress: WorkProgress) -> None:
            on_progress(progress._replace(problems=progress.problems + known_count))

        check: Callable[..., ShardFindings] = partial(check_shards, threads=threads)
        if in_tasks:
            dataset = SharedDataset.of(folder, remote)
            check = partial(
                check_on_ray, dataset=dataset, workers=workers, address=address
            )
        is_index_intact = not any(damage.file == INDEX_FILE for damage in findings)
        shard_findings = check(
            description.shards,
            index_part,
            is_index_intact=is_index_intact,
            on_progress=add_known,
        )
        findings += shard_findings.damages
        bytes_read = shard_findings.bytes_read
        samples_unread = shard_findings.samples_unread

    return Report(
        path=str(path),
        quick=quick,
        samples=sum(shard.samples for shard in description.shards),
        shards=len(description.shards),
        samples_unread=samples_unread,
        bytes=bytes_read,
        seconds=time.monotonic() - started,
        findings=_with_version_folder(findings, description.info),
    )


def _with_version_folder(
    findings: list[Damage], info: dict[str, Any] | None
) -> list[Damage]:
    """Puts the folder of the version before the names of files that lie in it."""
    if info is None:
        return findings
    folder = version_folder(info["version"])
    of_version = (INDEX_FILE, SOURCES_FILE, f"{FIELDS_FOLDER}/")
    renamed = []
    for damage in findings:
        if damage.file.startswith(of_version):
            damage = replace(damage, file=folder + damage.file)
        renamed.append(damage)
    return renamed


def _read_place(path: Place) -> tuple[Description, Path, RemoteIndex | None]:
    """The description of a dataset, its folder or its cache, and the dataset behind a URL."""
    if isinstance(path, Path):
        return read_description(path), path, None
    index = RemoteIndex(path, RemoteOptions())
    # The small files are checked where the cache has them. Fetching compares them with their
    # hashes.
    index.fetch_small()
    description = read_description(index.folder)
    # Shards are read behind the URL, not in the cache.
    description.shards = [
        replace(shard, direct=index.past_cache) for shard in description.shards
    ]
    return description, index.folder, index


def _check_files(index: PackedIndex, info: dict[str, Any]) -> Iterator[Damage]:
    """Hashes index.npy, sources.npy and each sidecar, and checks the sums of the index.

    It goes through each file in one pass, which keeps a few MB in memory.
    """
    expected_hashes = {
        INDEX_FILE: info["index"]["file_xxh3_64"],
        SOURCES_FILE: info["sources"]["file_xxh3_64"],
    }
    for field in index.fields.values():
        for name, expected in field.files.items():
            expected_hashes[f"{FIELDS_FOLDER}/{name}"] = expected
    for name, expected in expected_hashes.items():
        try:
            actual = file_hash(index.files / name)
        except OSError as problem:
            yield Damage(name, f"cannot be read: {problem.strerror or problem}")
            continue
        if actual != expected:
            problem_words = "its content has changed since it was packed: hash"
            yield Damage(name, problem_words, expected, actual)
        elif name == INDEX_FILE:
            # Sums over an index that has changed would say nothing about dataset.json.
            yield from check_index(index)


@dataclass(frozen=True)
class SharedDataset:
    """A dataset that all tasks read from the same folder or URL."""

    folder: Path  # absolute; of the dataset, or of the cache of what is behind the URL
    description_xxh3_64: str  # of dataset.json
    # The URL of the dataset, and how it is read; None: it is in the folder.
    remote: tuple[Url, RemoteOptions] | None = None

    @classmethod
    def of(cls, folder: Path, remote: RemoteIndex | None) -> SharedDataset:
        """The dataset in a folder of this machine, or behind a URL."""
        digest = xxhash.xxh3_64_hexdigest((folder / DATASET_FILE).read_bytes())
        source = None if remote is None else (remote.url, remote.options)
        return cls(Path(os.path.abspath(folder)), digest, source)

    def open_shards(self, shards: Sequence[ShardFacts]) -> list[ShardFacts]:
        """Shards as this process reads them.

        Raises:
            OSError: this machine does not see the dataset. Without this error it would report
                every shard as lost.
        """
        objects = None
        if self.remote is None:
            description = (self.folder / DATASET_FILE).read_bytes()
        else:
            objects = Objects(*self.remote, ShardError)
            description = bytes(objects.fetched(DATASET_FILE, 0, None).data)
        digest = xxhash.xxh3_64_hexdigest(description)
        if digest != self.description_xxh3_64:
            raise OSError(
                errno.ESTALE,
                f"another {DATASET_FILE} is on this machine than where the check was started: "
                f"expected XXH3-64 {self.description_xxh3_64}, got {digest}. All machines have to "
                "see the same dataset",
                str(self.folder if self.remote is None else self.remote[0]),
            )
        return [
            replace(shard, path=self.folder / shard.name, direct=objects)
            for shard in shards
        ]


class _ShardGroup(NamedTuple):
    """The shards of a task, which follow one another, and their part of the index."""

    shards: list[ShardFacts]
    index_part: IndexPart | None


def check_group(
    dataset: SharedDataset, is_index_intact: bool, group: _ShardGroup
) -> ShardFindings:
    """Checks the shards of a task, in the task."""
    return check_shards(
        dataset.open_shards(group.shards),
        group.index_part,
        is_index_intact=is_index_intact,
        threads=1,
    )


def check_on_ray(
    shards: Sequence[ShardFacts],
    index: IndexPart | None,
    dataset: SharedDataset,
    *,
    is_index_intact: bool,
    workers: int | None = None,
    address: str | None = None,
    on_progress: Callable[[WorkProgress], None] = lambda _: None,
) -> ShardFindings:
    """The same as `check_shards`, in tasks of Ray.

    Args:
        shards, index, is_index_intact, on_progress: as of check_shards.
        dataset: that has the shards.
        workers, address: as of packing.cluster.session, which raises its errors.
    """
    # A connection stays in its process; each task opens its own.
    shards = [replace(shard, direct=None) for shard in shards]
    total_samples = sum(shard.samples for shard in shards)
    total_bytes = sum(shard.size_bytes for shard in shards)
    findings_by_shard: dict[int, ShardFindings] = {}  # by the first shard of each group
    samples_done = 0
    bytes_done = 0
    problems = 0
    with session(address, workers=workers) as cpus:
        # Small enough that all CPUs have work until the end, large enough that a task pays.
        most_bytes = min(
            _MAX_GROUP_BYTES, total_bytes // (_TASKS_PER_CPU * max(cpus, 1))
        )
        check = partial(check_group, dataset, is_index_intact)
        groups = _cut_into_groups(shards, index, most_bytes)
        for group, findings in run_tasks(
            check, groups, name=_task_name, memory=_MEMORY_BYTES
        ):
            findings_by_shard[group.shards[0].number] = findings
            samples_done += sum(shard.samples for shard in group.shards)
            bytes_done += sum(shard.size_bytes for shard in group.shards)
            problems += len(findings.damages)
            on_progress(
                WorkProgress(
                    samples_done, total_samples, bytes_done, total_bytes, problems
                )
            )

    # Tasks end in any order; a report has the findings in the order of the shards.
    merged = ShardFindings()
    for number in sorted(findings_by_shard):
        findings = findings_by_shard[number]
        merged.of_sizes += findings.of_sizes
        merged.of_contents += findings.of_contents
        merged.bytes_read += findings.bytes_read
        merged.samples_unread += findings.samples_unread
    return merged


def _cut_into_groups(
    shards: Sequence[ShardFacts], index: IndexPart | None, most_bytes: int
) -> Iterator[_ShardGroup]:
    """Groups of shards of at most so many bytes together; a larger shard is alone."""
    group: list[ShardFacts] = []
    group_bytes = 0
    for position, shard in enumerate(shards):
        group.append(shard)
        group_bytes += shard.size_bytes
        is_last = position + 1 == len(shards)
        if is_last or group_bytes + shards[position + 1].size_bytes > most_bytes:
            part = None if index is None else index.cut(group)
            yield _ShardGroup(group, part)
            group = []
            group_bytes = 0


def _task_name(group: _ShardGroup) -> str:
    first_name = group.shards[0].name
    if len(group.shards) == 1:
        return f"verify {first_name}"
    return f"verify {first_name} to {group.shards[-1].name}"
