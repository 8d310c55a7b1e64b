"""The step "plan": the sizes of all samples -> which of them each shard has, and where they lie in the spool files.

Note [a plan in columns]
The driver keeps 4 bytes a sample: the blocks that it takes in a shard, in packing order. Shards are cut by running sums
of these. The other columns are read part by part, and give the ranges of the spool files that a shard is made of, 28
bytes each. Only fields whose values must agree need the records themselves, one after the other: class names get their
numbers in packing order, and a sample with another width is rejected.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import xxhash

from fastpipe.errors import PackError
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.steps.agreed import Placed, agreed_blocks, must_agree, states_at
from fastpipe.packing.steps.convert_step import read_columns
from fastpipe.packing.steps.cut import cut, most_blocks
from fastpipe.packing.steps.job import PLAN_FILE, Job, Listed, Part, read_listed, read_parts, read_step
from fastpipe.packing.steps.ranges import RANGE, Ranges, ranges_of
from fastpipe.packing.steps.records import LEAST_LINES_BYTES, LINES_BYTES, records
from fastpipe.packing.steps.shard_plan import ShardPlan
from fastpipe.packing.steps.sources import Sources
from fastpipe.packing.steps.store import SpoolStore


@dataclass(frozen=True)
class Plan:
    """All shards of a pack.

    Attributes:
        stops: (S,) position after the last source of each shard.
        samples: (S,) of each shard.
        ranges: of each shard.
        states: of agreements; `state_of` names that before each shard.
        sources: that are packed.
    """

    stops: list[int]
    samples: list[int]
    ranges: Ranges
    states: list[dict[str, Any] | None]
    state_of: list[int]
    sources: Sources

    def __len__(self) -> int:
        return len(self.stops)

    def shards(self) -> Iterator[ShardPlan]:
        """The shards in order."""
        start = first = 0
        listed, files = self.sources.listed, [part.spool_file for part in self.sources.parts]
        for number, (stop, samples) in enumerate(zip(self.stops, self.samples, strict=True)):
            agreed = self.states[self.state_of[number]]
            runs = self.ranges.of(number, files)
            of = listed.kinds, listed.root, self.sources.digest_with_times(start, stop + 1)
            yield ShardPlan(number, start, stop, first, samples, runs, agreed, *of)
            start, first = stop, first + samples


def plan_step(job: Job) -> Plan:
    """Plans the shards and writes the plan down. Note [steps of a pack]

    Raises:
        PackError: a part is not converted, or the options are not those of the step "list".
    """
    store = job.store()
    listed, parts = job.check(read_listed(store)), read_parts(store)
    blocks = np.zeros(listed.files, np.uint32)
    for part in parts:
        rows = read_columns(store, part)
        blocks[rows["position"]] = rows["blocks"]
    most = most_blocks(job.options.shard_size)
    agrees = must_agree(listed.kinds)
    if agrees:
        for position, now in agreed_blocks(Agreement(listed.kinds), _in_order(store, parts, listed)):
            blocks[position] = now
    stops, samples = cut(blocks, most)
    states: list[dict[str, Any] | None] = [None]
    state_of = [0] * len(stops)
    if agrees:
        states, state_of = _states(store, parts, listed, stops)
    ranges = ranges_of((read_columns(store, part) for part in parts), stops)
    facts = {"stops": stops, "samples": samples, "states": states, "state_of": state_of, "ranges": len(ranges.rows)}
    facts["parts"] = _names(parts)
    head = json.dumps(facts, separators=(",", ":")).encode()
    store.write(PLAN_FILE, [head + b"\n", *(each.view(np.uint8).data for each in (ranges.ends, ranges.rows))])
    return Plan(stops, samples, ranges, states, state_of, Sources(listed, parts))


def read_plan(job: Job) -> Plan:
    """The plan as it was written down.

    Raises:
        PackError: there is none of the sources that are listed, or the options are not those of the step "list".
    """
    store = job.store()
    said = read_step(store, PLAN_FILE, "plan")
    head = said.index(b"\n") + 1
    facts = json.loads(said[:head])
    sources = Sources(job.check(read_listed(store)), read_parts(store))
    if facts.get("parts") != _names(sources.parts):
        raise PackError(
            f"{PLAN_FILE} in the spool is of sources that were listed before. Run --step convert for all parts, then "
            "--step plan"
        )
    stops = facts["stops"]
    ends = np.frombuffer(said, "<i8", len(stops), head)
    ranges = Ranges(np.frombuffer(said, RANGE, facts["ranges"], head + ends.nbytes), ends)
    return Plan(stops, facts["samples"], ranges, facts["states"], facts["state_of"], sources)


def _names(parts: Sequence[Part]) -> str:
    """Names the state of the sources, and what they are made with."""
    return xxhash.xxh3_64_hexdigest("\n".join(part.name for part in parts).encode())


def _in_order(store: SpoolStore, parts: Sequence[Part], listed: Listed) -> Iterator[Placed]:
    if not listed.kind:  # parts are runs in packing order
        return chain.from_iterable(records(store, part, LINES_BYTES) for part in parts)
    buffer_bytes = max(LINES_BYTES // max(len(parts), 1), LEAST_LINES_BYTES)
    return heapq.merge(*(records(store, part, buffer_bytes) for part in parts), key=lambda each: each[0])


def _states(
    store: SpoolStore, parts: Sequence[Part], listed: Listed, stops: Sequence[int]
) -> tuple[list[dict[str, Any] | None], list[int]]:
    """What is agreed before each shard: the different states, and which of them."""
    states: list[dict[str, Any] | None] = []
    state_of = []
    for state in states_at(Agreement(listed.kinds), _in_order(store, parts, listed), [0, *stops[:-1]]):
        if not states or state != states[-1]:
            states.append(state)
        state_of.append(len(states) - 1)
    return states, state_of
