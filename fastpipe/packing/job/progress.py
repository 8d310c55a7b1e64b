"""The progress of a pack, and how it is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fastpipe.packing.shard.plan import Outcome
from fastpipe.sources.listing import Source
from fastpipe.store.store import Store


class PackProgress(NamedTuple):
    """How far a pack is.

    Attributes:
        files, total_files: of the source, done and in all.
        bytes, total_bytes: of these files.
        rejected: files that cannot be packed.
        step: "packing"; for tables, which are read as a stream, "converting" and then "packing";
            last "publishing", if the dataset is in a bucket or a cluster packs it.
        uploaded_bytes: that are in the bucket.
        tasks, total_tasks: of this step on a cluster, done and in all.
        workers: tasks that a cluster can run at a time; 0: there is no cluster.
    """

    files: int
    total_files: int
    bytes: int
    total_bytes: int
    rejected: int
    step: str = "packing"
    uploaded_bytes: int = 0
    tasks: int = 0
    total_tasks: int = 0
    workers: int = 0


Progress = Callable[[PackProgress], None]


class ProgressReporter:
    """Adds up the progress of a pack, and reports it."""

    def __init__(
        self,
        files: int,
        size_bytes: int,
        store: Store,
        on_progress: Progress,
        rejected: int = 0,
        workers: int = 0,
    ) -> None:
        self._progress = PackProgress(
            0, files, 0, size_bytes, rejected, workers=workers
        )
        self._store = store
        self._on_progress = on_progress

    def begin(self, step: str, files: int, size_bytes: int, tasks: int = 0) -> None:
        """Begins a step in which so many files and bytes are left to do."""
        self._progress = self._progress._replace(
            step=step,
            files=self._progress.total_files - files,
            bytes=max(self._progress.total_bytes - size_bytes, 0),
            tasks=0,
            total_tasks=tasks,
        )

    def add(
        self, files: int = 0, size_bytes: int = 0, rejected: int = 0, tasks: int = 0
    ) -> None:
        """Counts what has been done, and reports the sum."""
        progress = self._progress
        self._progress = progress._replace(
            files=progress.files + files,
            # The images of a table may have more bytes than the table.
            bytes=min(progress.bytes + size_bytes, progress.total_bytes),
            rejected=progress.rejected + rejected,
            tasks=progress.tasks + tasks,
            uploaded_bytes=self._store.uploaded_bytes,
        )
        self._on_progress(self._progress)

    def on_source(self, source: Source, outcome: Outcome) -> None:
        """Counts a source."""
        self.add(1, source.size_bytes, isinstance(outcome, str))

    def on_published_file(self) -> None:
        """Reports a file that publishing has written, unless all is in a folder of this machine."""
        # Publishing into a folder of this machine takes only a moment.
        if self._store.uploaded_bytes or self._progress.workers:
            self.begin("publishing", 0, 0)
            self.add()
