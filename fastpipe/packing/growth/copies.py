"""The new shards of a dataset that grows -> what to know if it has some of their images already."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fastpipe.arrays import Bools, Int64s, Uint64s
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.sample_layout import key_hashes
from fastpipe.errors import format_count, readable
from fastpipe.packing.shard.entry import Entry
from fastpipe.sources.listing import Assumption, Source
from fastpipe.store.store import Store


def assumed_of_copies(
    index: PackedIndex,
    is_kept: Bools,
    entries: Iterable[Entry],
    store: Store,
    sources: Iterable[Source],
) -> list[Assumption]:
    """Says that images were added which the dataset has under other paths.

    Sources are known by their paths, so all images of a folder that has another name are new ones.
    If the folder is a class, they get a second label.

    Args:
        index: of the version that grows.
        is_kept: (n,) which of its samples stay.
        entries: of the new shards.
        store: that has the entries.
        sources: of the new shards.
    """
    has_image = np.array(index.records["width"]) > 0
    rows: Int64s = np.flatnonzero(is_kept & has_image)
    if not len(rows):
        return []
    hashes: Uint64s = np.array(index.records["xxh3_64"])[rows]
    order = np.argsort(hashes, kind="stable")
    sorted_hashes = hashes[order]

    num_copies = 0
    first_key = 0
    first_row = -1
    for entry in entries:
        records = entry.records(store)
        records = records[records["width"] > 0]
        positions = np.searchsorted(sorted_hashes, records["xxh3_64"])
        positions = np.minimum(positions, len(sorted_hashes) - 1)
        is_copy = sorted_hashes[positions] == records["xxh3_64"]
        if is_copy.any() and first_row < 0:
            first_key = int(records["key"][is_copy][0])
            first_row = int(rows[order[positions[is_copy][0]]])
        num_copies += int(is_copy.sum())
    if not num_copies:
        return []
    new_path = _path_of_key(first_key, sources)
    old_path = index.source_path_of(first_row)
    verb = "is" if num_copies == 1 else "are"
    return [
        Assumption(
            f"copies: {format_count(num_copies, 'image')} that {verb} added now {verb} in the dataset "
            f"already under another path, such as {new_path}, which is {old_path}. If files or "
            "folders were renamed, remove the samples of the old paths or of the new ones: fastpipe "
            "remove. To leave copies out when you add",
            "--by content",
        )
    ]


def _path_of_key(key: int, sources: Iterable[Source]) -> str:
    """The source path that has the hash `key`."""
    for source in sources:
        path = readable(source.path)
        if int(key_hashes([path])[0]) == key:
            return path
    return "another path"
