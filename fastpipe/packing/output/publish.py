"""Finished shards -> index.npy, sidecars, rejected.jsonl and, last, dataset.json."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from fastpipe.errors import readable
from fastpipe.format.fields import NAMED_KINDS, Field, describe_field
from fastpipe.format.layout import (
    COEFFICIENTS_STORAGE,
    DATASET_FILE,
    DATASET_FORMAT,
    DATASET_VERSION,
    INDEX_DTYPE,
    INDEX_FILE,
    NO_LABEL,
    REJECTED_FILE,
)
from fastpipe.format.self_checksum import fingerprint, with_self_checksum
from fastpipe.packing.output.files import whole_file
from fastpipe.packing.output.journal import Journal, ShardEntry, Tally
from fastpipe.packing.output.sidecars import write_sidecars
from fastpipe.packing.picture.versions import versions
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.listing import Listing, SourceField

_CONTENT = ("identity", "width", "height", "label")


@dataclass(frozen=True)
class Origin:
    """What a dataset was made of, for dataset.json.

    Attributes:
        classes: names, in the order of the labels; None: the labels in digits, without gaps.
        source: the entry "source", without "bytes".
        fields: of the source; their names and pairs are recorded.
        time_ns: the time that dataset.json gets: a source that changes later, also while the pack goes on, is newer.
    """

    classes: list[str] | None
    source: dict[str, Any]
    time_ns: int
    fields: Sequence[SourceField] = ()


def origin_of(listing: Listing) -> Origin:
    """The origin of a pack of listed sources."""
    source = {"files": len(listing.sources), "xxh3_128": listing.digest()}
    # Another machine's clock may be ahead.
    return Origin(listing.classes, source, max(listing.taken_ns, listing.last_change_ns()), listing.fields)


def publish_dataset(
    journal: Journal,
    shards: Sequence[ShardEntry],
    origin: Origin,
    tally: Tally,
    options: dict[str, Any],
    fields: Sequence[Field],
) -> dict[str, Any]:
    """Writes what turns the shards into a dataset.

    Returns:
        The content of dataset.json.
    """
    index_hash, index_file_hash, samples_hash, class_counts = _write_index(journal, shards)
    samples = sum(shard.samples for shard in shards)
    described: dict[str, Any] = {}
    if fields:
        hashes = write_sidecars(journal.destination, journal.folder, fields, len(shards), samples)
        said = {field.name: field for field in origin.fields if field.kind in NAMED_KINDS}
        for field in fields:
            of = said.get(field.name)
            named = field if of is None else replace(field, names=of.names, flip_pairs=of.flip_pairs)
            described[field.name] = describe_field(replace(named, files=hashes[field.name]))
    _write_rejected(journal, tally)
    class_counts.pop(NO_LABEL, 0)
    classes = origin.classes
    if classes is None:
        classes = [str(label) for label in range(max(class_counts, default=-1) + 1)]
    storage = options["storage"]
    jpeg_bytes = tally.jpeg_bytes if storage == COEFFICIENTS_STORAGE else tally.packed_bytes
    content = json.dumps([classes, jpeg_bytes, samples_hash]).encode()  # with these, an order is another one
    info: dict[str, Any] = {
        "format": DATASET_FORMAT,
        "version": DATASET_VERSION,
        "storage": storage,
        "content": xxhash.xxh3_128_hexdigest(content),
        "samples": samples,
        "jpeg_bytes": jpeg_bytes,
        "stored_bytes": tally.packed_bytes,
        "classes": classes,
        "class_counts": [class_counts[label] for label in range(len(classes))],
        "shards": [
            {
                "name": shard.name,
                "samples": shard.samples,
                "size_bytes": shard.size_bytes,
                "xxh3_64": shard.xxh3_64,
            }
            for shard in shards
        ],
        "index": {"name": INDEX_FILE, "xxh3_64": index_hash, "file_xxh3_64": index_file_hash},
        "fields": described,
        "source": {
            "files": origin.source["files"],
            "bytes": tally.source_bytes,
            **origin.source,
        },
        "counts": {
            "rejected": len(tally.rejected),
            "reencoded": dict(sorted(tally.changes.items())),
            "exif_oriented": tally.oriented,
            "stray_bytes": tally.stray_bytes,
            "multi_frame": tally.multi_frame,
        },
        "pack": options,
        "made_with": versions(masks=any(field.kind == "mask" for field in fields)),
    }
    info["fingerprint"] = fingerprint(info)
    info, data = with_self_checksum(info)
    with whole_file(journal.destination / DATASET_FILE, journal.folder) as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(OSError):  # a network's file system may let nobody set times
            os.utime(file.fileno(), ns=(origin.time_ns, origin.time_ns))
    return info


def _write_index(journal: Journal, shards: Sequence[ShardEntry]) -> tuple[str, str, str, Counter[int]]:
    """Strings the shards' records together; a shard's at a time, for the index may be larger than memory.

    Returns:
        The hash of the records, that of the whole file, that of all that does not depend on the storage, and samples
        by label.
    """
    labels: Counter[int] = Counter()
    digest, content = xxhash.xxh3_64(), xxhash.xxh3_64()
    head = index_head(sum(shard.samples for shard in shards))
    whole = xxhash.xxh3_64(head)
    with whole_file(journal.destination / INDEX_FILE, journal.folder) as file:
        file.write(head)
        for records in journal.records(len(shards)):
            data = records.tobytes()
            digest.update(data)
            whole.update(data)
            file.write(data)
            content.update(np.stack([records[name].astype(np.int64) for name in _CONTENT], axis=1).tobytes())
            found, counts = np.unique(records["label"], return_counts=True)
            labels.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
    return digest.hexdigest(), whole.hexdigest(), content.hexdigest(), labels


def index_head(samples: int) -> bytes:
    """What stands before the records in index.npy."""
    head = io.BytesIO()
    described = np.lib.format.dtype_to_descr(INDEX_DTYPE)
    np.lib.format.write_array_header_1_0(head, {"descr": described, "fortran_order": False, "shape": (samples,)})
    return head.getvalue()


def read_rejected(dataset: SourcePath) -> list[dict[str, str]]:
    """Path and reason of each source that was not packed, sorted by path."""
    try:
        return [json.loads(line) for line in (dataset / REJECTED_FILE).read_bytes().splitlines()]
    except FileNotFoundError:
        return []


def _write_rejected(journal: Journal, tally: Tally) -> None:
    final: Path = journal.destination / REJECTED_FILE
    if not tally.rejected:
        final.unlink(missing_ok=True)
        return
    with whole_file(final, journal.folder) as file:
        for path, reason in sorted(tally.rejected):
            entry = {"path": readable(path), "reason": reason}
            file.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
