"""Converted samples in the order of their files -> spool files; all spool files -> samples in packing order."""

from __future__ import annotations

import contextlib
import heapq
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import xxhash

from fastpipe.errors import PackError
from fastpipe.packing.output.files import PARTIAL
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.source.listing import Source
from fastpipe.packing.spool.record import Record, record_of
from fastpipe.packing.spool.spool_file import Blob, SpoolFile, write_spool_file

RUN_BYTES = 128 << 20  # of a spool file; two may be in memory
_RUN_SAMPLES = 1 << 16
_BUFFERS_BYTES = 64 << 20  # of all spool files that are read, each of them within these bounds
_LEAST_BUFFER_BYTES, _MOST_BUFFER_BYTES = 1 << 15, 1 << 20
_ENDING = ".spool"

Place = tuple[int, str]


class Spool:
    """The spool files of a pack. Those of an earlier run are used if they are of the same sources and options.

    Args:
        folder: of the files; made if it is not there.
        sources: all that are packed.
        place: gives a source its place in packing order.
        state: names the state of some sources.
        made_with: names the options and the libraries that decide bytes.
        kinds: of the fields.

    Attributes:
        files: the spool files.
        rest: positions of the sources that are in none, file by file, in the order of each file.

    Raises:
        PackError: the folder is a link.
        OSError: it cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        sources: Sequence[Source],
        place: Callable[[Source], Place],
        state: Callable[[list[Source]], str],
        made_with: str,
        kinds: Sequence[str],
    ) -> None:
        if folder.is_symlink():
            raise PackError(f"{folder} is a link; expected a folder, because packing writes only into its destination")
        folder.mkdir(exist_ok=True)
        self._folder, self._sources, self._place, self._state = folder, sources, place, state
        self._made_with, self._kinds = made_with, kinds
        self._of_file = _in_file_order(sources)
        self._steps = array("q", bytes(8 * len(sources)))  # of each source in its file
        for ours in self._of_file.values():
            for step, at in enumerate(ours):
                self._steps[at] = step
        self.files: list[SpoolFile] = []
        self.rest = self._take_over()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="fastpipe-spool")
        self._writing: Future[None] | None = None
        self._run: list[tuple[Record, bytes]] = []
        self._run_bytes = 0
        self._run_start = ("", 0)

    def add(self, position: int, source: Source, outcome: Packed | str) -> None:
        """Adds a sample; these come in the order of `rest`.

        Raises:
            PackError: the disk refuses, perhaps what was added before.
        """
        name, step = source.archive or "", self._steps[position]
        start, first = self._run_start
        if self._run and ((name, step) != (start, first + len(self._run)) or self._is_full()):
            self._hand_over()
        if not self._run:
            self._run_start = name, step
        record, blob = record_of(self._place(source), source.label, source.size_bytes, outcome, self._kinds)
        self._run.append((record, blob))
        self._run_bytes += len(blob)

    def finish(self) -> None:
        """Writes what is left, and waits for it."""
        if self._run:
            self._hand_over()
        self._wait()

    def close(self) -> None:
        """Waits for the thread; a run that is not whole is dropped."""
        self._run = []
        self._writer.shutdown()

    def samples(self, after: Place | None) -> Iterator[tuple[Record, Blob]]:
        """All samples behind a place, in packing order."""
        share = _BUFFERS_BYTES // max(len(self.files), 1)
        buffer_bytes = min(max(share, _LEAST_BUFFER_BYTES), _MOST_BUFFER_BYTES)
        streams = [file.samples(after, buffer_bytes) for file in self.files]
        return heapq.merge(*streams, key=lambda sample: sample[0].place)

    def _is_full(self) -> bool:
        return self._run_bytes >= RUN_BYTES or len(self._run) >= _RUN_SAMPLES

    def _hand_over(self) -> None:
        """Gives the run to the thread that writes, when that has written the one before."""
        self._wait()
        run, (name, first) = self._run, self._run_start
        self._run, self._run_bytes = [], 0
        self._writing = self._writer.submit(self._write, name, first, run)

    def _wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _write(self, name: str, first: int, run: list[tuple[Record, bytes]]) -> None:
        file = self._folder / f"{xxhash.xxh3_64_hexdigest(name.encode(errors='surrogateescape'))}-{first:09d}{_ENDING}"
        state = self._state_of(name, range(first, first + len(run)))
        write_spool_file(file, self._made_with, name, first, state, run)
        self.files.append(SpoolFile(file))

    def _state_of(self, name: str, steps: range) -> str:
        return self._state([self._sources[self._of_file[name][step]] for step in steps])

    def _take_over(self) -> list[int]:
        """Finds the spool files that fit, removes all others; returns what is in none."""
        found: dict[str, set[int]] = defaultdict(set)
        for path in sorted(self._folder.iterdir()):
            taken = None
            if path.name.endswith(_ENDING):
                with contextlib.suppress(ValueError, OSError, TypeError):
                    taken = self._fitting(SpoolFile(path), found)
            if taken is not None:
                self.files.append(taken)
            elif path.name.endswith((_ENDING, PARTIAL)):
                path.unlink()
        return [at for name, ours in self._of_file.items() for step, at in enumerate(ours) if step not in found[name]]

    def _fitting(self, file: SpoolFile, found: dict[str, set[int]]) -> SpoolFile | None:
        head = file.head
        ours = self._of_file.get(head.archive, [])
        steps = range(head.first, head.first + head.sources)
        if head.made_with != self._made_with or not 0 <= head.first < steps.stop <= len(ours):
            return None
        if not found[head.archive].isdisjoint(steps) or head.state != self._state_of(head.archive, steps):
            return None
        found[head.archive].update(steps)
        return file


def _in_file_order(sources: Sequence[Source]) -> dict[str, list[int]]:
    """The positions of sources, by file, each in the order in which its file is read."""
    found: dict[str, list[int]] = defaultdict(list)
    for at, source in enumerate(sources):
        found[source.archive or ""].append(at)
    for ours in found.values():
        ours.sort(key=lambda at: (sources[at].offset_bytes, sources[at].path))
    return dict(sorted(found.items()))
