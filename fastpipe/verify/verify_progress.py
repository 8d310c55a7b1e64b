"""The progress of a check -> a line of text."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console

from fastpipe.progress import shown
from fastpipe.verify.check_shards import VerifyProgress


@contextlib.contextmanager
def verify_progress(console: Console) -> Iterator[Callable[[VerifyProgress], None]]:
    """Shows how far a check is: a bar with images/s, MB/s and time left, or a line now and then.

    Yields:
        A function to call with each VerifyProgress.
    """
    started = time.monotonic()

    def words(now: VerifyProgress) -> str:
        seconds = max(time.monotonic() - started, 1e-6)
        found = f"  problems: {now.findings}" if now.findings else ""
        rates = f"{now.samples / seconds:,.0f} images/s  {now.bytes / seconds / 1e6:.1f} MB/s"
        return f"{now.samples:,}/{now.total_samples:,} samples  {rates}{found}"

    with shown(console, "verifying", words) as show:
        yield show
