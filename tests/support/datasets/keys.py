"""A packed dataset -> the WebDataset keys of its samples."""

from __future__ import annotations

from pathlib import Path

from fastpipe.dataset.format.packed_index import PackedIndex


def key_of(dataset: Path | PackedIndex, sample: int) -> str:
    """The key that a sample has in its shard: the shard's number, and the block of the tar in which it begins."""
    index = dataset if isinstance(dataset, PackedIndex) else PackedIndex(dataset)
    record = index.records[sample]
    name = index.shards[int(record["shard"])].name
    return f"{name[len('shard-') : -len('.tar')]}-{(int(record['offset']) - 3 * 512) // 512:08d}"
