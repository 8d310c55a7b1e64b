"""Records in packing order -> what fields whose values must agree do to the cutting of shards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastpipe.errors import ImageError
from fastpipe.format.tar_writer import BLOCK, padded
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.spool.record import Record

_AGREEING = {"floats", "keypoints", "boxes", "classes"}

# Position, blocks, bytes of KEY.json and record of a sample.
Placed = tuple[int, int, int, Record]


def must_agree(kinds: Mapping[str, str]) -> bool:
    """Whether there are such fields."""
    return not _AGREEING.isdisjoint(kinds.values())


def agreed_blocks(agreement: Agreement, records: Iterable[Placed]) -> Iterator[tuple[int, int]]:
    """Position and blocks of samples that have others than their columns say: class names become numbers, and a sample
    that does not agree with those before it has none.
    """
    for position, blocks, note, record in records:
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


def states_at(agreement: Agreement, records: Iterable[Placed], edges: Iterable[int]) -> Iterator[dict[str, Any]]:
    """What is agreed before each edge, a position; `agreement` goes on to the last edge, and no further."""
    left = iter(edges)
    edge = next(left, None)
    for position, _, _, record in records:
        while edge == position:
            yield agreement.state()
            edge = next(left, None)
        if edge is None:
            return
        if record.reason is None:
            try:
                agreement.agree(record.gists)
            except ImageError:
                continue
    while edge is not None:
        yield agreement.state()
        edge = next(left, None)
