"""A source that is added again -> what to know if files of it are gone since they were packed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastpipe.arrays import Bools, Int64s
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.sample_layout import key_hashes
from fastpipe.errors import format_count, readable
from fastpipe.packing.growth.version import Version, find_packs
from fastpipe.packing.job.removal import removal_of_missing
from fastpipe.sources.listing import Assumption, Listing
from fastpipe.sources.tables.tables import TableListing

# Of the samples of a pack: if fewer are in the source, it was packed from another one.
_SHARE_OF_SAME_SOURCE = 0.5
# So many files that the source does not list are looked for in its folder.
_FEW_FILES = 16
# Options that choose which images of a source are packed.
_CHOOSING_OPTIONS = ("format", "split", "split_list", "unlisted")


def assumed_of_missing_files(
    version: Version, listing: Listing, is_missing: Bools, copied_rows: Int64s
) -> list[Assumption]:
    """Says that samples of this source stay, though their files are not in it any more.

    Args:
        version: that grows.
        listing: all sources.
        is_missing: (n,) which samples of the version stay, though they are missing: find_missing.
        copied_rows: samples whose picture is in the source under another path.
    """
    index = version.index
    # The same picture may lie in several samples.
    hashes = np.array(index.records["xxh3_64"])
    is_missing = is_missing & ~np.isin(hashes, hashes[copied_rows])
    rows = np.flatnonzero(is_missing).tolist()
    if not rows or _is_any_there(index, rows, listing):
        return []
    samples = format_count(len(rows), "sample")
    if len(rows) == 1:
        verb, pronoun = "is", "it stays. To remove it"
    else:
        verb, pronoun = "are", "they stay. To remove them"
    removal = removal_of_missing(index, rows, listing.root)
    return [
        Assumption(
            f"{samples} {verb} not in {readable(str(listing.root))} any more, such as "
            f"{index.source_path_of(rows[0])}; {pronoun}: {removal}"
        )
    ]


def find_missing(version: Version, listing: Listing) -> Bools:
    """(n,) which samples were packed from this source, and are not in it now.

    Paths do not say of which source a sample is. So a pack is taken for one of this source if most
    of its samples are in it.
    """
    index = version.index
    listed = key_hashes(readable(source.path) for source in listing.sources)
    is_listed = np.isin(np.array(index.records["key"]), listed)
    given = version.options.source.recorded()
    packs = find_packs(index.info, [shard.name for shard in index.shards])
    # Rows of the samples by the version of the pack that has made them.
    rows_of_pack: dict[int, list[Int64s]] = {}
    pack_of_version = {}
    start = 0
    for shard, pack in zip(index.shards, packs, strict=True):
        stop = start + shard.samples
        rows_of_pack.setdefault(pack["version"], []).append(np.arange(start, stop))
        pack_of_version[pack["version"]] = pack
        start = stop

    is_missing = np.zeros(len(index), np.bool_)
    for number, runs in rows_of_pack.items():
        rows = np.concatenate(runs)
        is_same_source = is_listed[rows].mean() >= _SHARE_OF_SAME_SOURCE
        if is_same_source and _chooses_the_same(pack_of_version[number], given):
            is_missing[rows] = ~is_listed[rows]
    return is_missing


def _chooses_the_same(pack: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether a pack chose the images of its source as `given`, the recorded options, does."""
    recorded = pack["options"].get("source", {})
    return all(recorded.get(name) == given.get(name) for name in _CHOOSING_OPTIONS)


def _is_any_there(index: PackedIndex, rows: list[int], listing: Listing) -> bool:
    """Whether one of the files is in the folder of the source, and is left out for a reason."""
    root = listing.root
    # The rows of a table may be gone while the images are there.
    if isinstance(listing, TableListing) or not isinstance(root, Path):
        return False
    paths = [index.source_path_of(row) for row in rows[:_FEW_FILES]]
    return any((root / path).exists() for path in paths)
