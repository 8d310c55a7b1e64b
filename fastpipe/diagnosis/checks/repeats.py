"""The samples that workers and ranks read -> samples that several of them read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, product

from fastpipe.diagnosis.findings import Code, Finding
from fastpipe.diagnosis.inject.fastpipe_probe.checksums import checksum
from fastpipe.diagnosis.observation import Observation, Worker

# A part with fewer different values, such as a label, does not identify samples.
_MIN_DISTINCT = 16
# Fewer samples in common may be chance: a stream may repeat some.
_MIN_SHARED = 8


def check(observation: Observation) -> Iterator[Finding]:
    """Finds workers of a stream, or ranks that train together, that read the same samples."""
    if observation.facts["stream"]:
        yield from _check_streams(observation)
    else:
        yield from _check_ranks(observation)


def _check_streams(observation: Observation) -> Iterator[Finding]:
    """Compares the workers of this process with each other, then with those of the other ranks."""
    workers_by_start = _group_by_start(observation)
    ranks_by_start = [_group_by_start(rank) for rank in _list_other_ranks(observation)]
    for start, together in workers_by_start.items():
        for first, second in combinations(together, 2):
            shared, total = _count_shared(first.checksums, second.checksums)
            if shared:
                yield _report_same_stream_in_workers(
                    observation, first, second, shared, total
                )
                return
        elsewhere = [
            worker for rank in ranks_by_start for worker in rank.get(start, [])
        ]
        for first, second in product(together, elsewhere):
            shared, total = _count_shared(first.checksums, second.checksums)
            if shared:
                yield _report_same_stream_in_ranks(observation, shared, total)
                return


def _group_by_start(observation: Observation) -> dict[int, list[Worker]]:
    """Groups the workers that were started together: those of one epoch, if they do not persist."""
    start_count: Counter[int] = Counter()
    groups: dict[int, list[Worker]] = {}
    for worker in observation.workers:  # the starts of one number are in order
        start = start_count[worker.number]
        groups.setdefault(start, []).append(worker)
        start_count[worker.number] += 1
    return groups


def _report_same_stream_in_workers(
    observation: Observation, first: Worker, second: Worker, shared: int, total: int
) -> Finding:
    return Finding(
        Code.EVERY_SAMPLE_PER_WORKER,
        str(observation.facts["dataset_place"]),
        what=f"{shared:,} of the first {total:,} samples of worker {first.number} "
        f"came from worker {second.number}, too",
        why="each worker has a copy of the IterableDataset, and iterates over all of it, "
        "or divides another order of it",
        change="in __iter__: worker = torch.utils.data.get_worker_info(), and only "
        "samples[worker.id :: worker.num_workers] of an order that all workers have in common: "
        "divide first, then shuffle",
        section=9,
    )


def _report_same_stream_in_ranks(
    observation: Observation, shared: int, total: int
) -> Finding:
    return Finding(
        Code.EVERY_SAMPLE_PER_WORKER,
        str(observation.facts["dataset_place"]),
        what=f"{shared:,} of the first {total:,} samples of a worker came in another rank, too",
        why="each rank has a copy of the IterableDataset, "
        "and __iter__ does not leave out what other ranks read",
        change="in __iter__: only samples[rank * workers + worker.id :: world_size * workers], "
        "with get_rank() and get_world_size() of torch.distributed; "
        "ranks that hold parts of one model may read the same",
        section=9,
    )


def _check_ranks(observation: Observation) -> Iterator[Finding]:
    """Finds ranks that train together, each with all of the same samples."""
    whole = observation.facts["whole"]
    if whole == "":
        return
    alike = [
        rank for rank in _list_other_ranks(observation) if rank.facts["whole"] == whole
    ]
    if not alike:
        return
    length = observation.facts["length"]
    yield Finding(
        Code.EVERY_SAMPLE_PER_WORKER,
        observation.made_at,
        what=f"{1 + len(alike):,} ranks train together, "
        f"and each reads all {length:,} samples in each epoch",
        why="no sampler divides the samples between the ranks",
        change="sampler=torch.utils.data.DistributedSampler(dataset) in place of shuffle=, "
        "and sampler.set_epoch(epoch) in each epoch; "
        "ranks that hold parts of one model may read the same",
        section=9,
    )


def _list_other_ranks(observation: Observation) -> list[Observation]:
    """Lists the same DataLoader in the processes that train together with this one."""
    ranks = []
    for other in observation.others:
        epochs = [*observation.epochs, *other.epochs]
        if all(epoch.ranks > 1 for epoch in epochs):
            ranks.append(other)
    return ranks


def _count_shared(first: list[list[int]], second: list[list[int]]) -> tuple[int, int]:
    """Counts the first samples that two workers have in common, and all of the first.

    Returns (0, 0) if that may be chance.

    `first` and `second` have the checksums of each sample: of the whole, then of its first parts.
    """
    length = min(len(first), len(second))
    is_same_order = first[:length] == second[:length]
    # The same samples in the same order are no chance, if they are not all alike.
    different = {tuple(sums) for sums in first[:length]}
    if is_same_order and len(different) > 1:
        return length, length
    # In another order, compare the whole, then one part after the other. Only a part that differs
    # from sample to sample, such as a name, identifies samples; labels do not.
    counting_sums = [checksum(number) for number in range(_MIN_DISTINCT)]
    part_counts = [len(sums) for sums in [*first, *second]]
    part_count = min(part_counts, default=0)
    for part in range(part_count):
        first_sums = [sums[part] for sums in first]
        second_sums = [sums[part] for sums in second]
        # 0, 1, 2, ...: the worker counts its samples.
        is_count = first_sums[:_MIN_DISTINCT] == counting_sums
        if part > 0 and is_count:
            continue
        first_distinct = _take_distinct(first_sums)
        second_distinct = _take_distinct(second_sums)
        distinct_count = min(len(first_distinct), len(second_distinct))
        if distinct_count < _MIN_DISTINCT:
            continue
        shared = first_distinct & second_distinct
        if len(shared) >= _MIN_SHARED:
            return len(shared), len(first_distinct)
    return 0, 0


def _take_distinct(sums: list[int]) -> set[int]:
    """Returns the checksums before the first one that repeats."""
    distinct: set[int] = set()
    for value in sums:
        if value in distinct:
            break
        distinct.add(value)
    return distinct
