"""Tests of what is read ahead: exactly the bytes of the chunks to come, each once, in order, never beyond a shard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import fastpipe
from fastpipe.dataset.format.fields import Field
from fastpipe.dataset.format.layout import INDEX_FILE
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.engine.engine import Engine
from fastpipe.plan import byte_ranges, order
from fastpipe.plan.byte_ranges import MAX_RANGE_BYTES, RANGE_DTYPE, run_ranges, sample_ranges
from fastpipe.plan.order import EpochOrder, samples_per_chunk


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of two samples or so in windows of three, so that small datasets have many."""
    monkeypatch.setattr(order, "CHUNK_BYTES", 100_000)
    monkeypatch.setattr(order, "CHUNKS_PER_WINDOW", 3)
    monkeypatch.setattr(order, "CHUNKS_EARLY", 1)


def recorded(
    monkeypatch: pytest.MonkeyPatch, dataset: Path, **options: object
) -> list[tuple[NDArray[np.void], bool]]:
    """What a loader asks the engine to have read ahead in its first epoch."""
    asked: list[tuple[NDArray[np.void], bool]] = []

    def record(_: Engine, ranges: NDArray[np.void], *, restart: bool) -> None:
        asked.append((ranges.copy(), restart))

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "read_ahead", record)
        with fastpipe.loader(dataset, 3, size=16, num_workers=1, **options) as loader:  # type: ignore[arg-type]
            list(loader)
    return asked


def bytes_of(ranges: NDArray[np.void]) -> list[tuple[int, int, int]]:
    """(shard, first byte, byte after the last) of each range."""
    return [(int(r["shard"]), int(r["offset"]), int(r["offset"]) + int(r["size"])) for r in ranges]


def test_samples_give_their_bytes(many_shards: Path) -> None:
    records = PackedIndex(many_shards).read(np.array([5, 0, 9]))
    ranges = sample_ranges(records)
    assert ranges.dtype == RANGE_DTYPE
    for name in ("shard", "offset", "size"):
        assert ranges[name].tolist() == records[name].tolist()


@pytest.mark.parametrize("fields", [False, True])
def test_a_run_goes_from_its_first_sample_to_its_last_and_is_cut_where_a_shard_ends(
    many_shards: Path, fields: bool
) -> None:
    """Of samples with fields it goes on to the next sample."""
    index = PackedIndex(many_shards)
    if fields:
        index.fields = {"mask": Field("mask", "mask")}
    offsets, sizes = index.records["offset"].tolist(), index.records["size"].tolist()
    for first in range(len(index)):
        for stop in range(first + 1, len(index) + 1):
            expected = []
            for shard in np.unique(index.records["shard"][first:stop]).tolist():
                of_shard = np.flatnonzero(index.records["shard"] == shard)
                last = min(stop - 1, int(of_shard[-1]))
                end = offsets[last] + sizes[last]
                if fields:
                    end = (
                        index.shards[shard].size_bytes
                        if last == of_shard[-1]
                        else offsets[last + 1]
                    )
                expected.append((shard, offsets[max(first, int(of_shard[0]))], end))
            ranges = run_ranges(index, np.array([[first, stop]]))
            assert bytes_of(ranges) == expected
            assert all(end <= index.shards[shard].size_bytes for shard, _, end in expected)


def test_no_runs_give_no_ranges(many_shards: Path) -> None:
    assert len(run_ranges(PackedIndex(many_shards), np.empty((0, 2), dtype=np.int64))) == 0


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"shard": 77}, 0),
        ({"shard": 2**32 - 1}, 0),
        ({"offset": 2**64 - 1}, 1),  # of the last sample: as far as the shard goes
        ({"size": 2**32 - 1}, 1),
        ({"offset": 0, "size": 0}, 0),
    ],
    ids=str,
)
def test_damaged_records_never_lead_beyond_a_shard(
    flat: Path, copied: Callable[[Path], Path], changes: dict[str, int], left: int
) -> None:
    dataset = copied(flat)
    records = np.load(dataset / INDEX_FILE)
    for name, value in changes.items():
        records[name][9] = value
    np.save(dataset / INDEX_FILE, records)
    index = PackedIndex(dataset)
    ranges = run_ranges(index, np.array([[4, 10]]))
    assert len(ranges) == left
    assert all(end <= index.shards[shard].size_bytes for shard, _, end in bytes_of(ranges))
    assert (
        len(run_ranges(index, np.array([[4, 12]]))) == 1
    )  # a record in the middle is not looked at


def test_huge_samples_are_read_ahead_only_so_far(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = PackedIndex(flat)
    assert MAX_RANGE_BYTES < 2**28
    monkeypatch.setattr(byte_ranges, "MAX_RANGE_BYTES", 1000)
    runs = np.array([[0, len(index)]])
    assert run_ranges(index, runs)["size"].tolist() == [1000]
    assert run_ranges(index, runs)["offset"][0] == index.records["offset"][0]
    assert sample_ranges(index.read(np.arange(4)))["size"].max() <= 1000


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_asks_for_its_chunks_in_order_and_for_each_once(
    many_shards: Path, monkeypatch: pytest.MonkeyPatch, shuffle: bool
) -> None:
    index = PackedIndex(many_shards)
    asked = recorded(monkeypatch, many_shards, shuffle=shuffle, drop_last=False, seed=4)
    assert [restart for _, restart in asked] == [True] + [False] * 7
    first_batch = asked[0][0][:3]
    chunk = samples_per_chunk(len(index), index.jpeg_bytes)
    epoch = EpochOrder(len(index), chunk, seed=4, epoch=0, shuffle=shuffle)
    samples = epoch.take(0, len(index))
    assert bytes_of(first_batch) == bytes_of(sample_ranges(index.read(samples[:3])))
    chunks = np.concatenate([asked[0][0][3:], *(ranges for ranges, _ in asked[1:])])
    everything = epoch.reads(0, len(index), is_first=True)
    assert bytes_of(chunks) == bytes_of(run_ranges(index, everything))
    assert sum(len(ranges) > 0 for ranges, _ in asked) > 3, "it is spread over the epoch"
    covered = np.concatenate([np.arange(first, stop) for first, stop in everything])
    assert sorted(covered) == list(range(len(index)))
    if not shuffle:
        assert covered.tolist() == samples.tolist()
