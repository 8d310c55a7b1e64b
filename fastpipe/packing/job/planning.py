"""A listing -> the plan of its pack, and the sources of each shard by its entry's name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing

import xxhash

from fastpipe.dataset.format.layout import FORMAT_VERSION
from fastpipe.packing.pipeline.converting import convert_sources
from fastpipe.packing.shard.entry import entry_name
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import (
    Outcome,
    Outcomes,
    Plan,
    ShardSlice,
    cut_into_slices,
    plan_shards,
)
from fastpipe.sources.listing import Listing, Source
from fastpipe.sources.picture.jpeg import made_with

# Where values of a field are rare, thousands of sources are converted for the plan.
_MAX_KEPT_BYTES = 64 << 20


def plan_pack(
    listing: Listing,
    options: PackOptions,
    known_outcomes: dict[str, Outcome] | None = None,
    weight: int | None = None,
) -> Plan:
    """The plan of a pack.

    Args:
        listing: the sources.
        options: of the pack.
        known_outcomes: gets what became of the first sources that are converted for the plan, by
            their path.
        weight: see `plan_shards`.
    """
    room_bytes = _MAX_KEPT_BYTES

    def convert(few: Sequence[Source]) -> Outcomes:
        nonlocal room_bytes
        with closing(convert_sources(listing, few, options)) as outcomes:
            for source, outcome in outcomes:
                if known_outcomes is not None and room_bytes > 0:
                    known_outcomes[source.path] = outcome
                    room_bytes -= source.size_bytes
                yield source, outcome

    return plan_shards(
        listing, options.shard_size, convert, shuffle=options.shuffle, weight=weight
    )


def name_slices(
    listing: Listing, options: PackOptions, plan: Plan
) -> dict[str, ShardSlice]:
    """The sources of each shard, by the name of its entry, which hashes all that decides it."""
    # `step` is not among it: it decides only which sources a shard has.
    shaping = options.shaping(listing.kinds)
    deciding = [FORMAT_VERSION, shaping, made_with(), *plan[1:]]
    deciding_hash = xxhash.xxh3_128_hexdigest(
        json.dumps(deciding, sort_keys=True).encode()
    )
    slices = {}
    for shard_slice in cut_into_slices(
        listing, plan.step, options.seed, shuffle=options.shuffle
    ):
        digest = listing.state_digest(shard_slice.start, shard_slice.stop)
        state = f"{deciding_hash} {digest}"
        state_hash = xxhash.xxh3_64_hexdigest(state.encode())
        slices[entry_name(shard_slice.number, state_hash)] = shard_slice
    return slices
