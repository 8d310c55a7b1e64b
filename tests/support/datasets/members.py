"""A packed dataset -> the names of its samples in the tars."""

from __future__ import annotations

from pathlib import Path

from fastpipe.dataset.format.packed_index import PackedIndex


def member_of(dataset: Path | PackedIndex, sample: int) -> str:
    """A sample's name in its tar, without an ending: the shard's number, and the block in which it begins."""
    index = dataset if isinstance(dataset, PackedIndex) else PackedIndex(dataset)
    record = index.records[sample]
    name = index.shards[int(record["shard"])].name
    return f"{name[len('shard-') : -len('.tar')]}-{(int(record['offset']) - 3 * 512) // 512:08d}"
