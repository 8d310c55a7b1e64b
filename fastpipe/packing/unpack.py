"""A packed dataset -> JPEG and PNG files in folders, or WebDataset shards of them; however its images are stored."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
import xxhash

from fastpipe.engine.pictures import jpeg_of
from fastpipe.errors import ConfigError, DatasetError, PackError, choice
from fastpipe.format import tar_writer as tar
from fastpipe.format.folder import Place
from fastpipe.format.layout import NO_LABEL, shard_number
from fastpipe.format.packed_index import PackedIndex
from fastpipe.format.sample_layout import BEFORE_BYTES, FPC_MAGIC, before_picture, picture_ending, sample_key
from fastpipe.machine.progress import HowFar
from fastpipe.packing.job.destination import check_apart
from fastpipe.packing.pipeline.ahead import Ahead
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.scan.opening import open_data
from fastpipe.store.files import no_link
from fastpipe.store.remote.dataset import RemoteIndex
from fastpipe.store.store import Folder


class UnpackedSample(NamedTuple):
    """A sample of a dataset with its image as a JPEG or PNG; `others` are the members behind it, as in the shard."""

    shard: int
    key: str
    label: int
    picture: bytes
    others: bytes
    stored_bytes: int


def _into_folders(index: PackedIndex, destination: Path, samples: Iterable[UnpackedSample]) -> None:
    """Writes CLASS/KEY.jpg or .png; images without a class lie beside the folders."""
    folders: dict[int, Path] = {NO_LABEL: destination}
    for label, name in enumerate(index.classes):  # also one without images: others keep their labels when packed again
        folder = folders[label] = destination / folder_name(name)
        try:
            folder.mkdir()
        except OSError as problem:
            if problem.errno not in (errno.EEXIST, errno.ENAMETOOLONG):
                raise
            raise PackError(
                f"the class {name!r} cannot have a folder of its own, {folder}: {problem.strerror}. Unpack into a "
                "new folder with --format webdataset, which makes none"
            ) from problem
    for sample in samples:
        name = f"{sample.key}.{picture_ending(sample.picture)}"
        with open(folders[sample.label] / name, "xb", opener=no_link) as file:
            file.write(sample.picture)


def _into_shards(index: PackedIndex, destination: Path, samples: Iterable[UnpackedSample]) -> None:
    """Writes shards of the dataset's names; each appears when it is whole."""
    for shard, ours in itertools.groupby(samples, lambda sample: sample.shard):
        with Folder(destination, destination).whole(index.shards[shard].name) as file:
            for sample in ours:
                file.write(before_picture(sample.key, sample.label, sample.picture) + sample.picture)
                file.write(tar.padding(len(sample.picture)) + sample.others)
            file.write(tar.end(file.tell()))


