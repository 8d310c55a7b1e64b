"""How far a pack is -> a bar in a terminal, or plain lines where there is none."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from fastpipe.pack import job

_LINE_EVERY_S = 10.0
_SPEED_OVER_S = 5.0


class _Speed:
    """Rates over the last few seconds, of files and bytes."""

    def __init__(self, start: job.Progress) -> None:
        self._points = [(time.monotonic(), start.files, start.bytes)]

    def update(self, now: job.Progress) -> tuple[float, float]:
        """Files and MB a second."""
        time_s = time.monotonic()
        self._points.append((time_s, now.files, now.bytes))
        while len(self._points) > 2 and time_s - self._points[1][0] > _SPEED_OVER_S:
            self._points.pop(0)
        then_s, files_then, bytes_then = self._points[0]
        span_s = max(time_s - then_s, 1e-6)
        return (now.files - files_then) / span_s, (now.bytes - bytes_then) / span_s / 1e6


@contextlib.contextmanager
def pack_progress(console: Console) -> Iterator[Callable[[job.Progress], None]]:
    """Shows how far a pack is: a bar with images/s, MB/s and time left, or a line now and then.

    Yields:
        A function to call with each job.Progress.
    """
    speed: _Speed | None = None

    def words(now: job.Progress, rates: tuple[float, float]) -> str:
        rejected = f"  {now.rejected} rejected" if now.rejected else ""
        return f"{now.files:,}/{now.total_files:,} files  {rates[0]:,.0f} images/s  {rates[1]:.1f} MB/s{rejected}"

    if not console.is_terminal:
        last_line = 0.0

        def line(now: job.Progress) -> None:
            nonlocal speed, last_line
            if speed is None:
                speed, last_line = _Speed(now), time.monotonic()
            elif time.monotonic() - last_line >= _LINE_EVERY_S:
                last_line = time.monotonic()
                console.print(f"packing: {words(now, speed.update(now))}", highlight=False)

        yield line
        return

    columns = (TextColumn("packing"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[words]}"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("pack", total=None, words="")
        last = 0.0

        def move(now: job.Progress) -> None:
            nonlocal speed, last
            speed = speed or _Speed(now)
            if time.monotonic() - last < 0.1 and now.files < now.total_files:
                return
            last = time.monotonic()
            text = words(now, speed.update(now))
            bar.update(task, total=max(now.total_bytes, 1), completed=now.bytes, words=text)

        yield move
