"""Mixed batches: each dataset's share in every batch, its own order without a gap, the same on any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpipe.plan.partition import MixedRows, Partition, Ranks, floor_sum, rows_of_mixture

WEIGHTS = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=9)


@given(st.integers(0, 300), st.integers(1, 50), st.integers(-100, 100), st.integers(-500, 500))
def test_floor_sum(count: int, divisor: int, factor: int, offset: int) -> None:
    assert floor_sum(count, divisor, factor, offset) == sum(
        (factor * i + offset) // divisor for i in range(count)
    )


@given(WEIGHTS, st.integers(1, 300), st.integers(0, 200), st.integers(0, 10**9))
def test_each_batch_has_each_datasets_share(
    weights: list[float], rows: int, batch: int, later: int
) -> None:
    mixed, shares = MixedRows(weights, rows), np.array(weights) / sum(weights)
    for number in (batch, later):
        before, after = np.array(mixed.before(number)), np.array(mixed.before(number + 1))
        counts = after - before
        assert counts.sum() == rows
        assert (np.abs(counts - rows * shares) <= 1 + 1e-6).all()
        # And over all batches before: the mean is exact.
        assert before.sum() == rows * number
        assert (np.abs(before - rows * shares * number) <= 25 + 1e-9 * number * rows).all()


def test_a_rare_dataset_comes_now_and_then() -> None:
    mixed = MixedRows([0.999, 0.001], 10)
    counts = np.diff([mixed.before(number)[1] for number in range(10_001)])
    assert set(counts.tolist()) == {0, 1}
    assert abs(int(counts.sum()) - 100) <= 2
    gaps = np.diff(np.flatnonzero(counts))
    assert gaps.min() > 30
    assert gaps.max() < 250


@settings(max_examples=30)
@given(
    WEIGHTS,
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 5),
    st.integers(0, 4),
    st.data(),
)
def test_ranks_and_nodes_deal_out_the_same_rows(
    weights: list[float], nodes: int, local: int, batches: int, epoch: int, data: st.DataObject
) -> None:
    """Each row of a global batch goes to one rank; `mine` agrees; epochs follow one another without a gap."""
    size = 32 // (nodes * local)
    begins = None
    for rank in range(nodes * local):
        ranks = Ranks(rank, nodes * local, nodes)
        partition, following = (
            Partition(
                32 * batches,
                size,
                drop_last=True,
                ranks=ranks,
                sequences=4,
                weights=weights,
                epoch=number,
                seed=1,
            )
            for number in (epoch, epoch + 1)
        )
        sizes = dict(partition.sequences)
        taken: dict[int, list[int]] = {sequence: [] for sequence in sizes}
        for number in range(batches):
            share = partition.rank_rows(number)
            assert len(share.rows) == size
            assert share.valid.all()
            rows = [
                (sequence, at) for sequence, start, stop in share.spans for at in range(start, stop)
            ]
            assert len(rows) == size * local
            for row in share.rows.tolist():
                taken[rows[row][0]].append(rows[row][1])
        for sequence, positions in taken.items():
            every = np.arange(sizes[sequence])
            assert every[partition.is_mine(sequence, every)].tolist() == sorted(positions)
            some = every[data.draw(st.integers(0, len(every))) :]
            mine = some[partition.is_mine(sequence, some)]
            assert mine.tolist() == [position for position in sorted(positions) if position in some]
        datasets = len(weights)
        assert [
            begin + sizes[partition.sequences[0][0] + number]
            for number, begin in enumerate(partition.begins[:datasets])
        ] == following.begins[:datasets]
        assert begins in (None, partition.begins)
        begins = partition.begins


@pytest.mark.parametrize(("size", "rows"), [("smallest", 1200), ("largest", 10000)])
def test_the_size_of_an_epoch(size: str, rows: int) -> None:
    """At 3 of 4, 900 samples last for 1,200 rows; at 1 of 4, 2,500 last for 10,000."""
    assert rows_of_mixture([3, 1], [900, 2500], 1, size) == rows
