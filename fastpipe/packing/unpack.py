"""A packed dataset -> JPEG and PNG files in folders, or WebDataset shards of them."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.dataset.format import tar_writer as tar
from fastpipe.dataset.format.folder import Place
from fastpipe.dataset.format.layout import NO_LABEL, shard_number
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.pixel_form import has_images
from fastpipe.dataset.format.sample_layout import (
    BEFORE_BYTES,
    FPC_MAGIC,
    before_picture,
    note_header_at,
    picture_ending,
    sample_key,
)
from fastpipe.engine.pictures import jpeg_of
from fastpipe.errors import ConfigError, DatasetError, PackError, choice
from fastpipe.machine.progress import WorkProgress
from fastpipe.packing.job.destination import check_apart
from fastpipe.packing.pipeline.ahead import Ahead
from fastpipe.packing.shard.options import thread_count
from fastpipe.sources.scan.opening import open_data
from fastpipe.store.files import no_link
from fastpipe.store.remote.dataset import RemoteIndex
from fastpipe.store.saved_columns import LABEL, SavedColumns, read_saved
from fastpipe.store.store import Folder

# A thread reads samples of about so many bytes at once.
_RUN_BYTES = 4 << 20


class _Labels:
    """The labels of the samples: saved ones, or those of the shards."""

    def __init__(self, index: PackedIndex, saved: SavedColumns | None) -> None:
        self.classes = list(index.classes)
        # (n,) by sample; None: those of the records.
        self._rows: NDArray[Any] | None = None
        if saved is not None and LABEL in saved.files:
            self._rows = saved.open(LABEL, len(index))
            self.classes = list(saved.classes or index.classes)

    def label_of(self, row: int, record: np.void) -> int:
        label = record["label"] if self._rows is None else self._rows[row]
        return int(label)


class UnpackedSample(NamedTuple):
    """A sample of a dataset, with its image as a JPEG or PNG.

    Attributes:
        shard: position of its shard in the dataset.
        key: of the sample in the shard.
        label: of the sample.
        picture: bytes of the JPEG or PNG; b"": it has none.
        others: the members of the sample behind the image, as in the shard.
        stored_bytes: size of the image in the shard.
    """

    shard: int
    key: str
    label: int
    picture: bytes
    others: bytes
    stored_bytes: int


def _write_folders(
    index: PackedIndex,
    classes: Sequence[str],
    destination: Path,
    samples: Iterable[UnpackedSample],
) -> None:
    """Writes CLASS/KEY.jpg or .png; images without a class lie beside the folders."""
    folders: dict[int, Path] = {NO_LABEL: destination}
    # A class without images gets a folder, too, so that the others keep their labels when they are
    # packed again.
    for label, name in enumerate(classes):
        folder = destination / folder_name(name)
        folders[label] = folder
        try:
            folder.mkdir()
        except OSError as problem:
            if problem.errno not in (errno.EEXIST, errno.ENAMETOOLONG):
                raise
            # Some file systems take "Cat" and "cat" for the same name.
            raise PackError(
                f"the class {name!r} cannot have a folder of its own, {folder}: "
                f"{problem.strerror}. Unpack into a new folder with --format webdataset, which "
                "makes none"
            ) from problem
    for sample in samples:
        if not sample.picture:
            continue  # it has fields only
        name = f"{sample.key}.{picture_ending(sample.picture)}"
        with open(folders[sample.label] / name, "xb", opener=no_link) as file:
            file.write(sample.picture)


def _write_tars(
    index: PackedIndex,
    classes: Sequence[str],
    destination: Path,
    samples: Iterable[UnpackedSample],
) -> None:
    """Writes shards with the names of the dataset's. Each appears when it is whole."""
    for shard, shard_samples in itertools.groupby(samples, lambda sample: sample.shard):
        with Folder(destination, destination).open_atomic(
            index.shards[shard].name
        ) as file:
            for sample in shard_samples:
                before = before_picture(sample.key, sample.label, sample.picture)
                file.write(before)
                file.write(sample.picture)
                file.write(tar.padding(len(sample.picture)))
                file.write(sample.others)
            file.write(tar.end(file.tell()))


