"""Finished shards -> index.npy, the columns of fields, rejected.jsonl and, last, dataset.json."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from fastpipe.dataset.format.description import fingerprint, with_self_checksum
from fastpipe.dataset.format.layout import (
    DATASET_FILE,
    DATASET_FORMAT,
    FORMAT_VERSION,
    INDEX_FILE,
    NO_LABEL,
    REJECTED_FILE,
    SOURCES_FILE,
    shard_number,
    version_folder,
)
from fastpipe.dataset.format.pixel_form import describe_forms
from fastpipe.errors import readable
from fastpipe.packing.shard.entry import Tally
from fastpipe.packing.shard.join import IndexWriter, ShardList, write_columns
from fastpipe.packing.shard.journal import KEPT, in_use_error
from fastpipe.packing.shard.plan import Plan
from fastpipe.sources.facts import Facts
from fastpipe.sources.files import SourcePath
from fastpipe.sources.picture.jpeg import made_with
from fastpipe.store.store import Store


@dataclass(frozen=True)
class PreviousVersion:
    """The version of a dataset that a new one follows; by default there is none. Note [versions]

    Attributes:
        info: the content of its dataset.json.
        data: the bytes of that file; None: there is no such file.
        tally: of its sources.
        history: the entries "history" of dataset.json up to this version.
        change: what the new version's entry of the history says.
    """

    info: dict[str, Any] = field(
        default_factory=lambda: {"version": 0, "packs": [], "next_shard": 0}
    )
    data: bytes | None = None
    tally: Tally = field(default_factory=Tally)
    history: list[dict[str, Any]] = field(default_factory=list)
    change: dict[str, Any] = field(default_factory=dict)


def publish_dataset(
    store: Store,
    shards: ShardList,
    facts: Facts,
    tally: Tally,
    shaping: Mapping[str, Any],
    *,
    plan: Plan | None = None,
    previous: PreviousVersion | None = None,
    on_file: Callable[[], None] = lambda: None,
    check_last: Callable[[], None] = lambda: None,
    on_described: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Turns finished shards into a dataset. Note [publishing] in journal.py

    Args:
        store: the destination.
        shards: all shards, in order. They are cleared when they are read.
        facts: about the listing of the new sources.
        tally: of the new sources.
        shaping: `PackOptions.shaping`.
        plan: of the pack; None: a program added the samples, or samples were only removed.
        previous: the version that this one follows.
        on_file: is called after each of the files that may be large or that end the work:
            index.npy, the columns, dataset.json.
        check_last: is called before dataset.json appears; raises if it must not.
        on_described: is called with the content of dataset.json, before it appears.

    Returns:
        The content of dataset.json.
    """
    previous = previous or PreviousVersion()
    version = int(previous.info["version"]) + 1
    folder = version_folder(version)
    # The first version has its dataset.json beside the shards only, until there is a second
    # version.
    if version == 2 and previous.data is not None:
        store.write(f"v1/{DATASET_FILE}", previous.data)

    # Nobody reads these files before dataset.json names them.
    samples = sum(shard.samples for shard in shards)
    index = IndexWriter(store, shards, folder)
    index.write_index()
    on_file()
    fields = write_columns(store, shards, facts, samples, on_file, version)
    index.write_sources()

    # dataset.json and rejected.jsonl are about the sources of all versions.
    total = previous.tally
    total.add(tally)
    _write_rejected(store, folder, total)

    tars = [tar.recorded() for shard in shards for tar in shard.tars]
    shards.clear()  # dataset.json needs memory, too, if there are a million shards
    classes = facts.classes
    if classes is None:
        label_count = max(index.label_counts, default=NO_LABEL) + 1
        classes = [str(label) for label in range(label_count)]

    packs = list(previous.info["packs"])
    if version == 1 or plan is not None:
        packs.append(_describe_pack(version, facts, tally, shaping, plan))
    history: list[dict[str, Any]] = []
    if version > 1:
        history = [
            *previous.history,
            {"version": version, "samples": samples, **previous.change},
        ]
    # A state of training is valid for datasets with the same content: these have the same samples
    # in the same order.
    content = json.dumps(
        [classes, index.jpeg_bytes, index.content.hexdigest()]
    ).encode()
    numbers = [shard_number(tar["name"]) for tar in tars]
    next_shard = max(numbers, default=-1) + 1
    info: dict[str, Any] = {
        "format": DATASET_FORMAT,
        "format_version": FORMAT_VERSION,
        "version": version,
        "storage": shaping["storage"],
        "content": xxhash.xxh3_128_hexdigest(content),
        "samples": samples,
        "jpeg_bytes": index.jpeg_bytes,
        "stored_bytes": index.stored_bytes,
        "classes": classes,
        "class_counts": [index.label_counts[label] for label in range(len(classes))],
        "forms": describe_forms(index.forms),
        "shards": tars,
        "next_shard": max(previous.info["next_shard"], next_shard),
        "index": _describe_index(index),
        "sources": {"name": SOURCES_FILE, "file_xxh3_64": index.sources_hash},
        "fields": fields,
        "counts": describe_tally(total),
        "packs": packs,
        "history": history,
        "made_with": made_with(),
    }
    info["fingerprint"] = fingerprint(info)
    info, data = with_self_checksum(info)

    if version > 1:
        store.write(f"{folder}{DATASET_FILE}", data)
    on_described(info)
    check_last()
    # Only if dataset.json still is that of the previous version. Else another program was faster.
    if not store.swap(DATASET_FILE, data, previous.data, facts.state):
        problem = "has appeared meanwhile" if version == 1 else "has changed meanwhile"
        raise in_use_error(store, DATASET_FILE, problem, KEPT)
    if isinstance(store.place, Path):
        # The file gets the time of the listing. A source that is newer has changed since then.
        with contextlib.suppress(OSError):
            # Some network file systems let nobody set times.
            times_ns = (facts.time_ns, facts.time_ns)
            os.utime(store.place / DATASET_FILE, ns=times_ns)
    on_file()
    return info


