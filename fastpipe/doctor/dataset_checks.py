"""A dataset -> checks: its files, how fast it decodes on this machine, and whether the disk keeps up."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np

from fastpipe.doctor.check import Check, Verdict, judged
from fastpipe.engine.engine import Engine
from fastpipe.errors import DatasetError
from fastpipe.format.folder import Place
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE
from fastpipe.machine.cpus import granted_cpus
from fastpipe.plan.content import Content
from fastpipe.plan.crops import RandomResizedCrop
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe
from fastpipe.sources.scan.opening import open_data
from fastpipe.store.remote.dataset import RemoteIndex
from fastpipe.verify.verification import verify

_READ_BYTES = 64 << 20
_REQUEST_BYTES = 4 << 20
_DECODED = 256


def dataset(path: Place) -> Iterator[Check]:
    """What is wrong with its files, as far as that can be told in seconds; then how fast it is. Raises as `examine`."""
    try:
        index = open_data(path)
    except DatasetError:
        if not isinstance(path, Path) or not (path / DATASET_FILE).exists():
            raise
        yield _files(path)  # what is wrong with the dataset
        return
    if index.packed:
        yield _files(path)
    else:
        left_out = f", {index.counts['rejected']:,} files left out" if index.counts["rejected"] else ""
        found = (
            f"{len(index):,} images, not packed{left_out}; {index.counts['converted']:,} are converted in each epoch"
        )
        yield Check("dataset", found, Verdict.NOTE, f"to load it faster: fastpipe pack {path} DST")
    if len(index) == 0:
        return
    try:
        rate, wrong = _decode(index)
    except DatasetError as problem:  # a record of the index that cannot be, such as a shard that does not exist
        yield Check("decoding", str(problem), Verdict.BAD, f"to list all damage: fastpipe verify {path}")
        return
    found = wrong or f"{rate:,.0f} images/s of random crops to 224, by {granted_cpus()} threads"
    command = f"verify {path}" if index.packed else f"pack {path} DST"
    yield judged("decoding", found, not wrong, f"to list all damaged samples: fastpipe {command}", Verdict.BAD)
    needed = rate * index.stored_bytes / len(index)
    yield _link(index, needed) if isinstance(index, RemoteIndex) else _reading(index, needed)


def _files(path: Place) -> Check:
    report = verify(path, quick=True)
    found = f"{report.samples:,} samples in {report.shards:,} shard{'' if report.shards == 1 else 's'}; "
    if report.sound:
        return Check("dataset", f"{found}the index and all sizes are unchanged")
    more = f" and {len(report.findings) - 1:,} more" if len(report.findings) > 1 else ""
    advice = f"repair it: fastpipe verify {path} --repair SRC"
    return Check("dataset", f"{found}{report.findings[0]}{more}", Verdict.BAD, advice)


def _decode(index: Index) -> tuple[float, str]:
    """Images/s, of some random crops from files in the page cache; how many failed, and why the first did, or ""."""
    count = min(_DECODED, len(index))
    recipe = Recipe(count, (224, 224), RandomResizedCrop(), 0.5, True, True, 0, Content.of(index))
    plan = EpochPlan(recipe, 0).batch(0)
    images = np.empty((count, 224, 224, 3), dtype=np.uint8)
    with closing(Engine(index, granted_cpus())) as engine:
        engine.decode(plan, images)  # reads the files
        started = time.perf_counter()
        errors = engine.decode(plan, images)
        taken = time.perf_counter() - started
    if not errors:
        return count / taken, ""
    row, reason = errors[0]
    sample = int(plan.samples[row])
    path, key, offset = index.where(sample)
    first = f"sample {sample} (key {key}) at byte {offset} of {path}: {reason}"
    return count / taken, f"{len(errors)} of {count} samples cannot be decoded: {first}"


def _link(index: RemoteIndex, needed: float) -> Check:
    """Fetches the end of the last shard, past the cache."""
    shard = index.shards[-1]
    begin = max(0, shard.size_bytes - _READ_BYTES)
    pieces = [(at, min(at + _REQUEST_BYTES, shard.size_bytes)) for at in range(begin, shard.size_bytes, _REQUEST_BYTES)]
    started = time.perf_counter()
    try:
        with ThreadPoolExecutor(len(pieces)) as pool:
            answers = pool.map(lambda piece: index.past_cache.fetched(shard.name, *piece), pieces)
            read = sum(len(answer.data) for answer in answers)
    except OSError as problem:
        return Check("link", str(problem), Verdict.BAD, "check the network and the server")
    advice = "let the cache_limit= of fastpipe.open hold the dataset: later epochs then read it from the disk"
    return _keeps_up("link", read, started, needed, advice)


def _reading(index: Index, needed: float) -> Check:
    """Reads the end of the last shard past the page cache."""
    path = index.shards[-1].path
    try:
        with open(path, "rb", buffering=0) as file:
            begin = max(0, os.fstat(file.fileno()).st_size - _READ_BYTES)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), begin, 0, os.POSIX_FADV_DONTNEED)
            file.seek(begin)
            started, read = time.perf_counter(), 0
            while piece := len(file.read(1 << 20)):
                read += piece
    except OSError as problem:
        return Check("reading", f"{path} cannot be read: {problem.strerror}", Verdict.BAD, "check the disk")
    advice = "put the dataset on a faster disk, if it does not fit into the page cache"
    return _keeps_up("reading", read, started, needed, advice)


def _keeps_up(name: str, read: int, started: float, needed: float, advice: str) -> Check:
    """Bytes that have come since, against the bytes/s that decoding needs."""
    rate = read / (time.perf_counter() - started)
    found = f"{rate / 1e6:,.0f} MB/s; decoding at this speed needs {needed / 1e6:,.0f} MB/s"
    return judged(name, found, rate >= needed, advice)
