"""The progress of a pack -> a line of text, with its recent speed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

from rich.console import Console

from fastpipe.machine.progress import shown
from fastpipe.packing.job.threads import PackProgress

_SPEED_OVER_S = 5.0


class _Speed:
    """Rates over the last few seconds, of files and bytes."""

    def __init__(self, start: PackProgress) -> None:
        self._points = [(time.monotonic(), start.files, start.bytes)]

    def update(self, now: PackProgress) -> tuple[float, float]:
        """Files and MB a second."""
        time_s = time.monotonic()
        self._points.append((time_s, now.files, now.bytes))
        while len(self._points) > 2 and time_s - self._points[1][0] > _SPEED_OVER_S:
            self._points.pop(0)
        then_s, files_then, bytes_then = self._points[0]
        span_s = max(time_s - then_s, 1e-6)
        return (now.files - files_then) / span_s, (now.bytes - bytes_then) / span_s / 1e6


@contextlib.contextmanager
def pack_progress(console: Console) -> Iterator[Callable[[PackProgress], None]]:
    """Shows how far a pack is: a bar with images/s, MB/s and time left, or a line now and then.

    Yields:
        A function to call with each PackProgress.
    """
    speed: _Speed | None = None
    step = ""

    def words(now: PackProgress) -> str:
        assert speed is not None
        images, megabytes = speed.update(now)
        doing = f"{now.step}: " if now.step != "packing" else ""
        uploaded = f"  {now.uploaded_bytes / 1e6:,.0f} MB uploaded" if now.uploaded_bytes else ""
        rejected = f"  {now.rejected} rejected" if now.rejected else ""
        tasks = f"  task {now.tasks:,}/{now.total_tasks:,}, {now.workers:,} CPUs" if now.total_tasks else ""
        if tasks and not console.is_terminal and megabytes:  # a bar has it anyway
            tasks += f"  {timedelta(seconds=round((now.total_bytes - now.bytes) / 1e6 / megabytes))} left"
        rates = f"{images:,.0f} images/s  {megabytes:.1f} MB/s"
        return f"{doing}{now.files:,}/{now.total_files:,} files  {rates}{tasks}{uploaded}{rejected}"

    with shown(console, "packing", words) as show:

        def update(now: PackProgress) -> None:
            nonlocal speed, step
            if speed is None or now.step != step:
                speed, step = _Speed(now), now.step
            show(now)

        yield update
