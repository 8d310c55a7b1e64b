"""Finished shards -> index.npy, the fields' columns, rejected.jsonl and, last, dataset.json."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import PackError, readable
from fastpipe.format.fields import FIELDS_FOLDER, NAMED_KINDS, describe_field, sidecars
from fastpipe.format.layout import (
    DATASET_FILE,
    DATASET_FORMAT,
    FORMAT_VERSION,
    INDEX_DTYPE,
    INDEX_FILE,
    NO_LABEL,
    REJECTED_FILE,
    SOURCES_DTYPE,
    SOURCES_FILE,
    shard_name,
    version_folder,
)
from fastpipe.format.self_checksum import fingerprint, with_self_checksum
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.fields.columns import LENGTHS, VALUES, Column, columns
from fastpipe.packing.picture.jpeg import versions
from fastpipe.packing.shard.entry import SOURCES, Tally
from fastpipe.packing.shard.plan import Plan
from fastpipe.packing.shard.tar import Tar
from fastpipe.packing.source.facts import Facts
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.listing import SourceField
from fastpipe.store.store import Store

_CONTENT = ("identity", "width", "height", "label")


class Piece(Protocol):
    """Shards that are strung together with others: see Entry."""

    @property
    def tars(self) -> Sequence[Tar]: ...
    @property
    def agreed(self) -> dict[str, Any]: ...
    @property
    def samples(self) -> int: ...
    def records(self, store: Store) -> NDArray[np.void]: ...
    def part(self, store: Store, of: str, part: str) -> Iterator[Callable[[], bytes]]: ...
    def part_bytes(self, of: str, part: str) -> int: ...


class Pieces(Protocol):
    """Some of these, in order."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Piece]: ...
    def clear(self) -> None: ...


@dataclass(frozen=True)
class Before:
    """The version of a dataset that a new one follows. Note [versions] in grow.py

    Attributes:
        info, data: the content of its dataset.json, and its bytes.
        tally: of its sources, without what is added up from its files.
        history: of it and those before it.
        now: of the new one: time, command, and how many samples came and went.
        pack: whether sources were packed for the new one.
    """

    info: dict[str, Any]
    data: bytes
    tally: Tally
    history: list[dict[str, Any]]
    now: dict[str, Any]
    packs: bool = True

    @property
    def version(self) -> int:
        """Of the new one."""
        return int(self.info["version"]) + 1


