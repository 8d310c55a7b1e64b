"""The step "plan": the sizes of all samples -> which of them each shard has, and where they lie in the spool files.

Note [a plan in columns]
The driver keeps 4 bytes a sample: the blocks that it takes in a shard, in packing order. Shards are cut by running sums
of these. The other columns are read part by part, and give the ranges of the spool files that a shard is made of, 28
bytes each. Only
fields whose values must agree need the records themselves, one after the other: class names get their numbers in
packing order, and a sample with another width is rejected.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError, PackError
from fastpipe.format.tar_writer import BLOCK, RECORD, padded
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.spool.record import Record
from fastpipe.packing.steps.convert_step import read_columns
from fastpipe.packing.steps.job import PLAN_FILE, Job, Listed, Part, read_listed, read_parts, read_step
from fastpipe.packing.steps.ranges import RANGE, Ranges, ranges_of
from fastpipe.packing.steps.store import SpoolStore

_AGREEING = {"floats", "keypoints", "boxes", "classes"}
_WINDOW = 1 << 12  # samples that are summed at once
_LINES_BYTES, _LEAST_LINES_BYTES = 64 << 20, 1 << 16  # read at once


class Range(NamedTuple):
    """A run of samples in a spool file.

    Attributes:
        file: of the spool.
        line_at, line_bytes: of their records.
        blob_at: where their blobs begin.
    """

    file: str
    line_at: int
    line_bytes: int
    blob_at: int


class ShardPlan(NamedTuple):
    """A shard that is to be made.

    Attributes:
        number: of it.
        start, stop: positions of its sources in packing order, those that are rejected included.
        first_sample, samples: of the dataset.
        ranges: where they are.
        agreed: `Agreement.state` before it; None: nothing must agree.
        kinds: name -> kind of the fields.
        root: of the sources, for messages.
    """

    number: int
    start: int
    stop: int
    first_sample: int
    samples: int
    ranges: tuple[Range, ...]
    agreed: dict[str, Any] | None
    kinds: dict[str, str]
    root: str


@dataclass(frozen=True)
class Plan:
    """All shards of a pack.

    Attributes:
        stops: (S,) position after the last source of each shard.
        samples: (S,) of each shard.
        ranges: of each shard.
        files: the spool file of each part.
        states: of agreements; `state_of` names that before each shard.
        listed: the facts of the sources.
    """

    stops: list[int]
    samples: list[int]
    ranges: Ranges
    files: list[str]
    states: list[dict[str, Any] | None]
    state_of: list[int]
    listed: Listed

    def __len__(self) -> int:
        return len(self.stops)

    def shards(self) -> Iterator[ShardPlan]:
        """The shards in order."""
        start = first = 0
        kinds, root = self.listed.kinds, self.listed.root
        for number, (stop, samples) in enumerate(zip(self.stops, self.samples, strict=True)):
            state = self.states[self.state_of[number]]
            runs = tuple(Range(self.files[part], *rest) for part, *rest in self.ranges.of(number).tolist())
            yield ShardPlan(number, start, stop, first, samples, runs, state, kinds, root)
            start, first = stop, first + samples


def plan_step(job: Job) -> Plan:
    """Plans the shards and writes the plan down. Note [steps of a pack]

    Raises:
        PackError: a part is not converted.
    """
    store = job.store()
    listed, parts = read_listed(store), read_parts(store)
    blocks = np.zeros(listed.files, np.uint32)
    for part in parts:
        rows = read_columns(store, part).rows
        blocks[rows["position"]] = rows["blocks"]
    states: list[dict[str, Any] | None] = [None]
    most = most_blocks(job.options.shard_size)
    if _AGREEING & set(listed.kinds.values()):
        for position, now in _agreed_blocks(store, parts, listed):
            blocks[position] = now
        stops, samples = cut(blocks, most)
        states, state_of = _states(store, parts, listed, stops)
    else:
        stops, samples = cut(blocks, most)
        state_of = [0] * len(stops)
    ranges = ranges_of((read_columns(store, part) for part in parts), stops)
    facts = {"stops": stops, "samples": samples, "states": states, "state_of": state_of, "ranges": len(ranges.rows)}
    head = json.dumps(facts, separators=(",", ":")).encode()
    store.write(PLAN_FILE, [head + b"\n", *(each.view(np.uint8).data for each in (ranges.ends, ranges.rows))])
    return Plan(stops, samples, ranges, [part.spool_file for part in parts], states, state_of, listed)


def read_plan(job: Job) -> Plan:
    """The plan as it was written down.

    Raises:
        PackError: there is none.
    """
    store = job.store()
    said = read_step(store, PLAN_FILE, "plan")
    head = said.index(b"\n") + 1
    facts = json.loads(said[:head])
    stops = facts["stops"]
    ends = np.frombuffer(said, "<i8", len(stops), head)
    ranges = Ranges(np.frombuffer(said, RANGE, facts["ranges"], head + ends.nbytes), ends)
    files = [part.spool_file for part in read_parts(store)]
    return Plan(stops, facts["samples"], ranges, files, facts["states"], facts["state_of"], read_listed(store))


def most_blocks(shard_size: int) -> int:
    """How many blocks of samples fit into a shard; see ShardWriter.add."""
    return (shard_size // RECORD * RECORD - 2 * BLOCK) // BLOCK


def cut(blocks: NDArray[np.uint32], most: int) -> tuple[list[int], list[int]]:
    """Cuts samples into shards: each takes what fits, and a sample that is larger gets a shard of its own.

    Args:
        blocks: (N,) of each sample in packing order; 0: it is rejected, and belongs to the shard before it.
        most: of a shard.

    Returns:
        For each shard the position after its last source, and its samples.
    """
    stops: list[int] = []
    samples: list[int] = []
    start = 0
    while start < len(blocks):
        stop, count = _fill(blocks, start, most)
        if count:
            stops.append(stop)
            samples.append(count)
        start = stop
    return stops, samples


def _fill(blocks: NDArray[np.uint32], start: int, most: int) -> tuple[int, int]:
    """The end of the shard that begins at `start`, and its samples."""
    total = count = 0
    at = start
    while at < len(blocks):
        window = blocks[at : at + _WINDOW]
        sums = total + np.cumsum(window, dtype=np.int64)
        # Samples of no blocks, which are rejected, fit always.
        fits = int(np.searchsorted(sums, most, side="right")) if total <= most else _empty_run(window)
        if not count and fits < len(window) and not window[:fits].any():
            fits += 1  # an empty shard takes any sample
            fits += _empty_run(window[fits:])
        count += int(np.count_nonzero(window[:fits]))
        if fits < len(window):
            return at + fits, count
        total = int(sums[-1])
        at += len(window)
    return at, count


def _empty_run(window: NDArray[np.uint32]) -> int:
    """How many samples at its start are rejected."""
    found = np.flatnonzero(window)
    return int(found[0]) if len(found) else len(window)


def _records(store: SpoolStore, part: Part, buffer_bytes: int) -> Iterator[tuple[int, int, int, Record]]:
    """Position, blocks, bytes of KEY.json and record of each sample of a part."""
    columns = read_columns(store, part)
    at = columns.records_at
    rest = b""
    rows = iter(columns.rows[["position", "blocks", "note"]].tolist())
    while at < columns.blobs_at:
        piece = store.read_at(part.spool_file, at, min(buffer_bytes, columns.blobs_at - at))
        at += len(piece) or columns.blobs_at
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        for line in lines:
            yield (*next(rows), record_of_line(line, part.spool_file))


def record_of_line(line: bytes, file: str) -> Record:
    """A record of a spool file.

    Raises:
        PackError: it is none.
    """
    try:
        return Record.of_line(line)
    except (TypeError, ValueError, RecursionError) as problem:
        raise PackError(
            f"{file} in the spool has changed since it was written: {problem}. Remove it and the .columns of the "
            "same name, then run the same command again: it is made anew"
        ) from problem


def _in_order(store: SpoolStore, parts: Sequence[Part], listed: Listed) -> Iterator[tuple[int, int, int, Record]]:
    if not listed.kind:  # parts are runs in packing order
        return chain.from_iterable(_records(store, part, _LINES_BYTES) for part in parts)
    buffer_bytes = max(_LINES_BYTES // max(len(parts), 1), _LEAST_LINES_BYTES)
    return heapq.merge(*(_records(store, part, buffer_bytes) for part in parts), key=lambda each: each[0])


def _agreed_blocks(store: SpoolStore, parts: Sequence[Part], listed: Listed) -> Iterator[tuple[int, int]]:
    """Position and blocks of samples that have others than their columns say: class names become numbers, and a sample
    that does not agree with those before it has none.
    """
    agreement = Agreement(listed.kinds)
    for position, blocks, note, record in _in_order(store, parts, listed):
        if record.reason is not None:
            continue
        try:
            numbers = agreement.agree(record.gists)
        except ImageError:
            yield position, 0
            continue
        now = note
        for (_, was), of in zip(record.values, numbers, strict=True):
            if of is not None:
                now += len(json.dumps(of)) - (was or 0)
        if now != note:
            yield position, blocks + (padded(now, BLOCK) - padded(note, BLOCK)) // BLOCK


def _states(
    store: SpoolStore, parts: Sequence[Part], listed: Listed, stops: Sequence[int]
) -> tuple[list[dict[str, Any] | None], list[int]]:
    """What is agreed before each shard: the different states, and which of them."""
    agreement = Agreement(listed.kinds)
    states: list[dict[str, Any] | None] = [agreement.state()]
    state_of = [0]
    ends = set(stops[:-1])
    for position, _, _, record in _in_order(store, parts, listed):
        if position in ends:
            state = agreement.state()
            if state != states[-1]:
                states.append(state)
            state_of.append(len(states) - 1)
        if record.reason is None:
            try:
                agreement.agree(record.gists)
            except ImageError:
                continue
    return states, state_of


def rejected_sources(store: SpoolStore, parts: Sequence[Part], most: int) -> list[tuple[str, str]]:
    """Path and reason of the first sources that were rejected."""
    found: list[tuple[str, str]] = []
    for part in parts:
        for _, _, _, record in _records(store, part, _LEAST_LINES_BYTES):
            if record.reason is not None and len(found) < most:
                found.append((record.name, record.reason))
        if len(found) >= most:
            break
    return found
