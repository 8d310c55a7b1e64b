"""A dataset -> checks: its files, the speed of decoding, and whether the disk keeps up."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np

from fastpipe.dataset.format.folder import Place
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.layout import DATASET_FILE
from fastpipe.dataset.format.pixel_form import NO_FORM
from fastpipe.engine.engine import Engine
from fastpipe.errors import DatasetError, format_count, readable
from fastpipe.machine.cpus import count_granted_cpus
from fastpipe.plan.content import Content
from fastpipe.plan.crops import RandomResizedCrop
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe
from fastpipe.sources.scan.opening import open_data
from fastpipe.store.remote.dataset import RemoteIndex
from fastpipe.tools.doctor.check import Check, Verdict, make_check
from fastpipe.tools.verify.verification import verify

# Enough to measure a fast disk or link, and seconds on a slow one.
_MAX_READ_BYTES = 64 << 20
_READ_BYTES = 1 << 20
_REQUEST_BYTES = 4 << 20
_DECODED_IMAGES = 256
_SIZE = 224  # pixels


def check_dataset(path: Place) -> Iterator[Check]:
    """Checks its files, as `fastpipe verify --quick` does, then how fast it is.

    Raises:
        DatasetError: the folder has no dataset.
    """
    try:
        index = open_data(path)
    except DatasetError:
        # The files of a damaged dataset can be checked. A folder without one is the user's mistake.
        is_damaged = isinstance(path, Path) and (path / DATASET_FILE).exists()
        if not is_damaged:
            raise
        yield _check_files(path)
        return
    if index.packed:
        yield _check_files(path)
    else:
        yield _describe_unpacked(index, path)
    if len(index) == 0:
        return  # nothing to decode

    command = f"verify {path}" if index.packed else f"pack {path} DST"
    if len(index) == index.form_counts[NO_FORM]:
        result = "not measured: no sample has an image of its own"
        yield Check("decoding", result, Verdict.NOTE)
        return
    try:
        images_per_s, problem = _measure_decoding(index)
    except DatasetError as error:
        # An impossible record, such as of a shard that does not exist.
        advice = f"to list all damage: fastpipe verify {path}"
        yield Check("decoding", str(error), Verdict.BAD, advice)
        return
    num_threads = count_granted_cpus()
    rate = f"{images_per_s:,.0f} images/s of random crops to {_SIZE}, by {num_threads} threads"
    yield make_check(
        "decoding",
        problem or rate,
        problem == "",
        f"to list all damaged samples: fastpipe {command}",
        Verdict.BAD,
    )
    # A disk or a link that is slower than this delays the decoding threads.
    bytes_per_image = index.stored_bytes / len(index)
    needed_bytes_per_s = images_per_s * bytes_per_image
    if isinstance(index, RemoteIndex):
        yield _check_link(index, needed_bytes_per_s)
    else:
        yield _check_disk(index, needed_bytes_per_s)


def _check_files(path: Place) -> Check:
    report = verify(path, quick=True)
    samples = format_count(report.samples, "sample")
    shards = format_count(report.shards, "shard")
    result = f"{samples} in {shards}; "
    if report.sound:
        return Check("dataset", f"{result}the index and all sizes are unchanged")
    result += str(report.findings[0])
    other_count = len(report.findings) - 1
    if other_count:
        result += f" and {other_count:,} more"
    advice = f"repair it: fastpipe verify {path} --repair SRC"
    return Check("dataset", result, Verdict.BAD, advice)


def _describe_unpacked(index: Index, path: Place) -> Check:
    result = f"{len(index):,} images, not packed"
    if index.counts["rejected"]:
        result += f", {index.counts['rejected']:,} files left out"
    result += f"; {index.counts['converted']:,} are converted in each epoch"
    advice = f"to load it faster: fastpipe pack {path} DST"
    return Check("dataset", result, Verdict.NOTE, advice)


def _measure_decoding(index: Index) -> tuple[float, str]:
    """Measures images/s of random crops from files in the page cache.

    Returns:
        The images/s, and how many failed and why the first did; "" if none did.
    """
    content = Content.with_images(index)
    count = min(_DECODED_IMAGES, len(content))
    size = (_SIZE, _SIZE)
    recipe = Recipe(count, size, RandomResizedCrop(), 0.5, True, True, 0, content)
    plan = EpochPlan(recipe, 0).batch(0)
    images = np.empty((count, *size, 3), dtype=np.uint8)
    with closing(Engine(index, count_granted_cpus())) as engine:
        engine.decode(plan, images)  # this reads the files
        began_s = time.perf_counter()
        errors = engine.decode(plan, images)
        elapsed_s = time.perf_counter() - began_s
    rate = count / elapsed_s
    if not errors:
        return rate, ""
    row, reason = errors[0]
    sample = int(plan.samples[row])
    path, member, offset = index.where(sample)
    name = readable(index.source_path_of(sample) or f"member {member}")
    first = f"sample {sample} ({name}) at byte {offset} of {path}: {reason}"
    return rate, f"{len(errors)} of {count} samples cannot be decoded: {first}"


def _check_link(index: RemoteIndex, needed_bytes_per_s: float) -> Check:
    """Fetches the end of the last shard, past the cache."""
    shard = index.shards[-1]
    ranges = []
    begin = max(0, shard.size_bytes - _MAX_READ_BYTES)
    while begin < shard.size_bytes:
        end = min(begin + _REQUEST_BYTES, shard.size_bytes)
        ranges.append((begin, end))
        begin = end

    def fetch(begin_and_end: tuple[int, int]) -> int:
        begin, end = begin_and_end
        return len(index.past_cache.fetched(shard.name, begin, end).data)

    # All requests at once, as the loader makes them: one alone waits for the round trip.
    began_s = time.perf_counter()
    try:
        with ThreadPoolExecutor(len(ranges)) as pool:
            fetched_bytes = sum(pool.map(fetch, ranges))
    except OSError as problem:
        return Check(
            "link", str(problem), Verdict.BAD, "check the network and the server"
        )
    return _compare_speed(
        "link",
        fetched_bytes / (time.perf_counter() - began_s),
        needed_bytes_per_s,
        "let the cache_limit= of fastpipe.open hold the dataset: "
        "later epochs then read it from the disk",
    )


def _check_disk(index: Index, needed_bytes_per_s: float) -> Check:
    """Reads the end of the last shard past the page cache."""
    path = index.shards[-1].path
    try:
        with open(path, "rb", buffering=0) as file:
            file_bytes = os.fstat(file.fileno()).st_size
            begin = max(0, file_bytes - _MAX_READ_BYTES)
            # Without this, the kernel would answer from its memory.
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), begin, 0, os.POSIX_FADV_DONTNEED)
            file.seek(begin)
            began_s = time.perf_counter()
            read_bytes = 0
            while data := file.read(_READ_BYTES):
                read_bytes += len(data)
            elapsed_s = time.perf_counter() - began_s
    except OSError as problem:
        result = f"{path} cannot be read: {problem.strerror}"
        return Check("reading", result, Verdict.BAD, "check the disk")
    return _compare_speed(
        "reading",
        read_bytes / elapsed_s,
        needed_bytes_per_s,
        "put the dataset on a faster disk, if it does not fit into the page cache",
    )


def _compare_speed(
    name: str, bytes_per_s: float, needed_bytes_per_s: float, advice: str
) -> Check:
    result = (
        f"{bytes_per_s / 1e6:,.0f} MB/s; "
        f"decoding at this speed needs {needed_bytes_per_s / 1e6:,.0f} MB/s"
    )
    return make_check(name, result, bytes_per_s >= needed_bytes_per_s, advice)
