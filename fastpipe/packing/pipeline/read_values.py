"""A listed sample -> the values of its fields, and the frame that they are in. Note [frames]"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from fastpipe.dataset.format.fields import (
    ARRAY_KINDS,
    MAX_VALUE_BYTES,
    PICTURE_KINDS,
)
from fastpipe.dataset.format.layout import MAX_SAMPLE_BYTES
from fastpipe.dataset.format.open_file import FileState
from fastpipe.errors import ImageError
from fastpipe.packing.fields.mask import (
    draw_shapes,
    mask_of_png,
    mask_size,
    number_objects,
    unite_masks,
)
from fastpipe.packing.fields.placement import (
    Frame,
    Size,
    describe_scale,
    frame_by_size,
    size_in,
    sizes_of,
)
from fastpipe.packing.fields.values import (
    Boxes,
    check_value_size,
    parse_value,
)
from fastpipe.sources.annotations.run_lengths import COLUMNS
from fastpipe.sources.annotations.two_levels import JPEG_START, read_two_levels
from fastpipe.sources.class_names import renumber_value
from fastpipe.sources.field_values import name_of_class
from fastpipe.sources.files import read_listed_file
from fastpipe.sources.listing import (
    STORED,
    ByteRange,
    Listing,
    Members,
    Source,
    SourceField,
)
from fastpipe.sources.picture import colour_mask, mask_file
from fastpipe.sources.picture.convert import Packed
from fastpipe.sources.source_bytes import read_source
from fastpipe.sources.tables.column_kinds import json_value


def read_values(
    listing: Listing, source: Source, default_frame: Frame, packed: Packed
) -> tuple[Frame, Iterator[Any]]:
    """The frame of a sample's values, and an iterator over the values of its fields.

    A value is None if the sample has none.

    Args:
        listing: has the sample.
        source: the sample.
        default_frame: of values whose source does not say the size of the image, or if the user has
            said the frame.
        packed: the picture of the sample.
    """
    if source.note is None:
        return default_frame, _read_parts(listing, source)

    assert listing.notes is not None  # a listing of rows has notes
    place = source.note
    note = listing.notes.read(place.offset_bytes, place.size_bytes)
    # The note has the size of the image, if it is known; and by field the values, and the times of
    # the files that the values name.
    size, values, times = json.loads(note)
    frame = default_frame
    if size is not None:
        frame_of_size = frame_by_size(tuple(size), packed, default_frame)
        if frame_of_size is None:
            raise ImageError(
                f"expected {size[0]} x {size[1]} pixels, as its annotations say; got "
                f"{sizes_of(packed)}{describe_scale(tuple(size), packed)}"
            )
        if not default_frame.certain:
            is_stored = frame_of_size.coordinates == STORED
            frame = frame_of_size._replace(is_by_size=is_stored)

    # Boxes need no such mark: their corners always lie between pixels.
    for field in listing.fields:
        if field.kind == "keypoints" and _are_shares(values.get(field.name)):
            frame = frame._replace(has_shares=True)

    def read() -> Iterator[Any]:
        image_size = size_in(frame, packed)
        for field in listing.fields:
            yield _read_noted(
                listing,
                field,
                values.get(field.name),
                times.get(field.name, []),
                image_size,
            )

    return frame, read()


def _are_shares(value: object) -> bool:
    """Whether a noted value has boxes or points as shares of the image's width and height."""
    return isinstance(value, dict) and "shares" in value


def _read_parts(listing: Listing, source: Source) -> Iterator[Any]:
    """The values of a sample whose fields are ranges of bytes, such as members of a tar."""
    # One member may hold the values of several fields, and is read once.
    notes: dict[ByteRange, Any] = {}
    for field, members in zip(listing.fields, source.parts, strict=True):
        yield _read_part(listing, source, field, members, notes)


def _read_part(
    listing: Listing,
    source: Source,
    field: SourceField,
    members: Members,
    notes: dict[ByteRange, Any],
) -> Any:
    if field.kind == "images":
        pictures = []
        for part in members:
            member = _member_of(source, part, MAX_SAMPLE_BYTES)
            pictures.append(read_source(listing.root, member))
        return pictures
    if not members:
        if field.kind in PICTURE_KINDS:
            return None
        return parse_value(field.kind, None)
    (part,) = members
    member = _member_of(source, part, MAX_VALUE_BYTES)
    if not field.in_note:
        data = read_source(listing.root, member)
        if field.kind in ("text", "json"):
            return parse_value(field.kind, _parse(data, field.kind))
        return data

    if part not in notes:
        notes[part] = _parse(read_source(listing.root, member), "json")
    note = notes[part]
    value = renumber_value(
        field, note.get(field.name) if isinstance(note, dict) else None
    )
    if field.names and field.kind == "classes" and isinstance(value, list):
        value = [
            entry if isinstance(entry, str) else name_of_class(entry, field.names)
            for entry in value
        ]
    return parse_value(field.kind, value)