def publish_dataset(
    store: Store,
    pieces: Pieces,
    facts: Facts,
    tally: Tally,
    shaping: Mapping[str, Any],
    *,
    plan: Plan | None = None,
    before: Before | None = None,
    told: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Writes what turns shards into a dataset. Note [publishing] in journal.py

    Args:
        store: of the dataset.
        pieces: the shards, in order. They are removed when they are read, for there may be a million.
        facts: of the sources; the names and pairs of their fields are recorded.
        tally: of all sources.
        shaping: the options that decide bytes.
        plan: how sources were cut into shards; None: a program added them.
        before: the version that grows; None: there is none.
        told: called when a file is there.

    Returns:
        The content of dataset.json.

    Raises:
        PackError: the disk or server refuses, or another program has written a dataset there.
    """
    kinds = facts.kinds
    version = 1 if before is None else before.version
    at = version_folder(version)
    if version == 2 and before is not None:
        store.write(f"v1/{DATASET_FILE}", before.data)
    index_hash, index_file_hash, samples_hash, class_counts, stored_bytes = _write_index(store, pieces, at)
    told()
    samples = sum(piece.samples for piece in pieces)
    described = _write_columns(store, pieces, kinds, facts.fields, samples, told, at)
    sources_hash, jpeg_bytes = _write_sources(store, pieces, samples, at)
    all_of = Tally() if before is None else before.tally
    all_of.add(tally)
    _write_rejected(store, all_of, at)
    shards = [
        {
            "name": shard_name(tar.number),
            "samples": tar.samples,
            "size_bytes": tar.size_bytes,
            "xxh3_64": tar.xxh3_64,
            **({"removed": tar.removed} if tar.removed else {}),
        }
        for piece in pieces
        for tar in piece.tars
    ]
    class_counts.pop(NO_LABEL, 0)
    classes = facts.classes
    if classes is None:
        classes = [str(label) for label in range(max(class_counts, default=-1) + 1)]
    source = {**facts.recorded(), "bytes": tally.source_bytes}
    last = max((tar.number for piece in pieces for tar in piece.tars), default=-1)
    pieces.clear()
    pack = {
        "version": version,
        "source": source,
        "options": shaping,
        "plan": {} if plan is None else plan.recorded(),
    }
    packs, next_shard = ([], 0) if before is None else (before.info["packs"], before.info["next_shard"])
    content = json.dumps([classes, jpeg_bytes, samples_hash]).encode()  # with these, an order is another one
    info: dict[str, Any] = {
        "format": DATASET_FORMAT,
        "format_version": FORMAT_VERSION,
        "version": version,
        "storage": shaping["storage"],
        "content": xxhash.xxh3_128_hexdigest(content),
        "samples": samples,
        "jpeg_bytes": jpeg_bytes,
        "stored_bytes": stored_bytes,
        "classes": classes,
        "class_counts": [class_counts[label] for label in range(len(classes))],
        "shards": shards,
        "next_shard": max(next_shard, last + 1),
        "index": {"name": INDEX_FILE, "xxh3_64": index_hash, "file_xxh3_64": index_file_hash},
        "sources": {"name": SOURCES_FILE, "file_xxh3_64": sources_hash},
        "fields": described,
        "counts": {
            "rejected": len(all_of.rejected),
            "reencoded": dict(sorted(all_of.changes.items())),
            "exif_oriented": all_of.oriented,
            "stray_bytes": all_of.stray_bytes,
            "multi_frame": all_of.multi_frame,
        },
        "packs": [*packs, pack] if before is None or before.packs else packs,
        "history": [] if before is None else [*before.history, {"version": version, "samples": samples, **before.now}],
        "made_with": versions(masks="mask" in kinds.values()),
    }
    info["fingerprint"] = fingerprint(info)
    info, data = with_self_checksum(info)
    _write_description(store, data, facts, before)
    told()
    return info


def _write_description(store: Store, data: bytes, facts: Facts, before: Before | None) -> None:
    if before is not None:
        store.write(f"{version_folder(before.version)}{DATASET_FILE}", data)
    if not store.swap(DATASET_FILE, data, None if before is None else before.data, facts.state):
        raise PackError(
            f"{store.place}/{DATASET_FILE} has {'appeared' if before is None else 'changed'} meanwhile: another "
            f"program writes to {store.place}. Its samples are in; run the same command again, or choose another folder"
        )
    if isinstance(store.place, Path):
        with contextlib.suppress(OSError):  # a network's file system may let nobody set times
            os.utime(store.place / DATASET_FILE, ns=(facts.time_ns, facts.time_ns))


def _write_index(store: Store, pieces: Pieces, at: str) -> tuple[str, str, str, Counter[int], int]:
    """Strings records together; a shard's at a time, for the index may be larger than memory.

    Returns:
        The hash of the records, that of the whole file, that of all that does not depend on the storage, samples
        by label, and the bytes of all images.
    """
    labels: Counter[int] = Counter()
    digest, same = xxhash.xxh3_64(), xxhash.xxh3_64()
    head = npy_head(INDEX_DTYPE, (sum(piece.samples for piece in pieces),))
    whole = xxhash.xxh3_64(head)
    shard = stored_bytes = 0
    with store.whole(f"{at}{INDEX_FILE}") as file:
        file.write(head)
        for piece, records in zip(pieces, store.each(lambda piece: piece.records(store), pieces), strict=True):
            records["shard"] += shard
            shard += len(piece.tars)
            stored_bytes += int(records["size"].sum(dtype=np.int64))
            data = records.tobytes()
            digest.update(data)
            whole.update(data)
            file.write(data)
            same.update(np.stack([records[name].astype(np.int64) for name in _CONTENT], axis=1).tobytes())
            found, counts = np.unique(records["label"], return_counts=True)
            labels.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
    return digest.hexdigest(), whole.hexdigest(), same.hexdigest(), labels, stored_bytes


def _write_columns(
    store: Store,
    pieces: Pieces,
    kinds: Mapping[str, str],
    said: Sequence[SourceField],
    samples: int,
    told: Callable[[], None],
    at: str,
) -> dict[str, Any]:
    """Strings the pieces of all columns together; the entry "fields" of dataset.json."""
    agreement = Agreement(kinds)
    folder = f"{at}{FIELDS_FOLDER}"
    store.remove(f"{folder}/{name}" for name in store.sizes(folder))  # of another dataset
    numbers = [agreement.join(piece.agreed, _name(piece)) for piece in pieces if kinds]
    described = {}
    named = {each.name: each for each in said if each.kind in NAMED_KINDS}
    for one in agreement.fields():
        hashes = {}
        for name, column in zip(sidecars(one), columns(one), strict=True):
            reads = (
                (read, column, of.get(one.name))
                for piece, of in zip(pieces, numbers, strict=True)
                for read in piece.part(store, one.name, column.part)
            )
            parts = store.each(lambda each: renumbered(each[0](), *each[1:]), reads)
            size_bytes = sum(piece.part_bytes(one.name, column.part) for piece in pieces)
            with store.whole(f"{folder}/{name}") as file:
                hashes[name] = write_column(file, column, parts, size_bytes, samples)
            told()
        of = named.get(one.name)
        full = one if of is None else replace(one, names=of.names, flip_pairs=of.flip_pairs)
        described[one.name] = describe_field(replace(full, files=hashes))
    return described


def _write_sources(store: Store, pieces: Pieces, samples: int, at: str) -> tuple[str, int]:
    """Strings together what is known of the samples' sources; the file's hash, and the bytes of all images as JPEGs."""
    head = npy_head(SOURCES_DTYPE, (samples,))
    digest, jpeg_bytes = xxhash.xxh3_64(head), 0
    with store.whole(f"{at}{SOURCES_FILE}") as file:
        file.write(head)
        reads = (read for piece in pieces for read in piece.part(store, *SOURCES))
        for data in store.each(lambda read: read(), reads):
            jpeg_bytes += int(np.frombuffer(data, SOURCES_DTYPE)["jpeg_bytes"].sum(dtype=np.int64))
            digest.update(data)
            file.write(data)
    return digest.hexdigest(), jpeg_bytes


def _name(piece: Piece) -> str:
    return shard_name(piece.tars[0].number) if piece.tars else "an empty shard"


def renumbered(data: bytes, column: Column, numbers: list[int] | None) -> bytes:
    """Values of a column with the dataset's numbers of class names in place of a shard's."""
    if numbers is None or column.part != VALUES:
        return data
    return bytes(np.array(numbers, column.dtype)[np.frombuffer(data, column.dtype)])


def write_column(file: BinaryIO, column: Column, parts: Iterable[bytes], size_bytes: int, samples: int) -> str:
    """Writes one file of DST/fields.

    Args:
        file: to write to.
        column: what stands in it.
        parts: its values, chunk by chunk; of offsets the lengths.
        size_bytes: of all parts.
        samples: of the dataset.

    Returns:
        The XXH3-64 of the file in hex.
    """
    each = column.dtype.itemsize * int(np.prod(column.width, dtype=np.int64))
    offsets = column.part == LENGTHS
    digest = xxhash.xxh3_64()

    def write(data: bytes) -> None:
        digest.update(data)
        file.write(data)

    write(npy_head(column.dtype, (samples + 1 if offsets else size_bytes // each if each else 0, *column.width)))
    total = 0
    if offsets:
        write(total.to_bytes(8, "little"))
    for data in parts:
        if offsets:
            ends = total + np.cumsum(np.frombuffer(data, "<i8"))
            total = int(ends[-1])
            data = ends.tobytes()
        write(data)
    return digest.hexdigest()


def npy_head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What stands before the values in an .npy file."""
    head = io.BytesIO()
    described = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(head, {"descr": described, "fortran_order": False, "shape": shape})
    return head.getvalue()


def read_rejected(dataset: SourcePath, version: int = 1) -> list[dict[str, str]]:
    """Path and reason of each source that was not packed, sorted by path."""
    try:
        return [
            json.loads(line)
            for line in (dataset / f"{version_folder(version)}{REJECTED_FILE}").read_bytes().splitlines()
        ]
    except FileNotFoundError:
        return []


def _write_rejected(store: Store, tally: Tally, at: str) -> None:
    if not tally.rejected:
        store.remove([f"{at}{REJECTED_FILE}"])
        return
    with store.whole(f"{at}{REJECTED_FILE}") as file:
        for path, reason in sorted(tally.rejected):
            entry = {"path": readable(path), "reason": reason}
            file.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
