"""The pieces of all shards, in order -> index.npy, sources.npy and the columns of the fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import xxhash

from fastpipe.arrays import Records
from fastpipe.dataset.format.fields import (
    FIELDS_FOLDER,
    NAMED_KINDS,
    describe_field,
    sidecars,
)
from fastpipe.dataset.format.layout import (
    INDEX_FILE,
    SOURCES_DTYPE,
    SOURCES_FILE,
    index_dtype,
    version_folder,
)
from fastpipe.dataset.format.pixel_form import PixelForm, count_forms, has_images
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.fields.stored import VALUES, Column, columns
from fastpipe.packing.shard.entry import SOURCES
from fastpipe.packing.shard.npy import write_column, write_npy
from fastpipe.packing.shard.tar import Tar
from fastpipe.sources.facts import Facts
from fastpipe.sources.listing import SourceField
from fastpipe.store.store import Store

# If these values differ, two datasets have different samples, or another order of them.
_CONTENT_FIELDS = ("identity", "width", "height", "label")


class FinishedShard(Protocol):
    """What joining needs of a shard: of an Entry, or of a KeptShard of an earlier version."""

    @property
    def tars(self) -> tuple[Tar, ...]: ...

    @property
    def samples(self) -> int: ...

    @property
    def agreed(self) -> dict[str, Any]: ...

    @property
    def is_wide(self) -> bool:
        """Whether the index records are of WIDE_INDEX_DTYPE."""

    def records(self, store: Store) -> Records:
        """(samples,) records of the index; `shard` counts the shard's tars from 0."""

    def piece_size(self, field: str, part: str) -> int:
        """The size in bytes of the shard's piece of a column."""

    def piece_readers(
        self, store: Store, field: str, part: str
    ) -> Iterator[Callable[[], bytes]]:
        """Functions that read the shard's piece of a column, chunk by chunk."""


class ShardList(Protocol):
    """Finished shards, in order, which can be read several times, and then cleared."""

    def __iter__(self) -> Iterator[FinishedShard]: ...

    def clear(self) -> None: ...


class IndexWriter:
    """Writes index.npy and sources.npy, and adds up what dataset.json says about all samples.

    Attributes:
        label_counts: samples by their label.
        forms: samples by the form of their pixels.
        content: the hash of what decides which samples there are, and their order.
        stored_bytes: of the pictures in the shards.
        jpeg_bytes: of the pictures as files, with those of lists, and of arrays.
        is_wide: index.npy is of WIDE_INDEX_DTYPE.
        index_hash, index_file_hash, sources_hash: of the values of index.npy, of that file, and of
            sources.npy.
    """

    def __init__(self, store: Store, shards: ShardList, folder: str) -> None:
        self.label_counts: Counter[int] = Counter()
        self.forms: Counter[PixelForm] = Counter()
        self.content = xxhash.xxh3_64()
        self.stored_bytes = 0
        self.jpeg_bytes = 0
        self._store = store
        self._shards = shards
        self._folder = folder
        self._samples = sum(shard.samples for shard in shards)
        self.is_wide = any(shard.is_wide for shard in shards)

    def write_index(self) -> None:
        records = self._records()
        dtype = index_dtype(is_wide=self.is_wide)
        with self._store.open_atomic(f"{self._folder}{INDEX_FILE}") as file:
            hashes = write_npy(file, dtype, self._samples, records)
        self.index_hash, self.index_file_hash = hashes

    def write_sources(self) -> None:
        sources = self._sources()
        with self._store.open_atomic(f"{self._folder}{SOURCES_FILE}") as file:
            hashes = write_npy(file, SOURCES_DTYPE, self._samples, sources)
        _, self.sources_hash = hashes

    def _records(self) -> Iterator[bytes]:
        """The index records of all shards, a shard at a time: they may be larger than memory."""
        # The number of the shard's first tar in the dataset.
        first_tar = 0
        dtype = index_dtype(is_wide=self.is_wide)
        records_of_shards = self._store.map(
            lambda shard: shard.records(self._store), self._shards
        )
        for shard, records in zip(self._shards, records_of_shards, strict=True):
            # A shard counts its own tars from 0.
            records["shard"] += first_tar
            first_tar += len(shard.tars)
            sizes_of_images = records["size"][has_images(records)]
            self.stored_bytes += int(sizes_of_images.sum(dtype=np.int64))
            values = [records[name].astype(np.int64) for name in _CONTENT_FIELDS]
            content = np.stack(values, axis=1)
            self.content.update(content.tobytes())
            self.forms += count_forms(records)
            self.label_counts.update(records["label"].tolist())
            yield records.astype(dtype, copy=False).tobytes()

    def _sources(self) -> Iterator[bytes]:
        for _, data in _read_pieces(self._store, self._shards, *SOURCES):
            jpeg_bytes = np.frombuffer(data, SOURCES_DTYPE)["jpeg_bytes"]
            self.jpeg_bytes += int(jpeg_bytes.sum(dtype=np.int64))
            yield data