def folder_name(name: str) -> str:
    """The folder of a class. A name that leads elsewhere gets %XX; an empty one becomes "%"."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    if "/" in name or "\0" in name:
        return quote(name, safe="")
    return name or "%"


_WRITERS = {"folder": _write_folders, "webdataset": _write_tars}


class Unpacked(NamedTuple):
    """What was unpacked.

    Attributes:
        images: number of images.
        bytes: of these images.
        left_out: fields of the dataset, for which folders of images have no place.
        columns_left_out: columns that `save_columns` wrote, for which there is no place.
        labels: "saved": they are those that `save_columns` wrote; "stored": they are those of the
            shards, though `save_columns` wrote others; "": it wrote none.
    """

    images: int
    bytes: int
    left_out: list[str]
    columns_left_out: list[str]
    labels: str


def unpack(
    data: Place,
    destination: Place,
    form: str = "folder",
    *,
    workers: int | None = None,
    on_progress: Callable[[WorkProgress], None] = lambda _: None,
) -> Unpacked:
    """Writes the images of a dataset as JPEGs and PNGs: those that packing with storage "jpeg"
    would have stored.

    Args:
        data: the dataset. Shards behind a URL are read there, not through the cache.
        destination: a new or empty folder.
        form: "folder": CLASS/KEY.jpg or .png, images without a class beside the folders, by the
            labels that `fastpipe.open` shows; or "webdataset": shards with the names, samples,
            labels and members of the dataset's own.
        workers: number of threads; None: the CPUs granted to this process.
        on_progress: is called now and then, in this thread.
    """
    choice("form", form, tuple(_WRITERS))
    threads = thread_count(workers)
    if not isinstance(destination, Path):
        raise ConfigError(
            f"DST {destination}: expected a folder of this machine; unpack into one, then upload it"
        )
    index = open_data(data)
    if not isinstance(index, PackedIndex):
        raise DatasetError(
            f"{data} is not packed: its images are files, or members of tars, already"
        )
    if isinstance(data, Path):
        check_apart(data, destination)
    if destination.exists() and not destination.is_dir():
        raise PackError(f"{destination} is a file; expected a new or empty folder")

    saved = read_saved(index)
    has_saved_labels = saved is not None and LABEL in saved.files
    # The notes of a shard name the class of each sample, so tars keep their labels.
    labels = _Labels(index, saved if form == "folder" else None)
    num_images = 0
    image_bytes = 0
    stored_bytes = 0
    ahead: Ahead[range, list[UnpackedSample]] = Ahead(
        lambda run: _read_run(index, labels, run), threads
    )

    def unpacked_samples() -> Iterator[UnpackedSample]:
        nonlocal num_images, image_bytes, stored_bytes
        for _, samples in ahead.map(_runs_of(index)):
            yield from samples
            num_images += sum(bool(sample.picture) for sample in samples)
            image_bytes += sum(len(sample.picture) for sample in samples)
            stored_bytes += sum(sample.stored_bytes for sample in samples)
            on_progress(
                WorkProgress(num_images, len(index), stored_bytes, index.stored_bytes)
            )

    try:
        destination.mkdir(parents=True, exist_ok=True)
        if any(destination.iterdir()):
            raise PackError(f"{destination} is not empty; choose a new or empty folder")
        _WRITERS[form](index, labels.classes, destination, unpacked_samples())
    except OSError as problem:
        raise PackError(
            f"cannot write to {destination}: {problem.strerror or problem}. Make room or repair "
            f"the disk, remove {destination}, then run the same command again"
        ) from problem
    finally:
        ahead.close()
    columns = [] if saved is None else list(saved.files)
    labels_from = ""
    if has_saved_labels:
        labels_from = "saved" if form == "folder" else "stored"
    return Unpacked(
        num_images,
        image_bytes,
        list(index.fields) if form == "folder" else [],
        [name for name in columns if name != LABEL],
        labels_from,
    )


def _runs_of(index: PackedIndex) -> Iterator[range]:
    """All samples in order, cut into runs for threads. A run lies in one shard."""
    num_samples = max(len(index), 1)
    average_bytes = max(1, index.stored_bytes // num_samples)
    run_length = max(1, _RUN_BYTES // average_bytes)
    shard_ends = [*index.shard_starts.tolist(), len(index)]
    for first, end in itertools.pairwise(shard_ends):
        for start in range(first, end, run_length):
            stop = min(start + run_length, end)
            yield range(start, stop)


def _read_run(index: PackedIndex, labels: _Labels, run: range) -> list[UnpackedSample]:
    """The samples of a run, read at once."""
    numbers = np.arange(run.start, run.stop, dtype=np.int64)
    records = index.read(numbers)
    shard_index = int(records[0]["shard"])
    shard = index.shards[shard_index]
    offsets = records["offset"].astype(np.int64)
    starts = (offsets - BEFORE_BYTES).tolist()
    # The run ends where the next sample of the shard begins.
    stop = shard.size_bytes
    if run.stop < len(index):
        next_record = index.records[run.stop]
        if next_record["shard"] == shard_index:
            stop = int(next_record["offset"]) - BEFORE_BYTES
    data = _read_bytes(index, shard_index, starts[0], stop)

    samples = []
    ends = [*starts[1:], stop]
    for row, record, start, end in zip(run, records, starts, ends, strict=True):
        start_in_data = start - starts[0]
        end_in_data = end - starts[0]
        sample_data = data[start_in_data:end_in_data]
        label = labels.label_of(row, record)
        samples.append(_unpack_sample(index, row, record, label, start, sample_data))
    return samples


def _read_bytes(index: PackedIndex, shard_index: int, start: int, stop: int) -> bytes:
    """Reads a range of a shard."""
    shard = index.shards[shard_index]
    try:
        if isinstance(index, RemoteIndex):
            answer = index.past_cache.fetched(shard.name, start, stop)
            return bytes(answer.data)
        return Folder(shard.folder).read(shard.name, start, stop)
    except OSError as problem:
        raise PackError(
            f"cannot read {index.path / shard.name}: {problem.strerror or problem}; check the disk "
            "or the network, then run again"
        ) from problem


def _unpack_sample(
    index: PackedIndex,
    row: int,
    record: np.void,
    label: int,
    offset: int,
    data: bytes,
) -> UnpackedSample:
    """A sample with these bytes, which begin at `offset` in its shard."""
    shard_index = int(record["shard"])
    shard_name = index.shards[shard_index].name
    key = sample_key(shard_number(shard_name), offset)
    end = BEFORE_BYTES + int(record["size"])
    stored = data[BEFORE_BYTES:end]
    picture = stored
    if not has_images(record):  # what is stored is the note
        picture = b""
    try:
        if xxhash.xxh3_64_intdigest(stored) != record["xxh3_64"]:
            raise ValueError("the bytes have changed since they were packed")
        if picture.startswith(FPC_MAGIC):
            picture = jpeg_of(stored)
    except ValueError as problem:
        remedy = f"repair the dataset first: fastpipe verify {index.path} --repair SRC"
        raise index.sample_error(row, f"{problem}; {remedy}") from None
    rest = data[note_header_at(record) - offset :]
    others = rest[: _members_end(rest, key)]
    return UnpackedSample(shard_index, key, label, picture, others, len(stored))


def _members_end(data: bytes, key: str) -> int:
    """Where the members of a sample end. Removed samples or zeros may follow them."""
    name = f"{key}.".encode()
    offset = 0
    while offset + tar.BLOCK <= len(data) and data.startswith(name, offset):
        header = data[offset : offset + tar.BLOCK]
        try:
            size_bytes = int(header[tar.SIZE_FIELD], 8)
        except ValueError:
            break
        offset += tar.BLOCK + tar.padded(size_bytes, tar.BLOCK)
    return offset
