"""How far a check is -> a bar in a terminal, or plain lines where there is none."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fastpipe.verify.job import Progress

_LINE_EVERY_S = 10.0
_MOVE_EVERY_S = 0.1


@contextlib.contextmanager
def verify_progress(console: Console) -> Iterator[Callable[[Progress], None]]:
    """Shows how far a check is: a bar with images/s, MB/s and time left, or a line now and then.

    Yields:
        A function to call with each Progress.
    """
    started = time.monotonic()
    last = started

    def words(now: Progress) -> str:
        seconds = max(time.monotonic() - started, 1e-6)
        found = f"  {now.findings} wrong" if now.findings else ""
        rates = f"{now.samples / seconds:,.0f} images/s  {now.bytes / seconds / 1e6:.1f} MB/s"
        return f"{now.samples:,}/{now.total_samples:,} samples  {rates}{found}"

    if not console.is_terminal:

        def line(now: Progress) -> None:
            nonlocal last
            if time.monotonic() - last >= _LINE_EVERY_S:
                last = time.monotonic()
                console.print(f"verifying: {words(now)}", highlight=False)

        yield line
        return

    columns = (TextColumn("verifying"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[words]}"))
    with Bar(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("verify", total=None, words="")

        def move(now: Progress) -> None:
            nonlocal last
            if time.monotonic() - last >= _MOVE_EVERY_S or now.bytes == now.total_bytes:
                last = time.monotonic()
                bar.update(task, total=max(now.total_bytes, 1), completed=now.bytes, words=words(now))

        yield move
