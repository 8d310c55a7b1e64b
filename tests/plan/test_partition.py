"""Every sample goes to one rank, all ranks have as many batches, and the size of the world changes no global batch."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastpipe.plan.partition import Partition, Ranks


def positions_of(samples: int, batch_size: int, ranks: Ranks, drop_last: bool, sequences: int = 1):
    """For each batch: (samples that count, samples that do not) of one rank."""
    partition = Partition(
        samples, batch_size, drop_last=drop_last, ranks=ranks, sequences=sequences
    )
    firsts = {number: number * samples // sequences for number, _ in partition.sequences}
    found = []
    for number in range(partition.batches):
        share = partition.rank_rows(number)
        taken = [
            np.arange(firsts[sequence] + start, firsts[sequence] + stop)
            for sequence, start, stop in share.spans
        ]
        mine = np.concatenate(taken)[share.rows]
        found.append((mine[share.valid], mine[~share.valid]))
    return found


def world_of(
    samples: int,
    batch_size: int,
    world_size: int,
    drop_last: bool,
    nodes: int = 1,
    sequences: int = 1,
):
    return [
        positions_of(samples, batch_size, Ranks(rank, world_size, nodes), drop_last, sequences)
        for rank in range(world_size)
    ]


def check(
    samples: int,
    batch_size: int,
    world_size: int,
    drop_last: bool,
    nodes: int = 1,
    sequences: int = 1,
) -> None:
    world = world_of(samples, batch_size, world_size, drop_last, nodes, sequences)
    assert len({len(batches) for batches in world}) == 1
    for number in range(len(world[0])):
        sizes = {len(batches[number][0]) + len(batches[number][1]) for batches in world}
        assert len(sizes) == 1  # no rank waits for another's rows
        assert 1 <= sizes.pop() <= batch_size
    seen = Counter(int(one) for batches in world for valid, _ in batches for one in valid)
    assert set(seen.values()) <= {1}  # no sample twice
    tail = samples % (batch_size * world_size) if drop_last else 0
    assert len(seen) == samples - tail  # none lost but the tail
    repeats = [int(one) for batches in world for _, repeated in batches for one in repeated]
    assert all(0 <= one < samples for one in repeats)
    if drop_last:
        assert not repeats
    full = samples // (batch_size * world_size)
    assert not [one for batches in world for _, repeated in batches[:full] for one in repeated]


@settings(max_examples=80)
@given(st.integers(0, 4000), st.integers(1, 512), st.integers(1, 64), st.booleans())
@example(0, 1, 1, False)
@example(1, 1, 64, False)
@example(10_000, 1, 64, False)
@example(10_000, 512, 64, False)
@example(63, 1, 64, False)
@example(65, 1, 64, False)
@example(1, 512, 1, True)
def test_all_ranks_together_are_the_dataset(
    samples: int, batch_size: int, world_size: int, drop_last: bool
) -> None:
    check(samples, batch_size, world_size, drop_last)


@settings(max_examples=60)
@given(st.data(), st.booleans())
def test_nodes_together_are_the_dataset(data: st.DataObject, drop_last: bool) -> None:
    nodes, per_node, local = (
        data.draw(st.integers(1, 6)),
        data.draw(st.integers(1, 4)),
        data.draw(st.integers(1, 8)),
    )
    sequences, world_size = nodes * per_node, nodes * local
    batch_size = per_node * data.draw(
        st.integers(1, 12)
    )  # so that the sequences divide the global batch
    samples = data.draw(st.integers(sequences, 3000))
    check(samples, batch_size, world_size, drop_last, nodes, sequences)


@pytest.mark.parametrize("samples", [1, 8, 97, 640, 641, 1003])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("sequences", [1, 8])
def test_a_change_of_the_world_keeps_the_global_batches(
    samples: int, drop_last: bool, sequences: int
) -> None:
    """On one node of 1 to 64 ranks; and of 8 sequences, on 1, 2, 4 and 8 nodes of 1, 2 and 4 ranks."""

    def global_batches(nodes: int, local: int) -> list[list[int]]:
        world = world_of(samples, 64 // (nodes * local), nodes * local, drop_last, nodes, sequences)
        return [
            sorted(int(one) for batches in world for one in batches[n][0])
            for n in range(len(world[0]))
        ]

    if sequences == 1:
        worlds = [(1, local) for local in (2, 4, 8, 64)]
    elif samples < sequences:
        return
    else:
        worlds = list(itertools.product((1, 2, 4, 8), (1, 2, 4)))
    expected = global_batches(1, 1)
    for nodes, local in worlds:
        assert global_batches(nodes, local) == expected


def test_a_node_reads_its_own_part_only() -> None:
    samples, nodes, local = 1003, 4, 2
    world = world_of(samples, 8, nodes * local, False, nodes, nodes)
    for node in range(nodes):
        bounds = node * samples // nodes, (node + 1) * samples // nodes
        for rank in range(node * local, (node + 1) * local):
            for valid, repeated in world[rank]:
                for one in (*valid, *repeated):
                    assert bounds[0] <= one < bounds[1]


def test_one_rank_of_one_has_all_of_each_batch_in_order() -> None:
    (world,) = world_of(10, 4, 1, False)
    assert [valid.tolist() for valid, _ in world] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert not any(len(repeated) for _, repeated in world)
