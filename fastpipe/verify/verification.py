"""A packed dataset -> a Report of its damage, found on this machine or on a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fastpipe.errors import ConfigError
from fastpipe.format.description import file_hash
from fastpipe.format.fields import FIELDS_FOLDER
from fastpipe.format.folder import Place
from fastpipe.format.index import Index
from fastpipe.format.layout import INDEX_FILE, SOURCES_FILE, version_folder
from fastpipe.machine.progress import HowFar
from fastpipe.packing.cluster.session import THREADS, on_ray
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.scan.opening import open_data
from fastpipe.store.remote.dataset import RemoteIndex
from fastpipe.verify.check_shards import (
    IndexPart,
    ShardFindings,
    check_index,
    check_shards,
    check_size,
    impossible_records,
)
from fastpipe.verify.damage import Damage, Report
from fastpipe.verify.on_ray import Seen, check_on_ray
from fastpipe.verify.shard_facts import Description, describe


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
    if said.index is not None and said.info is not None:
        findings += _check_files(said.index, said.info)
    index = None
    if (whole := said.index) is not None:  # its records stay in the file
        index = IndexPart(whole.records, 0, whole.records.offset, whole.least_label, len(whole.classes))
    bytes_read = 0
    if quick:
        for shard in said.shards:
            findings += check_size(shard, None if index is None else index.of(shard))
            findings += () if index is None else impossible_records(shard, index)
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
    index = open_data(path)
    assert isinstance(index, RemoteIndex)
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
