"""Sources in packing order -> packed images in that order, converted in advance by threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.format.identity import identity_of
from fastpipe.format.layout import MAX_SAMPLE_BYTES
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.ahead import Ahead
from fastpipe.packing.fields.stored import store
from fastpipe.packing.picture.convert import EncodeOptions, Packed, convert, convert_pixels
from fastpipe.packing.picture.probe import image_format
from fastpipe.packing.source.kinds import read_source
from fastpipe.packing.source.listing import Listing, Source
from fastpipe.packing.source.reading import (
    LARGE_BYTES,
    OF_THE_FILE,
    START_BYTES,
    Arriving,
    give_up_requests,
    read_start,
    with_own_requests,
)
from fastpipe.packing.source_values import read_values

Task = TypeVar("Task")
# A thread takes some files at once: handing over each by itself costs a tenth of packing it, and more of large ones
# would only take memory.
RUN_BYTES = 1 << 20
RUN_FILES = 16

Outcome = Packed | str | PackError  # the picture, why there is none, or why the pack must stop


def converted(
    listing: Listing, sources: Sequence[Source], start: int, how: EncodeOptions, workers: int
) -> Generator[tuple[int, Source, Packed | str], None, None]:
    """Converts sources from position `start` on.

    The work is done in C and C++ without the GIL. At most a few MB of packed pictures a worker, or a few
    pictures where they are larger, are held in memory. Close the generator to stop its threads.

    Args:
        listing: that the sources are of.
        sources: some or all of them, in order.
        start: position of the first.
        how: the options.
        workers: threads.

    Yields:
        Position, source, and the picture with the values of its fields, or why there is none.

    Raises:
        PackError: the system, not a file, is at fault: an I/O error, too many open files; or a file has changed since
            it was listed.
    """

    def work(run: range) -> list[Outcome]:
        try:
            return outcomes(lambda place: _convert_file(listing, sources[place], how), run, ahead.stopped)
        finally:
            arriving.end(run)

    def given(done: Iterator[tuple[range, list[Outcome]]]) -> Iterator[tuple[int, Source, Packed | str]]:
        for run, found in done:
            for position, outcome in zip(run, found, strict=False):  # shorter where the pack must stop
                if isinstance(outcome, PackError):
                    raise outcome
                yield position, sources[position], outcome

    listing = with_own_requests(listing)
    arriving = Arriving(listing, sources)
    ahead = Ahead(work, workers)
    try:
        for run in _runs(sources, start):
            arriving.begin(run)
            yield from given(ahead.put(run))
        yield from given(ahead.rest())
    finally:
        give_up_requests(listing)
        ahead.close()


def outcomes(work: Callable[[Task], Outcome], run: Iterable[Task], stopped: threading.Event) -> list[Outcome]:
    """What becomes of a few sources; up to the first at which the pack must stop."""
    found: list[Outcome] = []
    for each in run:
        if stopped.is_set():
            break
        found.append(work(each))
        if isinstance(found[-1], PackError):
            break
    return found


def _runs(sources: Sequence[Source], start: int) -> Iterator[range]:
    """The positions from `start` on, cut into what a thread takes at once."""
    first, size_bytes = start, 0
    for position in range(start, len(sources)):
        size_bytes += sources[position].size_bytes
        if size_bytes >= RUN_BYTES or position - first + 1 == RUN_FILES:
            yield range(first, position + 1)
            first, size_bytes = position + 1, 0
    if first < len(sources):
        yield range(first, len(sources))


def _convert_file(listing: Listing, source: Source, how: EncodeOptions) -> Outcome:
    if source.problem is not None:
        return source.problem
    root = listing.root

    def read() -> bytes:
        if source.size_bytes > LARGE_BYTES:
            image_format(read_start(root, source, START_BYTES))  # a film among the pictures need not be read
        return read_source(root, source)

    def values(picture: Packed) -> list[tuple[str, str, Any]]:
        return read_values(listing, source, picture)

    known = source.label, listing.classes, source.identity
    return convert_sample(str(root / source.file_path), source.size_bytes, read, values, how, *known)


def convert_sample(
    name: str,
    size_bytes: int,
    read: Callable[[], bytes | NDArray[np.uint8]],
    values: Callable[[Packed], Iterable[tuple[str, str, Any]]],
    how: EncodeOptions,
    label: int,
    classes: Sequence[str],
    identity: int | None = None,
) -> Outcome:
    """Converts one picture and the values of its fields.

    Args:
        name: of the source, for messages.
        size_bytes: of the picture's file.
        read: gives its bytes, or its pixels.
        values: of the converted picture -> name, kind and checked value of each field.
        how: the options.
        label, classes: its class, and their names; there need not be any.
        identity: of its source, where it was packed before; None: that of its bytes.
    """
    if size_bytes > MAX_SAMPLE_BYTES:
        return f"{size_bytes:,} bytes; expected at most {MAX_SAMPLE_BYTES:,}"
    try:
        data = read()
        packed = convert(data, how) if isinstance(data, bytes) else convert_pixels(data, how)
        if identity is None:
            view = data if isinstance(data, bytes) else data.tobytes()
            identity = identity_of(len(view), lambda at, size: view[at : at + size])
        stored = tuple(_stored(*each, packed, how) for each in values(packed))
        class_name = classes[label] if 0 <= label < len(classes) else None
        return replace(packed, values=stored, identity=identity, class_name=class_name)
    except ImageError as problem:
        return str(problem)
    except MemoryError:
        return PackError(
            f"not enough memory for {readable(name)}. Finished shards are kept. Run the same command again with fewer "
            "--workers: it continues there. Or leave out such large images (--max-pixels)"
        )
    except PackError as problem:
        return problem
    except OSError as problem:
        if problem.errno in OF_THE_FILE:
            return f"cannot be read: {problem.strerror}"
        return PackError(
            f"cannot read {readable(name)}: {problem.strerror}. Finished shards are kept. Remove the cause, then run "
            "the same command again: it continues there"
        )


def _stored(name: str, kind: str, value: Any, packed: Packed, how: EncodeOptions) -> Stored:
    try:
        return store(kind, value, packed, how)
    except ImageError as problem:
        raise ImageError(f"field {name}: {problem}") from None
