"""The records of a spool file, beside the columns of its part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fastpipe.errors import PackError
from fastpipe.packing.spool.record import Record
from fastpipe.packing.steps.convert_step import read_columns
from fastpipe.packing.steps.job import Part
from fastpipe.packing.steps.store import SpoolStore

LINES_BYTES, LEAST_LINES_BYTES = 64 << 20, 1 << 16  # read at once


def records(store: SpoolStore, part: Part, buffer_bytes: int) -> Iterator[tuple[int, int, int, Record]]:
    """Position, blocks, bytes of KEY.json and record of each sample of a part."""
    columns = read_columns(store, part)
    at = int(columns["blob"].sum())
    end = at + int(columns["line"].sum(dtype=np.int64))
    rest = b""
    rows = iter(columns[["position", "blocks", "note"]].tolist())
    while at < end:
        piece = store.read_at(part.spool_file, at, min(buffer_bytes, end - at))
        at += len(piece) or end
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


def rejected_sources(store: SpoolStore, parts: Sequence[Part], most: int) -> list[tuple[str, str]]:
    """Path and reason of the first sources that were rejected."""
    found: list[tuple[str, str]] = []
    for part in parts:
        for _, _, _, record in records(store, part, LEAST_LINES_BYTES):
            if record.reason is not None and len(found) < most:
                found.append((record.name, record.reason))
        if len(found) >= most:
            break
    return found
