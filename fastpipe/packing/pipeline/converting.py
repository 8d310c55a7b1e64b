"""Sources in packing order -> packed images in that order, converted in advance by threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.format.identity import identity_of
from fastpipe.format.layout import MAX_SAMPLE_BYTES
from fastpipe.packing.fields.stored import store
from fastpipe.packing.fields.values import of_field
from fastpipe.packing.picture.convert import EncodeOptions, Packed, convert
from fastpipe.packing.picture.probe import image_format
from fastpipe.packing.pipeline.ahead import Ahead
from fastpipe.packing.pipeline.source_values import read_values
from fastpipe.packing.source.listing import Listing, Source
from fastpipe.packing.source.reading import (
    LARGE_BYTES,
    OF_THE_FILE,
    START_BYTES,
    Arriving,
    give_up_requests,
    read_source,
    with_own_requests,
)

# A thread takes some files at once: handing over each by itself costs a tenth of packing it, and more of large ones
# would only take memory.
RUN_BYTES = 1 << 20
RUN_FILES = 16

Task = TypeVar("Task")
Outcome = Packed | str | PackError  # the picture, why there is none, or why the pack must stop


def converted(
    listing: Listing,
    sources: Sequence[Source],
    how: EncodeOptions,
    workers: int,
    known: dict[str, Packed | str] | None = None,
) -> Generator[tuple[Source, Packed | str], None, None]:
    """Converts sources of a listing, in order, but for those that are `known`; see `in_advance` and `outcomes_of`."""
    there = known or {}
    listing = with_own_requests(listing)
    arriving = Arriving(listing)

    def runs() -> Generator[list[Source], None, None]:
        for run in cut(sources, lambda source: source.size_bytes):
            arriving.begin(run)
            yield run

    def work(source: Source) -> Outcome:
        return there.pop(source.path, None) or _convert_file(listing, source, how)

    return in_advance(listing, runs(), work, workers, arriving.end)


def in_advance(
    listing: Listing,
    runs: Generator[list[Task], None, None],
    work: Callable[[Task], Outcome],
    workers: int,
    end: Callable[[list[Task]], None] = lambda _: None,
) -> Generator[tuple[Task, Packed | str], None, None]:
    """What becomes of each task, in order, worked out by threads.

    The work is done in C and C++ without the GIL. At most a few MB of packed pictures a worker, or a few
    pictures where they are larger, are held in memory. Close the generator to stop its threads.

    Args:
        listing: whose requests are given up in the end.
        runs: what a thread takes at once.
        work: the picture with the values of its fields, why there is none, or why the pack must stop.
        workers: threads.
        end: called when a run has been worked on.

    Raises:
        PackError: the system, not a file, is at fault: an I/O error, too many open files; or a file has changed since
            it was listed.
    """

    def done(run: list[Task]) -> list[Outcome]:
        try:
            return outcomes(work, run, ahead.stopped)
        finally:
            end(run)

    ahead = Ahead(done, workers)
    try:
        for run, found in itertools.chain((each for some in runs for each in ahead.put(some)), ahead.rest()):
            for task, outcome in zip(run, found, strict=False):  # shorter where the pack must stop
                if isinstance(outcome, PackError):
                    raise outcome
                yield task, outcome
    finally:
        give_up_requests(listing)
        ahead.close()
        runs.close()


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


def cut(
    tasks: Iterable[Task], size_bytes: Callable[[Task], int], most: int | None = None
) -> Generator[list[Task], None, None]:
    """What a thread takes, or hands over, at once."""
    run: list[Task] = []
    total = 0
    for task in tasks:
        run.append(task)
        total += size_bytes(task)
        if total >= RUN_BYTES or len(run) == (most or RUN_FILES):
            yield run
            run, total = [], 0
    if run:
        yield run


def _convert_file(listing: Listing, source: Source, how: EncodeOptions) -> Outcome:
    if source.problem is not None:
        return source.problem
    root = listing.root

    def read() -> bytes:
        if source.size_bytes > LARGE_BYTES:
            image_format(read_source(root, source, START_BYTES))  # a film among the pictures need not be read
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
        packed = convert(data, how)
        if identity is None:
            view = data if isinstance(data, bytes) else data.tobytes()
            identity = identity_of(len(view), lambda at, size: view[at : at + size])
        stored = []
        for field, kind, value in values(packed):
            with of_field(field):
                stored.append(store(kind, value, packed, how))
        class_name = classes[label] if 0 <= label < len(classes) else None
        return replace(packed, values=tuple(stored), identity=identity, class_name=class_name)
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
