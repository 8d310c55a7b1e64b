"""Runs of sources -> finished shards, whoever makes them: threads here, tasks of a cluster, or a repair."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import xxhash

from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.shard.entry import Entry, entry_name
from fastpipe.packing.shard.maker import Making, ShardMaker
from fastpipe.packing.shard.plan import Plan, Run
from fastpipe.packing.source.listing import Listing, Source
from fastpipe.store.store import Store

Outcome = tuple[Source, Packed | str]


def entries_of(listing: Listing, runs: Iterable[Run], made_with: Any) -> dict[str, Run]:
    """The name of each run's entry, which names the state of its sources and all that decides bytes."""
    how = xxhash.xxh3_128_hexdigest(json.dumps(made_with, sort_keys=True).encode())
    found = {}
    for run in runs:
        state = listing.digest_with_times(run.start, run.stop)
        found[entry_name(run.number, xxhash.xxh3_64_hexdigest(f"{how} {state}".encode()))] = run
    return found


def making(
    store: Store,
    listing: Listing,
    plan: Plan,
    stride: int,
    shard_size: int,
    *,
    fail_fast: bool = False,
    make_way: Callable[[], None] = lambda: None,
) -> Making:
    """What the making of all shards of a plan has in common; `stride` as of `stride_of`, the others as in Making."""
    kinds = list(listing.kinds)
    return Making(
        store,
        shard_size,
        stride,
        plan.kinds or listing.kinds,
        plan.agreed,
        fail_fast,
        listing.root,
        plan.base,
        tuple(map(kinds.index, plan.kinds or ())),
        make_way if not plan.base else lambda: None,
    )


def make_shards(
    how: Making,
    runs: Sequence[tuple[str, Run]],
    outcomes: Iterator[Outcome],
    told: Callable[[Source, Packed | str], None] = lambda *_: None,
) -> Iterator[Entry]:
    """Makes shards, each a pure function of its sources.

    A shard is brought to the disk, or to the bucket, while the next one is made.

    Args:
        how: what they have in common.
        runs: the name of the entry and the sources of each.
        outcomes: what became of the sources of all runs, in order.
        told: called with each source and what became of it.

    Yields:
        The finished shards, in order.

    Raises:
        PackError: the disk refuses, or a sample cannot be packed and that has to stop the pack.
    """
    maker: ShardMaker | None = None
    finishing: Future[Entry] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="fastpipe-finish") as finisher:
        try:
            for name, run in runs:
                maker = ShardMaker(how, run.number, name)
                for _ in range(run.start, run.stop):
                    source, outcome = next(outcomes)
                    maker.add(source.path, source.label, source.size_bytes, outcome)
                    told(source, outcome)
                last, finishing = finishing, None
                if last is not None:
                    yield last.result()
                finishing, maker = finisher.submit(maker.finish), None
            if finishing is not None:
                last, finishing = finishing, None
                yield last.result()
        except BaseException:
            how.store.close()  # an upload may take long
            raise
        finally:
            if maker is not None:
                maker.discard()
            if finishing is not None:
                finishing.exception()
