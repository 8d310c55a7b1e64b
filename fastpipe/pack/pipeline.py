"""Sources in packing order -> packed pictures in that order, converted ahead by threads."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from fastpipe.errors import ImageError, PackError
from fastpipe.names import readable
from fastpipe.pack.convert import Conversion, Packed, convert
from fastpipe.pack.sources import Source, read_source

_AHEAD_PER_WORKER = 4
# What is wrong with the file itself and will be so tomorrow; any other error is the system's and stops the pack.
_OF_THE_FILE = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR, errno.EISDIR}


def converted(
    root: Path, sources: Sequence[Source], start: int, how: Conversion, workers: int
) -> Generator[tuple[int, Source, Packed | str], None, None]:
    """Converts sources from position `start` on.

    The work is done in C, C++ and OpenCV without the GIL. At most a few pictures a worker are held in memory. Close the
    generator to stop its threads.

    Yields:
        Position, source, and the picture or why there is none.

    Raises:
        PackError: the system, not a file, is at fault: an I/O error, too many open files.
    """

    def work(source: Source) -> Packed | str:
        if source.problem is not None:
            return source.problem
        try:
            data = read_source(root, source)
        except OSError as problem:
            if problem.errno in _OF_THE_FILE:
                return f"cannot be read: {problem.strerror}"
            raise PackError(
                f"cannot read {readable(str(root / source.path))}: {problem.strerror}. What was finished is kept; "
                "mend the cause, then run the same command again: it goes on from there"
            ) from problem
        try:
            return convert(data, how)
        except ImageError as problem:
            return str(problem)

    pending: deque[tuple[int, Source, Future[Packed | str]]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="fastpipe-pack") as threads:
        try:
            for position in range(start, len(sources)):
                pending.append((position, sources[position], threads.submit(work, sources[position])))
                if len(pending) >= workers * _AHEAD_PER_WORKER:
                    ready, source, future = pending.popleft()
                    yield ready, source, future.result()
            while pending:
                ready, source, future = pending.popleft()
                yield ready, source, future.result()
        finally:
            for _, _, future in pending:
                future.cancel()
