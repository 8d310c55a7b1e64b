"""Files in packing order, or rows in the order of their tables -> packed images, converted in advance by threads."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.format.fields import MOST_VALUE_BYTES
from fastpipe.format.layout import MAX_SAMPLE_BYTES
from fastpipe.format.open_file import FileState, changed
from fastpipe.format.sample_layout import identity_of
from fastpipe.packing.fields.mask import draw_shapes
from fastpipe.packing.fields.placement import Frame, Size, frame_by_size, size_in, sizes_of
from fastpipe.packing.fields.stored import FieldValues
from fastpipe.packing.fields.values import clamped, of_field, refuse_long, take
from fastpipe.packing.pipeline.ahead import Ahead, read_ahead
from fastpipe.packing.pipeline.given import Given
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Outcome, Outcomes
from fastpipe.sources.class_names import renumbered
from fastpipe.sources.column_kinds import field_value, json_value
from fastpipe.sources.files import SourcePath, read_as_listed
from fastpipe.sources.listing import (
    LARGE_BYTES,
    OF_THE_FILE,
    START_BYTES,
    STORED,
    ByteRange,
    Listing,
    Source,
    SourceField,
    expect,
    read_source,
)
from fastpipe.sources.picture import mask_file
from fastpipe.sources.picture.convert import EncodeOptions, Packed, convert
from fastpipe.sources.picture.pillow import OpenedImage
from fastpipe.sources.picture.probe import image_format
from fastpipe.sources.tables import TableListing, needed_groups, open_table

if TYPE_CHECKING:
    from fastpipe.sources.parquet_arrow import Cells


def converted(
    listing: Listing, sources: Iterable[Source], options: PackOptions, known: dict[str, Outcome] | None = None
) -> Outcomes:
    """Converts sources in threads, files in order, rows in that of their tables, with the sizes of images."""
    there, own = known or {}, None if isinstance(listing.root, Path) else listing.root.apart()
    listing = listing if own is None else replace(listing, root=own)
    of = options.encode, listing.kinds, listing.classes
    asked = options.source.coordinates
    unsaid = Frame(asked or listing.coordinates, asked is not None or listing.coordinates == STORED)

    def of_file(source: Source) -> Outcome:
        if source.path in there:
            return there.pop(source.path)
        name, read = str(listing.root / source.file_path), partial(_read, listing.root, source)
        return convert_sample(source, name, read, partial(values_of, listing, source, unsaid), *of, source.identity)

    def of_row(row: _Row) -> Outcome:
        name, read = str(listing.root / row.source.path), partial(_image_of, row)
        return convert_sample(row.source, name, read, lambda _: (unsaid, _row_values(row, listing.fields)), *of)

    with contextlib.ExitStack() as stack:
        if isinstance(listing, TableListing):
            rows = stack.enter_context(contextlib.closing(read_ahead(_rows(listing, sources), _size_bytes)))
            ahead: Ahead[Any, Outcome] = Ahead(of_row, options.threads, _size_bytes)
            found: Iterator[tuple[Source, Outcome]] = ((row.source, outcome) for row, outcome in ahead.each(rows))
        else:
            hooks = () if own is None else (partial(expect, own), lambda run: own.objects.forget(id(run)))
            ahead = Ahead(of_file, options.threads, lambda source: source.size_bytes, *hooks)
            found = ahead.each(sources)
        stack.callback(ahead.close)
        if own is not None:  # so that threads that wait for requests end
            stack.callback(own.objects.cancel)
        yield from found


def _read(root: SourcePath, source: Source) -> bytes:
    if source.size_bytes > LARGE_BYTES:
        image_format(read_source(root, source, START_BYTES))  # a film among the pictures need not be read
    return read_source(root, source)


def convert_sample(
    sample: Source | Given,
    name: str,
    read: Callable[[], bytes | OpenedImage],
    values: Callable[[Packed], tuple[Frame, Iterator[Any]]],
    how: EncodeOptions,
    kinds: Mapping[str, str],
    classes: Sequence[str],
    identity: int | None = None,
) -> Outcome:
    """Converts one picture and the values of its fields, or says why that cannot be; PackError: the system is at fault.

    `identity` is that of its source, where it was packed before; None: that of its bytes.
    """
    if sample.problem is not None:
        return sample.problem
    if sample.size_bytes > MAX_SAMPLE_BYTES:
        return f"{sample.size_bytes:,} bytes; expected at most {MAX_SAMPLE_BYTES:,}"
    try:
        data = read()
        packed = convert(data, how)
        if identity is None:
            view = data if isinstance(data, bytes) else data.samples().tobytes()
            identity = identity_of(len(view), lambda at, size: view[at : at + size])
        frame, found = values(packed)
        laid_out, stored = FieldValues(packed, how, frame), []
        for field, kind in kinds.items():
            with of_field(field):
                stored.append(laid_out.store(kind, next(found)))
        return replace(
            packed,
            values=tuple(stored),
            assumed_shown=laid_out.assumed,
            identity=identity,
            class_name=classes[sample.label] if 0 <= sample.label < len(classes) else None,
        )
    except ImageError as problem:
        return str(problem)
    except MemoryError as problem:
        raise PackError(
            f"not enough memory for {readable(name)}. Finished shards are kept. Run the same command again with fewer "
            "--workers: it continues there. Or leave out such large images (--max-pixels)"
        ) from problem
    except OSError as problem:
        if problem.errno in OF_THE_FILE:
            return f"cannot be read: {problem.strerror}"
        raise PackError(
            f"cannot read {readable(name)}: {problem.strerror}. Finished shards are kept. Remove the cause, then run "
            "the same command again: it continues there"
        ) from problem


def values_of(listing: Listing, source: Source, unsaid: Frame, picture: Packed) -> tuple[Frame, Iterator[Any]]:
    """The value of each field of a sample, which has this picture, read one by one; and of which picture they are.

    None is a field without a value. `unsaid` is the frame where annotations say no size, or the user says the frame.
    """
    if source.note is None:
        notes: dict[ByteRange, Any] = {}  # one member may hold the values of several fields
        parts = zip(listing.fields, source.parts, strict=True)
        return unsaid, (_value(listing, source, field, part, notes) for field, part in parts)
    assert listing.notes is not None  # a listing of rows has them
    # The size of the image, if it is known, the values, and the times of files.
    size, values, times = json.loads(listing.notes.read(source.note.offset_bytes, source.note.size_bytes))
    frame = unsaid
    if size is not None:
        by_size = frame_by_size(tuple(size), picture, unsaid)
        if by_size is None:
            raise ImageError(f"expected {size[0]} x {size[1]} pixels, as its annotations say; got {sizes_of(picture)}")
        frame = unsaid if unsaid.certain else by_size
    return frame, (
        _row_value(listing, field, values.get(field.name), times.get(field.name), size_in(frame, picture))
        for field in listing.fields
    )


def _value(
    listing: Listing, source: Source, field: SourceField, part: ByteRange | None, notes: dict[ByteRange, Any]
) -> Any:
    if part is None:
        return take(field.kind, None) if field.kind not in ("mask", "image") else None
    offset, size = part
    refuse_long(size, MOST_VALUE_BYTES)  # before it is read
    at = source._replace(offset_bytes=offset, size_bytes=size)
    if not field.in_note:
        data = read_source(listing.root, at)
        return take(field.kind, _parsed(data, field.kind)) if field.kind in ("text", "json") else data
    if part not in notes:
        notes[part] = _parsed(read_source(listing.root, at), "json")
    value = renumbered(field, notes[part].get(field.name) if isinstance(notes[part], dict) else None)
    if field.names and field.kind == "classes" and isinstance(value, list):
        value = [each if isinstance(each, str) else field.names[each] for each in value]
    return take(field.kind, value)


def _parsed(data: bytes, kind: str) -> Any:
    try:
        return data.decode() if kind == "text" else json_value(data.decode())
    except UnicodeDecodeError as problem:
        raise ImageError(f"expected UTF-8, got a byte {data[problem.start]:#04x} at byte {problem.start}") from None
    except (ValueError, RecursionError) as problem:
        raise ImageError(f"expected JSON ({problem}), got {data[:40]!r}") from None


def _row_value(listing: Listing, field: SourceField, value: Any, mtime_ns: int | None, size: Size) -> Any:
    width, height = size
    value = renumbered(field, value)
    if value is None and field.kind in ("mask", "image"):
        return None
    if field.kind == "mask" and "shapes" in value:
        return draw_shapes(value["shapes"], width, height)
    if field.kind in ("mask", "image"):
        refuse_long(value["size_bytes"], MAX_SAMPLE_BYTES)  # before it is read
        data = read_as_listed(listing.root, value["file"], FileState(value["size_bytes"], mtime_ns or 0, 0))
        return mask_file.as_png(data) if field.kind == "mask" else data
    if field.kind == "boxes" and isinstance(value, dict) and "shares" in value:  # of width and height, as YOLO has them
        scale = (width, height, width, height)
        boxes = [[share * side for share, side in zip(box, scale, strict=True)] for box in value["shares"]]
        value = {"boxes": boxes, "labels": value["labels"]}
    if field.kind == "keypoints" and isinstance(value, dict) and "shares" in value:
        value = [[[x * width, y * height, seen] for x, y, seen in points] for points in value["shares"]]
    taken = take(field.kind, value)
    return clamped(taken, width, height) if field.kind == "boxes" and taken is not None else taken


class _Row(NamedTuple):
    """A row to convert, and the cells that it is in."""

    source: Source
    cells: Cells
    at: int


_size_bytes = attrgetter("source.size_bytes")


def _rows(listing: TableListing, sources: Iterable[Source]) -> Generator[_Row, None, None]:
    """These rows, read file by file and group by group."""
    from fastpipe.sources.parquet_arrow import Cells  # it needs pyarrow

    of_file: dict[str, dict[int, Source]] = defaultdict(dict)
    for source in sources:
        assert source.archive is not None  # rows are in files
        of_file[source.archive][source.offset_bytes] = source
    for name, wanted in sorted(of_file.items()):
        path, table = listing.root / name, listing.tables[name]
        with open_table(listing.kind, path) as file:
            if file.opened.state[:2] != table.state[:2]:
                raise changed(path)
            for group in needed_groups(table, wanted):
                row = group.first_row
                for batch in file.read(group, listing.columns.read()):
                    with file.reading(f"rows from {row:,} on"):
                        found = Cells(batch, listing.columns)
                    if file.is_replaced():
                        raise changed(path)
                    for at, size_bytes in enumerate(found.sizes):
                        if (asked := wanted.get(row + at)) is not None:
                            yield _Row(asked._replace(size_bytes=size_bytes), found, at)
                    row += batch.num_rows


def _image_of(row: _Row) -> bytes:
    _, cells, at = row
    if cells.sizes[at] > LARGE_BYTES:
        image_format(cells.image_start(at, START_BYTES))  # a film among the images need not be copied
    data = cells.image(at)
    if data is not None:
        return data
    path = cells.path(at)
    if path is None:
        raise ImageError("no image: expected bytes, got null")
    raise ImageError(
        f"no bytes of an image, only its path {readable(path)}: write the table with the images in it, for example "
        "with Dataset.to_parquet or save_to_disk"
    )


def _row_values(row: _Row, fields: Sequence[SourceField]) -> Iterator[Any]:
    for number, field in enumerate(fields):
        try:
            value = row.cells.value(number, row.at)
        except UnicodeDecodeError as problem:
            raise ImageError(f"expected UTF-8 ({problem.reason} at byte {problem.start})") from None
        except (ValueError, OverflowError) as problem:
            raise ImageError(str(problem)) from None
        if field.kind not in ("mask", "image"):
            value = take(field.kind, renumbered(field, field_value(value, field)))
        yield value
