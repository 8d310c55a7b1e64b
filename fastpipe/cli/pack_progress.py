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


@contextlib.contextmanager
def pack_progress(console: Console) -> Iterator[Callable[[PackProgress], None]]:
    """Shows how far a pack is: a bar with images/s, MB/s and time left, or a line now and then."""
    seen: list[tuple[float, PackProgress]] = []  # of this step, over the last few seconds

    def words(now: PackProgress) -> str:
        seen.append((time.monotonic(), now))
        while len(seen) > 2 and seen[-1][0] - seen[1][0] > _SPEED_OVER_S:
            seen.pop(0)
        then_s, then = seen[0]
        span_s = max(seen[-1][0] - then_s, 1e-6)
        images, megabytes = (now.files - then.files) / span_s, (now.bytes - then.bytes) / span_s / 1e6
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
            if not seen or now.step != seen[-1][1].step:
                seen[:] = [(time.monotonic(), now)]
            show(now)

        yield update
