"""A sample of a tar or a row -> the values of its fields, read from members or notes and files, and checked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from fastpipe.errors import ImageError
from fastpipe.format.fields import MOST_VALUE_BYTES
from fastpipe.format.layout import MAX_SAMPLE_BYTES
from fastpipe.packing.fields.mask import draw_shapes
from fastpipe.packing.fields.values import clamped, of_field, take
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.source.listing import Listing, Note, Source, SourceField
from fastpipe.packing.source.reading import read_as_listed, read_source

_Values = list[tuple[str, str, Any]]


def read_values(listing: Listing, source: Source, picture: Packed) -> _Values:
    """Name, kind and value of each field of a sample, which has this picture; None where it has none.

    Raises:
        ImageError: a value cannot be; the message is the reason.
        OSError: a file cannot be read.
        PackError: the tar cannot be read, or it or a file has changed.
    """
    if source.note is not None:
        return _row_values(listing, source.note, picture)
    if not source.parts:
        return []
    notes: dict[tuple[int, int], Any] = {}  # one member may hold the values of several fields
    found = []
    for field, part in zip(listing.fields, source.parts, strict=True):
        with of_field(field.name):
            found.append((field.name, field.kind, _value(listing, source, field, part, notes)))
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
        if field.names and field.kind == "classes" and isinstance(value, list):
            value = [each if isinstance(each, str) else field.names[each] for each in value]
        return take(field.kind, value)
    data = _read(listing, source, offset, size)
    if field.kind == "text":
        return take("text", _text(data))
    if field.kind == "json":
        return take("json", _parsed(data))
    return data


def _row_values(listing: Listing, note: Note, picture: Packed) -> _Values:
    """The same for a row. `note` has the size of its image, if it is known, its values, and the times of files."""
    assert listing.notes is not None  # a listing of rows has them
    size, values, times = json.loads(listing.notes.read(note.offset_bytes, note.size_bytes))
    if size is not None and tuple(size) != picture.source_size:
        turned = f", and an EXIF orientation of {picture.orientation}" if picture.orientation != 1 else ""
        raise ImageError(
            f"expected {size[0]} x {size[1]} pixels, as its annotations say; got {picture.source_size[0]} x "
            f"{picture.source_size[1]}{turned}"
        )
    found = []
    for field in listing.fields:
        with of_field(field.name):
            value = _row_value(listing, field, values.get(field.name), times.get(field.name), picture)
        found.append((field.name, field.kind, value))
    return found


def _row_value(listing: Listing, field: SourceField, value: Any, mtime_ns: int | None, picture: Packed) -> Any:
    width, height = picture.source_size
    if value is None and field.kind in ("mask", "image"):
        return None
    if field.kind == "mask" and "shapes" in value:
        return draw_shapes(value["shapes"], width, height)
    if field.kind in ("mask", "image"):
        if value["size_bytes"] > MAX_SAMPLE_BYTES:  # before it is read
            raise ImageError(f"expected at most {MAX_SAMPLE_BYTES:,} bytes, got {value['size_bytes']:,}")
        return read_as_listed(listing.root, value["file"], value["size_bytes"], mtime_ns or 0)
    if field.kind == "boxes" and isinstance(value, dict) and "shares" in value:  # of width and height, as YOLO has them
        scale = (width, height, width, height)
        boxes = [[share * side for share, side in zip(box, scale, strict=True)] for box in value["shares"]]
        value = {"boxes": boxes, "labels": value["labels"]}
    taken = take(field.kind, value)
    return clamped(taken, width, height) if field.kind == "boxes" and taken is not None else taken


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
