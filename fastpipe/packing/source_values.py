"""A sample of a tar -> the values of its fields, read from its members and checked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from fastpipe.errors import ImageError
from fastpipe.format.fields import MOST_VALUE_BYTES
from fastpipe.packing.fields.values import take
from fastpipe.packing.source.kinds import read_source
from fastpipe.packing.source.listing import Listing, Source, SourceField


def read_values(listing: Listing, source: Source) -> list[tuple[str, str, Any]]:
    """Name, kind and value of each field of a sample; None where it has none.

    Raises:
        ImageError: a value cannot be; the message is the reason.
        PackError: the tar cannot be read, or has changed.
    """
    notes: dict[tuple[int, int], Any] = {}  # one member may hold the values of several fields
    found = []
    for field, part in zip(listing.fields, source.parts, strict=True):
        try:
            found.append((field.name, field.kind, _value(listing, source, field, part, notes)))
        except ImageError as problem:
            raise ImageError(f"field {field.name}: {problem}") from None
    return found


def _value(
    listing: Listing,
    source: Source,
    field: SourceField,
    part: tuple[int, int] | None,
    notes: dict[tuple[int, int], Any],
) -> Any:
    if part is None:
        return take(field.kind, None) if field.kind not in ("mask", "image") else None
    offset, size = part
    if size > MOST_VALUE_BYTES:  # before it is read
        raise ImageError(f"expected at most {MOST_VALUE_BYTES:,} bytes, got {size:,}")
    if field.in_note:
        if part not in notes:
            notes[part] = _parsed(_read(listing, source, offset, size))
        note = notes[part]
        value = note.get(field.name) if isinstance(note, dict) else None
        if field.names and isinstance(value, list):
            value = [field.names[number] for number in value]
        return take(field.kind, value)
    data = _read(listing, source, offset, size)
    if field.kind == "text":
        return take("text", _text(data))
    if field.kind == "json":
        return take("json", _parsed(data))
    return data


def _read(listing: Listing, source: Source, offset: int, size: int) -> bytes:
    return read_source(listing.root, replace(source, offset_bytes=offset, size_bytes=size))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        raise ImageError(f"expected UTF-8, got a byte {data[problem.start]:#04x} at byte {problem.start}") from None


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(_text(data))
    except (ValueError, RecursionError) as problem:
        raise ImageError(f"expected JSON ({problem}), got {data[:40]!r}") from None
