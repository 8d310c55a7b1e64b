"""Sources in packing order -> packed images in that order, converted in advance by threads."""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.format.layout import MAX_SAMPLE_BYTES
from fastpipe.packing.picture.convert import EncodeOptions, Packed, convert
from fastpipe.packing.picture.probe import image_format
from fastpipe.packing.source.kinds import read_source, read_start
from fastpipe.packing.source.listing import Source

_AHEAD_PER_WORKER = 4
# A thread takes some files at once: handing over each by itself costs a tenth of packing it, and more of large ones
# would only take memory.
_RUN_BYTES = 1 << 20
_RUN_FILES = 16
_LARGE_BYTES = 16 << 20
# What is wrong with the file itself and will be so tomorrow; any other error is the system's and stops the pack.
_OF_THE_FILE = {errno.EACCES, errno.EPERM}

_Outcome = Packed | str | PackError  # the picture, why there is none, or why the pack must stop


def converted(
    root: Path, sources: Sequence[Source], start: int, how: EncodeOptions, workers: int
) -> Generator[tuple[int, Source, Packed | str], None, None]:
    """Converts sources from position `start` on.

    The work is done in C and C++ without the GIL. At most a few MB of packed pictures a worker, or a few
    pictures where they are larger, are held in memory. Close the generator to stop its threads.

    Yields:
        Position, source, and the picture or why there is none.

    Raises:
        PackError: the system, not a file, is at fault: an I/O error, too many open files; or a file has changed since
            it was listed.
    """

    stop = threading.Event()

    def work(run: range) -> list[_Outcome]:
        outcomes: list[_Outcome] = []
        for position in run:
            if stop.is_set():
                break
            outcomes.append(_convert_file(root, sources[position], how))
            if isinstance(outcomes[-1], PackError):
                break
        return outcomes

    def outcomes_of(run: range, future: Future[list[_Outcome]]) -> Iterator[tuple[int, Source, Packed | str]]:
        for position, outcome in zip(run, future.result(), strict=False):  # shorter where the pack must stop
            if isinstance(outcome, PackError):
                raise outcome
            yield position, sources[position], outcome

    pending: deque[tuple[range, Future[list[_Outcome]]]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="fastpipe-pack") as threads:
        try:
            for run in _runs(sources, start):
                pending.append((run, threads.submit(work, run)))
                if len(pending) >= workers * _AHEAD_PER_WORKER:
                    yield from outcomes_of(*pending.popleft())
            while pending:
                yield from outcomes_of(*pending.popleft())
        finally:
            stop.set()
            for _, future in pending:
                future.cancel()


def _runs(sources: Sequence[Source], start: int) -> Iterator[range]:
    """The positions from `start` on, cut into what a thread takes at once."""
    first, size_bytes = start, 0
    for position in range(start, len(sources)):
        size_bytes += sources[position].size_bytes
        if size_bytes >= _RUN_BYTES or position - first + 1 == _RUN_FILES:
            yield range(first, position + 1)
            first, size_bytes = position + 1, 0
    if first < len(sources):
        yield range(first, len(sources))


def _convert_file(root: Path, source: Source, how: EncodeOptions) -> _Outcome:
    if source.problem is not None:
        return source.problem
    if source.size_bytes > MAX_SAMPLE_BYTES:
        return f"{source.size_bytes:,} bytes; expected at most {MAX_SAMPLE_BYTES:,}"
    try:
        if source.size_bytes > _LARGE_BYTES:
            image_format(read_start(root, source))  # a film among the pictures need not be read
        data = read_source(root, source)
    except ImageError as problem:
        return str(problem)
    except MemoryError:
        return _no_memory(root, source)
    except PackError as problem:
        return problem
    except OSError as problem:
        if problem.errno in _OF_THE_FILE:
            return f"cannot be read: {problem.strerror}"
        return PackError(
            f"cannot read {readable(str(root / source.path))}: {problem.strerror}. Finished shards are kept. Remove "
            "the cause, then run the same command again: it continues there"
        )
    try:
        return convert(data, how)
    except ImageError as problem:
        return str(problem)
    except MemoryError:
        return _no_memory(root, source)


def _no_memory(root: Path, source: Source) -> PackError:
    return PackError(
        f"not enough memory for {readable(str(root / source.path))}. Finished shards are kept. Run the same "
        "command again with fewer --workers: it continues there. Or leave out such large images (--max-pixels)"
    )
