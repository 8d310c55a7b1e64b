"""Finished shards -> index.npy, the fields' columns, rejected.jsonl and, last, dataset.json."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash

from fastpipe.errors import readable
from fastpipe.format.description import fingerprint, with_self_checksum
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
    shard_number,
    version_folder,
)
from fastpipe.format.pixel_form import PixelForm, count_forms, describe_forms
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.fields.stored import LENGTHS, VALUES, Column, columns
from fastpipe.packing.shard.journal import KEPT, SOURCES, Entries, Tally, another
from fastpipe.packing.shard.plan import Plan
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import Facts
from fastpipe.sources.picture.jpeg import made_with
from fastpipe.store.store import Store

_CONTENT = ("identity", "width", "height", "label")


Pieces = Entries | list[Any]  # of Entry, and of Kept, which has the same attributes; in order


@dataclass(frozen=True)
class Before:
    """The version of a dataset that a new one follows; `now`: what is said of the new one. Note [versions]"""

    info: dict[str, Any] = field(default_factory=lambda: {"version": 0, "packs": [], "next_shard": 0})
    data: bytes | None = None
    tally: Tally = field(default_factory=Tally)
    history: list[dict[str, Any]] = field(default_factory=list)
    now: dict[str, Any] = field(default_factory=dict)


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
    """Writes what turns shards into a dataset; gives the content of dataset.json. Note [publishing] in journal.py

    `pieces` are removed when they are read. Without a plan a program added the samples. `told`: a file is there.
    """
    before = before or Before()
    version = int(before.info["version"]) + 1
    at = version_folder(version)
    if version == 2 and before.data is not None:
        store.write(f"v1/{DATASET_FILE}", before.data)
    samples = sum(piece.samples for piece in pieces)
    counted = _Counted()
    with store.whole(f"{at}{INDEX_FILE}") as file:
        index_hash, index_file_hash = write_npy(file, INDEX_DTYPE, samples, counted.records(store, pieces))
    told()
    described = _write_columns(store, pieces, facts, samples, told, at)
    with store.whole(f"{at}{SOURCES_FILE}") as file:
        _, sources_hash = write_npy(file, SOURCES_DTYPE, samples, counted.sources(store, pieces))
    all_of = before.tally
    all_of.add(tally)
    if all_of.rejected:
        said = ({"path": readable(path), "reason": reason} for path, reason in sorted(all_of.rejected))
        lines = (json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in said)
        store.write(f"{at}{REJECTED_FILE}", b"".join(lines))
    else:
        store.remove([f"{at}{REJECTED_FILE}"])
    shards = [tar.recorded() for piece in pieces for tar in piece.tars]
    last = max((shard_number(shard["name"]) for shard in shards), default=-1)
    pieces.clear()
    classes = facts.classes
    if classes is None:
        classes = [str(label) for label in range(max(counted.labels, default=NO_LABEL) + 1)]
    pack = {
        "version": version,
        "source": {**facts.recorded(), "bytes": tally.source_bytes},
        "options": shaping,
        "plan": {} if plan is None else {"step": plan.step, "base": plan.base},
    }
    now = {"version": version, "samples": samples, **before.now}
    # With these, an order is another one.
    content = json.dumps([classes, counted.jpeg_bytes, counted.same.hexdigest()]).encode()
    info: dict[str, Any] = {
        "format": DATASET_FORMAT,
        "format_version": FORMAT_VERSION,
        "version": version,
        "storage": shaping["storage"],
        "content": xxhash.xxh3_128_hexdigest(content),
        "samples": samples,
        "jpeg_bytes": counted.jpeg_bytes,
        "stored_bytes": counted.stored_bytes,
        "classes": classes,
        "class_counts": [counted.labels[label] for label in range(len(classes))],
        "forms": describe_forms(counted.forms),
        "shards": shards,
        "next_shard": max(before.info["next_shard"], last + 1),
        "index": {"name": INDEX_FILE, "xxh3_64": index_hash, "file_xxh3_64": index_file_hash},
        "sources": {"name": SOURCES_FILE, "file_xxh3_64": sources_hash},
        "fields": described,
        "counts": {
            "rejected": len(all_of.rejected),
            "reencoded": dict(sorted(all_of.changes.items())),
            "png": dict(sorted(all_of.pngs.items())),
            "exif_oriented": all_of.oriented,
            "assumed_shown": all_of.assumed_shown,
            "stray_bytes": all_of.stray_bytes,
            "multi_frame": all_of.multi_frame,
            "transparent": all_of.transparent,
        },
        "packs": [*before.info["packs"], *([pack] if version == 1 or plan is not None else [])],
        "history": [] if version == 1 else [*before.history, now],
        "made_with": made_with(),
    }
    info["fingerprint"] = fingerprint(info)
    info, data = with_self_checksum(info)
    if version > 1:
        store.write(f"{at}{DATASET_FILE}", data)
    if not store.swap(DATASET_FILE, data, before.data, facts.state):
        raise another(store, DATASET_FILE, f"has {'appeared' if version == 1 else 'changed'} meanwhile", KEPT)
    if isinstance(store.place, Path):
        with contextlib.suppress(OSError):  # a network's file system may let nobody set times
            os.utime(store.place / DATASET_FILE, ns=(facts.time_ns, facts.time_ns))
    told()
    return info


class _Counted:
    """Strings together what index.npy and sources.npy have, a shard at a time: they may be larger than memory."""

    def __init__(self) -> None:
        self.labels: Counter[int] = Counter()
        self.forms: Counter[PixelForm] = Counter()
        self.same = xxhash.xxh3_64()
        self.stored_bytes = self.jpeg_bytes = 0

    def records(self, store: Store, pieces: Pieces) -> Iterator[bytes]:
        shard = 0
        for piece, records in zip(pieces, store.each(lambda piece: piece.records(store), pieces), strict=True):
            records["shard"] += shard
            shard += len(piece.tars)
            self.stored_bytes += int(records["size"].sum(dtype=np.int64))
            self.same.update(np.stack([records[name].astype(np.int64) for name in _CONTENT], axis=1).tobytes())
            self.forms += count_forms(records)
            self.labels.update(records["label"].tolist())
            yield records.tobytes()

    def sources(self, store: Store, pieces: Pieces) -> Iterator[bytes]:
        reads = (read for piece in pieces for read in piece.part(store, *SOURCES))
        for data in store.each(lambda read: read(), reads):
            self.jpeg_bytes += int(np.frombuffer(data, SOURCES_DTYPE)["jpeg_bytes"].sum(dtype=np.int64))
            yield data


def _write_columns(
    store: Store, pieces: Pieces, facts: Facts, samples: int, told: Callable[[], None], at: str
) -> dict[str, Any]:
    """Strings the pieces of all columns together; the entry "fields" of dataset.json."""
    agreement = Agreement(facts.kinds)
    known = [each for each in facts.fields if each.kind == "classes" and each.names]
    is_first = at == version_folder(1)
    for each in known if is_first else ():
        agreement.name_classes(each.name, each.names)
    folder = f"{at}{FIELDS_FOLDER}"
    store.remove(f"{folder}/{name}" for name in store.sizes(folder))  # of another dataset
    # In a shard's piece of a column class names have this shard's numbers.
    numbers = [agreement.join(piece.agreed, piece.tars[0].name) for piece in pieces if facts.kinds]
    for each in known if not is_first else ():  # classes that were there before keep their numbers
        if each.numbers:  # the user has named them
            agreement.name_classes(each.name, each.names)
    named = {each.name: each for each in facts.fields if each.kind in NAMED_KINDS}
    described = {}

    def values(of: str, column: Column) -> Iterator[bytes]:
        reads = (
            (read, known.get(of))
            for piece, known in zip(pieces, numbers, strict=True)
            for read in piece.part(store, of, column.part)
        )
        for data, new in store.each(lambda each: (each[0](), each[1]), reads):
            renumbered = new is not None and column.part == VALUES
            yield np.array(new, column.dtype)[np.frombuffer(data, column.dtype)].tobytes() if renumbered else data

    for one in agreement.fields():
        if one.name in named:
            one = replace(one, names=named[one.name].names, flip_pairs=named[one.name].flip_pairs)
        hashes = {}
        for name, column in zip(sidecars(one), columns(one), strict=True):
            size_bytes = sum(piece.part_bytes(one.name, column.part) for piece in pieces)
            with store.whole(f"{folder}/{name}") as file:
                hashes[name] = write_column(file, column, values(one.name, column), size_bytes, samples)
            told()
        described[one.name] = describe_field(replace(one, files=hashes))
    return described


def write_column(file: BinaryIO, column: Column, parts: Iterable[bytes], size_bytes: int, samples: int) -> str:
    """Writes one file of DST/fields; the XXH3-64 of the file in hex. `parts` are values, or lengths for offsets."""
    each = column.dtype.itemsize * int(np.prod(column.width, dtype=np.int64))
    count = size_bytes // each if each else 0
    if column.part == LENGTHS:
        count, parts = samples + 1, _offsets(parts)
    return write_npy(file, column.dtype, count, parts, column.width)[1]


def _offsets(lengths: Iterable[bytes]) -> Iterator[bytes]:
    total = 0
    yield total.to_bytes(8, "little")
    for data in lengths:
        ends = total + np.cumsum(np.frombuffer(data, "<i8"))
        total = int(ends[-1])
        yield ends.tobytes()


def write_npy(
    file: BinaryIO, dtype: np.dtype[Any], count: int, parts: Iterable[bytes], width: tuple[int, ...] = ()
) -> tuple[str, str]:
    """Writes an .npy file of (count, *width) values; the XXH3-64 of the values, and that of the file, in hex."""
    head = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count, *width)}
    np.lib.format.write_array_header_1_0(head, described)
    values, whole = xxhash.xxh3_64(), xxhash.xxh3_64(head.getvalue())
    file.write(head.getvalue())
    for data in parts:
        values.update(data)
        whole.update(data)
        file.write(data)
    return values.hexdigest(), whole.hexdigest()


def read_rejected(dataset: SourcePath, version: int = 1) -> list[dict[str, str]]:
    """Path and reason of each source that was not packed, sorted by path."""
    try:
        lines = (dataset / f"{version_folder(version)}{REJECTED_FILE}").read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]