def folder_name(name: str) -> str:
    """A class's name as the name of a folder: what leads elsewhere becomes %XX, and no name at all a single %."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="") if "/" in name or "\0" in name else name or "%"


_WRITE = {"folder": _into_folders, "webdataset": _into_shards}
_RUN_BYTES = 4 << 20  # of samples that a thread takes at once


class Unpacked(NamedTuple):
    """Images and bytes that were written; fields of the dataset that folders of images have no place for."""

    images: int
    bytes: int
    left_out: list[str]


def unpack(
    data: Place,
    destination: Place,
    form: str = "folder",
    *,
    workers: int | None = None,
    on_progress: Callable[[HowFar], None] = lambda _: None,
) -> Unpacked:
    """Writes the images of a dataset as JPEGs and PNGs: those that packing with storage "jpeg" would have stored.

    `form` is "folder": CLASS/KEY.jpg or .png, images without a class beside the folders; or "webdataset": shards with
    the names, samples and members of the dataset's own. Shards behind a URL are read there, past the cache.
    """
    choice("--format", form, tuple(_WRITE))
    threads = PackOptions(workers=workers).threads
    if not isinstance(destination, Path):
        raise ConfigError(f"DST {destination}: expected a folder of this machine; unpack into one, then upload it")
    index = open_data(data)
    if not isinstance(index, PackedIndex):
        raise DatasetError(f"{data} is not packed: its images are files, or members of tars, already")
    if isinstance(data, Path):
        check_apart(data, destination)
    if destination.exists() and not destination.is_dir():
        raise PackError(f"{destination} is a file; expected a new or empty folder")
    images = size = stored = 0
    ahead: Ahead[range, list[UnpackedSample]] = Ahead(lambda run: _read(index, run), threads)

    def samples() -> Iterator[UnpackedSample]:
        nonlocal images, size, stored
        for _, found in ahead.each(_runs(index)):
            yield from found
            images, size = images + len(found), size + sum(len(sample.picture) for sample in found)
            stored += sum(sample.stored_bytes for sample in found)
            on_progress(HowFar(images, len(index), stored, index.stored_bytes))

    try:
        destination.mkdir(parents=True, exist_ok=True)
        if any(destination.iterdir()):
            raise PackError(f"{destination} is not empty; choose a new or empty folder")
        _WRITE[form](index, destination, samples())
    except OSError as problem:
        raise PackError(
            f"cannot write to {destination}: {problem.strerror or problem}. Make room or repair the disk, remove "
            f"{destination}, then run the same command again"
        ) from problem
    finally:
        ahead.close()
    return Unpacked(images, size, list(index.fields) if form == "folder" else [])


def _runs(index: PackedIndex) -> Iterator[range]:
    """All samples in order, cut into what a thread takes at once; a run lies in one shard."""
    average = max(1, index.stored_bytes // max(len(index), 1))
    step = max(1, _RUN_BYTES // average)
    starts = [*index.shard_starts.tolist(), len(index)]
    for first, end in itertools.pairwise(starts):
        for start in range(first, end, step):
            yield range(start, min(start + step, end))


def _read(index: PackedIndex, run: range) -> list[UnpackedSample]:
    records = index.read(np.arange(run.start, run.stop, dtype=np.int64))
    number = int(records[0]["shard"])
    shard = index.shards[number]
    starts = (records["offset"].astype(np.int64) - BEFORE_BYTES).tolist()
    following = run.stop < len(index) and index.records[run.stop]["shard"] == records[0]["shard"]
    stop = int(index.records[run.stop]["offset"]) - BEFORE_BYTES if following else shard.size_bytes
    try:
        if isinstance(index, RemoteIndex):
            data = bytes(index.past_cache.fetched(shard.name, starts[0], stop).data)
        else:
            data = Folder(shard.folder).read(shard.name, starts[0], stop)
    except OSError as problem:
        raise PackError(
            f"cannot read {index.path / shard.name}: {problem.strerror or problem}; check the disk or the network, "
            "then run again"
        ) from problem
    found: list[UnpackedSample] = []
    for sample, record, (start, end) in zip(run, records, itertools.pairwise([*starts, stop]), strict=True):
        key = sample_key(shard_number(shard.name), start)
        part = data[start - starts[0] : end - starts[0]]
        stored = part[BEFORE_BYTES : BEFORE_BYTES + int(record["size"])]
        try:
            if xxhash.xxh3_64_intdigest(stored) != record["xxh3_64"]:
                raise ValueError("the bytes have changed since they were packed")
            picture = jpeg_of(stored) if stored.startswith(FPC_MAGIC) else stored
        except ValueError as problem:
            remedy = f"repair the dataset first: fastpipe verify {index.path} --repair SRC"
            raise index.sample_error(sample, f"{problem}; {remedy}") from None
        others = part[BEFORE_BYTES + tar.padded(len(stored), tar.BLOCK) :]
        others = others[: _members_end(others, key)]
        found.append(UnpackedSample(number, key, int(record["label"]), picture, others, len(stored)))
    return found


def _members_end(data: bytes, key: str) -> int:
    """Where the members of a sample end that begin here: samples that were removed may follow, or a block of zeros."""
    at, name = 0, f"{key}.".encode()
    while at + tar.BLOCK <= len(data) and data.startswith(name, at):
        try:
            at += tar.BLOCK + tar.padded(int(data[at : at + tar.BLOCK][tar.SIZE_FIELD], 8), tar.BLOCK)
        except ValueError:
            break
    return at
