"""A packed dataset -> JPEG files in folders, or WebDataset shards of JPEGs; however its images are stored."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from fastpipe.checks import choice, whole
from fastpipe.engine.pictures import jpeg_of
from fastpipe.errors import ConfigError, DatasetError, PackError, SampleError
from fastpipe.format import tar_writer as tar
from fastpipe.format.folder import Place
from fastpipe.format.index import Index
from fastpipe.format.layout import COEFFICIENTS_STORAGE, sample_key
from fastpipe.format.read_at import read_at
from fastpipe.format.sample_layout import BEFORE_BYTES
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.ahead import Ahead
from fastpipe.packing.output.destination import check_apart
from fastpipe.packing.unpacked_files import ClassFolders, JpegShards, UnpackedSample
from fastpipe.remote.dataset import RemoteIndex
from fastpipe.scan.opening import open_data

FORMATS = ("folder", "webdataset")

_RUN_BYTES = 4 << 20  # of samples that a thread takes at once
_SIZE_FIELD = slice(124, 135)  # of a tar header: octal digits


@dataclass(frozen=True)
class UnpackProgress:
    """How far it is: images and their bytes, as they are stored, done and in all."""

    images: int
    total_images: int
    bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Unpacked:
    """What was written.

    Attributes:
        images, bytes: how many JPEGs, and their bytes.
        left_out: fields of the dataset that folders of images have no place for.
    """

    images: int
    bytes: int
    left_out: list[str]


def unpack(
    data: Place,
    destination: Place,
    form: str = "folder",
    *,
    workers: int | None = None,
    on_progress: Callable[[UnpackProgress], None] = lambda _: None,
) -> Unpacked:
    """Writes the images of a dataset as JPEGs: those that packing with storage "jpeg" would have stored.

    Args:
        data: the dataset's folder, or its URL: then shards are read there, past the cache.
        destination: a new or empty folder of this machine.
        form: "folder": CLASS/KEY.jpg, images without a class as KEY.jpg. "webdataset": shards with the names, samples
            and members of the dataset's own.
        workers: threads; None: the CPUs granted to this process.
        on_progress: called now and then, in this thread.

    Raises:
        ConfigError: an argument is wrong, or one of the folders lies in the other.
        DatasetError: `data` holds no finished dataset, or what is not packed.
        PackError: the destination is not empty, or the disk refuses.
        SampleError: a sample is damaged.
    """
    choice("--format", form, FORMATS)
    threads = granted_cpus() if workers is None else whole("--workers", workers, least=1, most=1024)
    if not isinstance(destination, Path):
        raise ConfigError(f"DST {destination}: expected a folder of this machine; unpack into one, then upload it")
    index = open_data(data)
    if not index.packed:
        raise DatasetError(f"{data} is not packed: its images are files, or members of tars, already")
    if isinstance(data, Path):
        check_apart(data, destination)
    if destination.exists() and not destination.is_dir():
        raise PackError(f"{destination} is a file; expected a new or empty folder")
    with _disk_errors(destination):
        destination.mkdir(parents=True, exist_ok=True)
        if any(destination.iterdir()):
            raise PackError(f"{destination} is not empty; choose a new or empty folder")
    images = size = stored = 0
    ahead: Ahead[range, list[UnpackedSample]] = Ahead(lambda run: _read(index, run), threads)
    files = ClassFolders(index, destination) if form == "folder" else JpegShards(index, destination)
    try:
        with _disk_errors(destination):
            read = (done for run in _runs(index) for done in ahead.put(run))
            for _, samples in itertools.chain(read, ahead.rest()):
                for sample in samples:
                    files.write(sample)
                    images, size = images + 1, size + len(sample.jpeg)
                    stored += sample.stored_bytes
                on_progress(UnpackProgress(images, len(index), stored, index.stored_bytes))
            files.finish()
    finally:
        ahead.close()
    return Unpacked(images, size, list(index.fields) if form == "folder" else [])


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise PackError(
            f"cannot write to {path}: {problem.strerror or problem}. Make room or repair the disk, remove {path}, then "
            "run the same command again"
        ) from problem


def _runs(index: Index) -> Iterator[range]:
    """All samples in order, cut into what a thread takes at once; a run lies in one shard."""
    average = max(1, index.stored_bytes // max(len(index), 1))
    step = max(1, _RUN_BYTES // average)
    starts = [*index.shard_starts.tolist(), len(index)]
    for first, end in itertools.pairwise(starts):
        for start in range(first, end, step):
            yield range(start, min(start + step, end))


def _read(index: Index, run: range) -> list[UnpackedSample]:
    records = index.read(np.arange(run.start, run.stop, dtype=np.int64))
    shard_number = int(records[0]["shard"])
    shard = index.shards[shard_number]
    starts = (records["offset"].astype(np.int64) - BEFORE_BYTES).tolist()
    following = run.stop < len(index) and index.records[run.stop]["shard"] == records[0]["shard"]
    stop = int(index.records[run.stop]["offset"]) - BEFORE_BYTES if following else shard.size_bytes
    try:
        if isinstance(index, RemoteIndex):
            data = index.direct(shard_number).read(starts[0], stop)
        else:
            with open(shard.path, "rb", buffering=0) as file:
                data = read_at(file.fileno(), stop - starts[0], starts[0])
    except OSError as problem:
        raise PackError(
            f"cannot read {index.path / shard.name}: {problem.strerror or problem}; check the disk or the network, "
            "then run again"
        ) from problem
    found: list[UnpackedSample] = []
    for sample, record, (start, end) in zip(run, records, itertools.pairwise([*starts, stop]), strict=True):
        part = data[start - starts[0] : end - starts[0]]
        stored = part[BEFORE_BYTES : BEFORE_BYTES + int(record["size"])]
        if xxhash.xxh3_64_intdigest(stored) != record["xxh3_64"]:
            raise _damaged(index, sample, "the bytes have changed since they were packed")
        try:
            jpeg = jpeg_of(stored) if index.storage == COEFFICIENTS_STORAGE else stored
        except ValueError as problem:
            raise _damaged(index, sample, str(problem)) from None
        others = part[BEFORE_BYTES + tar.padded(len(stored), tar.BLOCK) :]
        others = others[: _members_end(others)]
        found.append(UnpackedSample(shard_number, sample_key(sample), int(record["label"]), jpeg, others, len(stored)))
    return found


def _damaged(index: Index, sample: int, reason: str) -> SampleError:
    return index.sample_error(sample, f"{reason}; repair the dataset first: fastpipe verify {index.path} --repair SRC")


def _members_end(data: bytes) -> int:
    """Where the members end that begin here: at a block of zeros, or with the bytes."""
    at = 0
    while at + tar.BLOCK <= len(data) and data[at] != 0:
        try:
            at += tar.BLOCK + tar.padded(int(data[at : at + tar.BLOCK][_SIZE_FIELD], 8), tar.BLOCK)
        except ValueError:
            break
    return at