def _member_of(source: Source, part: ByteRange, max_bytes: int) -> Source:
    """A range of a sample's bytes, as a source to read. ImageError: it is too large."""
    offset, size_bytes = part
    check_value_size(size_bytes, max_bytes)  # before it is read
    return source._replace(offset_bytes=offset, size_bytes=size_bytes)


def _parse(data: bytes, kind: str) -> Any:
    try:
        text = data.decode()
        return text if kind == "text" else json_value(text)
    except UnicodeDecodeError as problem:
        raise ImageError(
            f"expected UTF-8, got a byte {data[problem.start]:#04x} at byte {problem.start}"
        ) from None
    except (ValueError, RecursionError) as problem:
        raise ImageError(f"expected JSON ({problem}), got {data[:40]!r}") from None


def _read_named(listing: Listing, entry: dict[str, Any], mtime_ns: int) -> bytes:
    """The content of a file that a value names; see `_RowLister._describe_file`."""
    check_value_size(entry["size_bytes"], MAX_SAMPLE_BYTES)  # before it is read
    state = FileState(entry["size_bytes"], mtime_ns, 0)
    return read_listed_file(listing.root, entry["file"], state)


def _read_objects(
    listing: Listing, entries: list[dict[str, Any]], mtimes_ns: list[int]
) -> Iterator[NDArray[Any]]:
    """The masks of objects, one by one. See Note [folders of samples]."""
    for entry, mtime_ns in zip(entries, mtimes_ns, strict=True):
        data = mask_file.as_png(_read_named(listing, entry, mtime_ns))
        mask_size(data)  # raises an ImageError for a mask of colours
        yield mask_of_png(data)


def _read_mask(
    listing: Listing,
    field: SourceField,
    value: dict[str, Any],
    mtimes_ns: list[int],
    size: Size,
) -> NDArray[Any] | bytes:
    """A mask of numbers, or a PNG of it, from shapes or files that the listing has noted."""
    if "shapes" in value:
        return draw_shapes(value["shapes"], *size, field.run_order or COLUMNS)
    if value.get("united"):
        return unite_masks(_read_objects(listing, value["objects"], mtimes_ns))
    if "objects" in value:
        return number_objects(_read_objects(listing, value["objects"], mtimes_ns))
    data = _read_named(listing, value, *mtimes_ns)
    if field.colours:
        numbers = field.numbers or range(len(field.colours))
        return colour_mask.numbers_of_colours(data, field.colours, numbers)
    if "segments" in value:
        return colour_mask.classes_of_segments(data, value["segments"])
    if field.has_two_levels and data.startswith(JPEG_START):
        return read_two_levels(data)
    return mask_file.as_png(data)


def _read_noted(
    listing: Listing, field: SourceField, value: Any, mtimes_ns: list[int], size: Size
) -> Any:
    """A value that the listing has noted, of an image of this size; or the files that it names."""
    value = renumber_value(field, value)
    if field.kind == "images":
        pictures = []
        for entry, mtime_ns in zip(value or [], mtimes_ns, strict=True):
            pictures.append(_read_named(listing, entry, mtime_ns))
        return pictures
    names_file = isinstance(value, dict) and "file" in value
    if field.kind in PICTURE_KINDS or (field.kind in ARRAY_KINDS and names_file):
        if value is None:
            return None
        if field.kind == "mask":
            return _read_mask(listing, field, value, mtimes_ns, size)
        return _read_named(listing, value, *mtimes_ns)

    # YOLO has boxes and points as shares of the image's width and height.
    width, height = size
    if _are_shares(value):
        if field.kind == "boxes":
            boxes = []
            for x0, y0, x1, y1 in value["shares"]:
                left_top = [x0 * width, y0 * height]
                right_bottom = [x1 * width, y1 * height]
                boxes.append(left_top + right_bottom)
            value = {**value, "boxes": boxes}
            del value["shares"]
        elif field.kind == "keypoints":
            value = [
                [[x * width, y * height, seen] for x, y, seen in points]
                for points in value["shares"]
            ]

    # Boxes around shapes may end outside the image. Boxes that cannot be read may have been dropped.
    may_leave_image = False
    num_dropped = 0
    if field.kind == "boxes" and isinstance(value, dict):
        value = dict(value)
        may_leave_image = value.pop("cut", False)
        num_dropped = value.pop("dropped", 0)

    parsed = parse_value(field.kind, value)
    if isinstance(parsed, Boxes):
        return parsed._replace(may_leave_image=may_leave_image, num_dropped=num_dropped)
    return parsed