def _read_pieces(
    store: Store, shards: ShardList, field: str, part: str
) -> Iterator[tuple[int, bytes]]:
    """All pieces of a column, chunk by chunk, each with the position of its shard."""

    def readers() -> Iterator[tuple[int, Callable[[], bytes]]]:
        for shard_index, shard in enumerate(shards):
            for reader in shard.piece_readers(store, field, part):
                yield shard_index, reader

    def read(shard_reader: tuple[int, Callable[[], bytes]]) -> tuple[int, bytes]:
        shard_index, reader = shard_reader
        return shard_index, reader()

    # In a bucket, several chunks are read at a time.
    return store.map(read, readers())


def write_columns(
    store: Store,
    shards: ShardList,
    facts: Facts,
    samples: int,
    on_file: Callable[[], None],
    version: int,
) -> dict[str, Any]:
    """Joins the pieces of all columns; returns the entry "fields" of dataset.json.

    Args:
        store: the destination.
        shards: all shards, in order.
        facts: their fields name classes and points.
        samples: number of all samples.
        on_file: is called after each file.
        version: of the dataset, which decides the folder, and which class numbers are kept.
    """
    folder = f"{version_folder(version)}{FIELDS_FOLDER}"
    # There may be files of another dataset, or of a pack that was interrupted.
    store.remove(f"{folder}/{name}" for name in store.sizes(folder))

    agreement, class_numbers = _join_agreements(shards, facts, version)
    named = {}
    for source_field in facts.fields:
        if source_field.kind in NAMED_KINDS:
            named[source_field.name] = source_field
    described = {}
    for field in agreement.fields():
        if field.name in named:
            source_field = named[field.name]
            field = replace(
                field, names=source_field.names, flip_pairs=source_field.flip_pairs
            )
        hashes = {}
        for name, column in zip(sidecars(field), columns(field), strict=True):
            size_bytes = 0
            for shard in shards:
                size_bytes += shard.piece_size(field.name, column.part)
            values = _read_column(store, shards, field.name, column, class_numbers)
            with store.open_atomic(f"{folder}/{name}") as file:
                hashes[name] = write_column(file, column, values, size_bytes, samples)
            on_file()
        described[field.name] = describe_field(replace(field, files=hashes))
    return described


def _join_agreements(
    shards: ShardList, facts: Facts, version: int
) -> tuple[Agreement, list[Mapping[str, list[int]]]]:
    """What all values share; and for each shard, by field, the dataset's class numbers."""
    agreement = Agreement(facts.kinds)
    fields = [
        field for field in facts.fields if field.kind == "classes" and field.names
    ]
    # A source that has names for all classes numbers them. In a later version the classes that the
    # dataset has keep their numbers, and come first; then those that the user has named.
    if version == 1:
        _name_classes(agreement, fields)
    class_numbers: list[Mapping[str, list[int]]] = []
    if facts.kinds:
        class_numbers = [
            agreement.join(shard.agreed, shard.tars[0].name) for shard in shards
        ]
    if version > 1:
        _name_classes(agreement, [field for field in fields if field.numbers])
    return agreement, class_numbers


def _name_classes(agreement: Agreement, fields: Iterable[SourceField]) -> None:
    for field in fields:
        agreement.name_classes(field.name, field.names)


def _read_column(
    store: Store,
    shards: ShardList,
    field: str,
    column: Column,
    class_numbers: Sequence[Mapping[str, list[int]]],
) -> Iterator[bytes]:
    """The pieces of a column, with the class numbers of the dataset in place of the shard's."""
    for shard_index, data in _read_pieces(store, shards, field, column.part):
        numbers = class_numbers[shard_index].get(field)
        if numbers is None or column.part != VALUES:
            yield data
        else:
            in_shard = np.frombuffer(data, column.dtype)
            yield np.array(numbers, column.dtype)[in_shard].tobytes()