def _write_rejected(store: Store, folder: str, tally: Tally) -> None:
    """Writes rejected.jsonl, or removes an old one if nothing is rejected."""
    if not tally.rejected:
        store.remove([f"{folder}{REJECTED_FILE}"])
        return
    lines = []
    for path, reason in sorted(tally.rejected):
        entry = {"path": readable(path), "reason": reason}
        line = json.dumps(entry, ensure_ascii=False)
        lines.append(line.encode() + b"\n")
    store.write(f"{folder}{REJECTED_FILE}", b"".join(lines))


def _describe_pack(
    version: int,
    facts: Facts,
    tally: Tally,
    shaping: Mapping[str, Any],
    plan: Plan | None,
) -> dict[str, Any]:
    """The entry of a pack in "packs" of dataset.json."""
    return {
        "version": version,
        "source": {**facts.recorded(), "bytes": tally.source_bytes},
        "options": shaping,
        "plan": {} if plan is None else {"step": plan.step, "base": plan.base},
    }


def _describe_index(index: IndexWriter) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": INDEX_FILE,
        "xxh3_64": index.index_hash,
        "file_xxh3_64": index.index_file_hash,
    }
    # Most datasets have no such picture, and no such entry.
    if index.is_wide:
        described["is_wide"] = True
    return described


def describe_tally(tally: Tally) -> dict[str, Any]:
    """The entry "counts" of dataset.json."""
    counts = {
        "rejected": len(tally.rejected),
        "reencoded": dict(sorted(tally.changes.items())),
        "png": dict(sorted(tally.pngs.items())),
        "exif_oriented": tally.oriented,
        "assumed_shown": tally.assumed_shown,
        "stray_bytes": tally.stray_bytes,
        "multi_frame": tally.multi_frame,
        "transparent": tally.transparent,
    }
    # Few datasets have them, and older versions do not know them.
    rare_counts = {
        "assumed_stored": tally.assumed_stored,
        "cut_boxes": tally.cut_boxes,
        "dropped_boxes": tally.dropped_boxes,
        "tiled": tally.tiled,
    }
    for name, count in rare_counts.items():
        if count:
            counts[name] = count
    return counts


def read_rejected(dataset: SourcePath, version: int = 1) -> list[dict[str, str]]:
    """Path and reason of each source that was not packed, sorted by path."""
    try:
        lines = (
            (dataset / f"{version_folder(version)}{REJECTED_FILE}")
            .read_bytes()
            .splitlines()
        )
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]
