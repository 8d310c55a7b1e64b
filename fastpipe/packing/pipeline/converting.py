"""Sources -> packed images and values of fields, converted in advance by threads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastpipe.dataset.format.layout import MAX_SAMPLE_BYTES
from fastpipe.dataset.format.sample_layout import identity_of, key_hash
from fastpipe.errors import ImageError, PackError, readable
from fastpipe.packing.fields.bad_boxes import (
    BoxChanges,
    BoxRule,
    OtherFrame,
    settle_boxes,
)
from fastpipe.packing.fields.placement import Frame, other_frame, size_in
from fastpipe.packing.fields.stored import FieldValues
from fastpipe.packing.fields.values import naming_field
from fastpipe.packing.pipeline.ahead import Ahead, read_ahead
from fastpipe.packing.pipeline.given import Given
from fastpipe.packing.pipeline.read_values import read_values
from fastpipe.packing.pipeline.table_rows import (
    Row,
    read_image_of_row,
    read_table_rows,
    read_values_of_row,
)
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Outcome, Outcomes
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import STORED, Listing, Source
from fastpipe.sources.picture.convert import (
    WITHOUT_IMAGE,
    EncodeOptions,
    Packed,
    convert,
)
from fastpipe.sources.picture.pillow import OpenedImage
from fastpipe.sources.picture.probe import image_format
from fastpipe.sources.source_bytes import (
    FILE_ERRNOS,
    LARGE_BYTES,
    START_BYTES,
    forget_sources,
    prefetch_sources,
    read_source,
)
from fastpipe.sources.tables.tables import TableListing

if TYPE_CHECKING:
    from fastpipe.store.remote.remote_path import RemotePath

_row_size_bytes = attrgetter("source.size_bytes")


def convert_sources(
    listing: Listing,
    sources: Iterable[Source],
    options: PackOptions,
    known_outcomes: dict[str, Outcome] | None = None,
) -> Outcomes:
    """Converts sources in threads: files in the order given; rows in that of their tables, with the
    sizes of images.

    `known_outcomes` has what became of files that the plan converted already, by their path. They are
    removed from it.
    """
    # A root of its own, so that ending this work cancels no requests of other work.
    remote_root = None
    if not isinstance(listing.root, Path):
        remote_root = listing.root.apart()
    if remote_root is not None:
        listing = replace(listing, root=remote_root)
    # The stack ends in reverse order: the requests, the threads, and then the reading of tables.
    with contextlib.ExitStack() as stack:
        if isinstance(listing, TableListing):
            ahead: Ahead[Any, Outcome] = _convert_rows_ahead(listing, options)
            table_rows = read_table_rows(listing, sources)
            rows_ahead = read_ahead(table_rows, _row_size_bytes)
            rows = stack.enter_context(contextlib.closing(rows_ahead))
            outcomes: Iterator[tuple[Source, Outcome]] = (
                (row.source, outcome) for row, outcome in ahead.map(rows)
            )
        else:
            ahead = _convert_files_ahead(
                listing, remote_root, options, known_outcomes or {}
            )
            outcomes = ahead.map(sources)
        stack.callback(ahead.close)
        if remote_root is not None:
            # The stack calls this before `close`, which waits for threads that wait for requests.
            stack.callback(remote_root.objects.cancel)
        yield from outcomes


def _convert_files_ahead(
    listing: Listing,
    remote_root: RemotePath | None,
    options: PackOptions,
    known_outcomes: dict[str, Outcome],
) -> Ahead[Source, Outcome]:
    """Threads that convert sources in advance; the arguments are as of `convert_sources`.

    `remote_root`: the root of the listing if it is behind a URL.
    """
    default_frame = _default_frame(listing, options)
    box_rule = BoxRule.of(listing.fields, options.source.bad_boxes)

    def convert_file(source: Source) -> Outcome:
        if source.path in known_outcomes:
            # Each source is converted once, so its result need not stay in memory.
            return known_outcomes.pop(source.path)
        return convert_sample(
            source,
            name=str(listing.root / source.file_path),
            read_image=partial(_read_image, listing.root, source),
            read_values=partial(read_values, listing, source, default_frame),
            encode=options.encode,
            kinds=listing.kinds,
            classes=listing.classes,
            identity=source.identity,
            box_rule=box_rule,
        )

    def size_bytes(source: Source) -> int:
        return source.size_bytes

    if remote_root is None:
        return Ahead(convert_file, options.threads, size_bytes)

    # The files of a run are requested together, before the run waits for a thread.
    return Ahead(
        convert_file,
        options.threads,
        size_bytes,
        begin=partial(prefetch_sources, remote_root),
        end=partial(forget_sources, remote_root),
    )


def _convert_rows_ahead(
    listing: TableListing, options: PackOptions
) -> Ahead[Row, Outcome]:
    default_frame = _default_frame(listing, options)
    box_rule = BoxRule.of(listing.fields, options.source.bad_boxes)

    def convert_row(row: Row) -> Outcome:
        return convert_sample(
            row.source,
            name=str(listing.root / row.source.path),
            read_image=partial(read_image_of_row, row),
            read_values=lambda _: (
                default_frame,
                read_values_of_row(row, listing.fields),
            ),
            encode=options.encode,
            kinds=listing.kinds,
            classes=listing.classes,
            box_rule=box_rule,
        )

    return Ahead(convert_row, options.threads, _row_size_bytes)


def _default_frame(listing: Listing, options: PackOptions) -> Frame:
    """The frame that the user has chosen, or else that of the format; "stored" is certain."""
    chosen = options.source.coordinates
    if chosen is not None:
        return Frame(chosen, True)
    return Frame(listing.coordinates, listing.coordinates == STORED)


def _read_image(root: SourcePath, source: Source) -> bytes | None:
    if not source.has_image:
        return None
    if source.size_bytes > LARGE_BYTES:
        # A film among the photos is refused without reading all of it.
        image_format(read_source(root, source, START_BYTES))
    return read_source(root, source)


def convert_sample(
    sample: Source | Given,
    name: str,
    read_image: Callable[[], bytes | OpenedImage | None],
    read_values: Callable[[Packed], tuple[Frame, Iterator[Any]]],
    encode: EncodeOptions,
    kinds: Mapping[str, str],
    classes: Sequence[str],
    identity: int | None = None,
    box_rule: BoxRule | None = None,
) -> Outcome:
    """Converts one picture and the values of its fields, or says why it cannot be packed.

    Args:
        sample: the sample.
        name: of its image, for errors.
        read_image: reads the bytes or pixels of the image; None: the sample has none.
        read_values: gives the frame of the values, and the value of each field, for the packed
            picture.
        encode: options of the conversion.
        kinds: name -> kind of the fields.
        classes: names of the classes, by label.
        identity: of the picture's source, if it was packed before; None: it is made of the bytes.
        box_rule: for boxes of a source that do not lie inside their image; None: a program gives
            the values, and they stay as they are.

    Raises:
        PackError: not the sample is at fault, but the memory, the disk or the network.
    """
    if sample.problem is not None:
        return sample.problem
    if sample.size_bytes > MAX_SAMPLE_BYTES:
        return f"{sample.size_bytes:,} bytes; expected at most {MAX_SAMPLE_BYTES:,}"
    try:
        data = read_image()
        if data is None:
            packed = WITHOUT_IMAGE
            if identity is None:
                sample_path = sample.path if isinstance(sample, Source) else sample.name
                identity = key_hash(readable(sample_path))
        else:
            packed = convert(data, encode)
            if identity is None:
                identity = _identity(data)
        # The values come last, because they are placed on the packed picture.
        frame, remaining_values = read_values(packed)
        values = {}
        for field in kinds:
            with naming_field(field):
                values[field] = next(remaining_values)
        box_changes = BoxChanges()
        if box_rule is not None:
            size = size_in(frame, packed)
            other = other_frame(frame)
            other_size = size_in(other, packed)
            box_changes = settle_boxes(
                values, kinds, size, box_rule, OtherFrame(other.coordinates, other_size)
            )
        field_values = FieldValues(packed, encode, frame)
        stored = []
        for field, kind in kinds.items():
            with naming_field(field):
                stored.append(field_values.store(kind, values[field]))
        class_name = None
        if 0 <= sample.label < len(classes):
            class_name = classes[sample.label]
        return replace(
            packed,
            values=tuple(stored),
            assumed_shown=field_values.assumed,
            assumed_stored=field_values.assumed_stored,
            cut_boxes=box_changes.cut,
            dropped_boxes=box_changes.dropped,
            identity=identity,
            class_name=class_name,
        )
    except ImageError as problem:
        return str(problem)
    except MemoryError as problem:
        # Which samples a dataset has must not depend on the memory of the machine.
        raise PackError(
            f"not enough memory for {readable(name)}. Finished shards are kept. Run the same "
            "command again with fewer --workers: it continues there. Or leave out such large "
            "images (--max-pixels)"
        ) from problem
    except OSError as problem:
        # Such an error is of this file alone. An error of the disk would reject all others, too.
        if problem.errno in FILE_ERRNOS:
            return f"cannot be read: {problem.strerror}"
        raise PackError(
            f"cannot read {readable(name)}: {problem.strerror}. Finished shards are kept. Remove "
            "the cause, then run the same command again: it continues there"
        ) from problem


def _identity(data: bytes | OpenedImage) -> int:
    if isinstance(data, bytes):
        view = data
    else:
        view = data.samples().tobytes()
    return identity_of(len(view), lambda offset, size: view[offset : offset + size])
