"""A loader's figures at two times -> its speed and waits between them, as text to show."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from fastpipe.arguments import refusing_unknown
from fastpipe.engine.stats import Stats
from fastpipe.errors import ConfigError, positive
from fastpipe.loading.advice import STAGES
from fastpipe.loading.loader import Loader

if TYPE_CHECKING:
    from rich.console import Console


@refusing_unknown("fastpipe.monitor")
def monitor(
    loader: Loader, *, every: float | None = None, console: Console | None = None
) -> AbstractContextManager[None]:
    """Shows a loader's speed, waits, threads and queues while training runs: in a terminal four
    lines that change, in a log one line from time to time.

        with fastpipe.monitor(loader):
            for images, labels in loader: ...

    Args:
        loader: the loader that the training loop iterates over.
        every: seconds between two updates; None: 1 in a terminal, 10 in a log.
        console: where to print; None: standard error.

    Raises:
        ConfigError: an argument is wrong.

    Example:
        >>> loader = fastpipe.loader("data/train", batch_size=8, size=32)
        >>> with fastpipe.monitor(loader):
        ...     for images, labels in loader:
        ...         pass
    """
    if not isinstance(loader, Loader):
        raise ConfigError(
            f"loader: expected a loader that fastpipe.loader made, got {type(loader).__name__}"
        )
    if console is not None and not hasattr(console, "is_terminal"):
        raise ConfigError(
            f"console: expected a rich.console.Console, got {type(console).__name__}; for a file, "
            "write rich.console.Console(file=...)"
        )
    if every is not None:
        every = positive("every", every)
    return _show_meanwhile(loader, every, console)


@contextlib.contextmanager
def _show_meanwhile(
    loader: Loader, every_s: float | None, console: Console | None
) -> Iterator[None]:
    """Starts a thread that reads the loader's figures from time to time, and shows them."""
    # Imported before the thread starts, because these imports run code from strings; if they run it
    # in a thread, Python forgets that Ctrl-C ends it.
    from rich.console import Console

    if console is None:
        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    is_over = threading.Event()
    thread = threading.Thread(
        target=_show,
        args=(loader, every_s, console, is_over),
        name="fastpipe-monitor",
        daemon=True,
    )
    try:
        thread.start()
        yield
    finally:
        is_over.set()
        if thread.is_alive():  # not if Ctrl-C interrupted its start
            thread.join()


def _show(
    loader: Loader, every_s: float | None, console: Console, is_over: threading.Event
) -> None:
    from rich.live import Live
    from rich.table import Table

    if not console.is_terminal:
        for texts in _readings(loader, every_s or 10.0, is_over):
            console.print(format_line(texts))
        return
    # What the program prints to a terminal goes above the display; into a file it goes as ever.
    live = Live(
        "fastpipe: ...",
        console=console,
        auto_refresh=False,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
    )
    with live:
        for texts in _readings(loader, every_s or 1.0, is_over):
            table = Table.grid(padding=(0, 2))
            table.add_column(no_wrap=True)
            for subject, text in texts.items():
                table.add_row(subject, text)
            live.update(table, refresh=True)


def _readings(
    loader: Loader, every_s: float, is_over: threading.Event
) -> Iterator[dict[str, str]]:
    # Every text is about the time since the text before it.
    before = loader.stats()
    before_s = time.monotonic()
    while not is_over.wait(min(every_s, threading.TIMEOUT_MAX)):
        after = loader.stats()
        after_s = time.monotonic()
        yield describe(before, after, after_s - before_s, len(loader))
        before = after
        before_s = after_s


def describe(
    before: Stats, after: Stats, seconds: float, batches: int
) -> dict[str, str]:
    """Describes what a loader did between two readings, and its queues at the second, by subject.

    `batches` is the number in an epoch.
    """
    # Counts and times of these seconds; levels are the latest.
    done = after.since(before)
    epoch = "not begun"
    if after.epoch >= 0:
        epoch = f"epoch {after.epoch} ({batches:,} batches)"
    images_per_s = done.samples / seconds
    mb_per_s = done.bytes_read / seconds / 1e6
    speed = f"{epoch}; {images_per_s:,.0f} images/s; {mb_per_s:,.0f} MB/s read"
    if after.replaced:
        speed += f"; {after.replaced:,} samples replaced"

    texts = {"fastpipe": speed}
    if done.step_s > 0:
        texts["loop"] = _describe_loop(done)
    texts["threads"] = _describe_threads(after, done)
    if after.requests:
        texts["network"] = _describe_network(done, seconds)
    texts["queues"] = _describe_queues(after)
    return texts


def _describe_threads(after: Stats, done: Stats) -> str:
    text = f"{after.threads_busy} of {after.threads} busy"
    stage_s = {"read": done.read_s, "decode": done.decode_s, "resize": done.resize_s}
    total_s = sum(stage_s.values())
    if total_s > 0:
        for stage, spent_s in stage_s.items():
            text += f", {stage} {spent_s / total_s:.0%}"
    return text


def _describe_queues(after: Stats) -> str:
    # If none is ready, the loop waits for the engine; if all are, the engine waits for the loop.
    num_pending = after.batches_ready + after.batches_making
    text = f"{after.batches_ready} of {num_pending} batches ready, {after.rows_waiting:,} rows waiting"
    if after.batches_copying:
        text += f", {after.batches_copying} being copied to the device"
    return text


def _describe_network(done: Stats, seconds: float) -> str:
    mb_per_s = done.fetched_bytes / seconds / 1e6
    text = f"{mb_per_s:,.0f} MB/s, {done.requests_under_way} requests under way"
    needed_bytes = done.fetched_bytes + done.cache_hit_bytes
    if needed_bytes:
        text += f"; {done.cache_hit_bytes / needed_bytes:.0%} from the cache"
    if done.retries:
        text += f"; {done.retries:,} requests made again"
    return text


def _describe_loop(done: Stats) -> str:
    ratio = done.load_ratio
    # A percentage above 100 would be hard to read.
    text = f"waited {ratio:,.1f} times as long as the steps took"
    if ratio < 1:
        text = f"waited {ratio:.0%} of the steps' time"
    if ratio > 0.1 and getattr(done, done.slowest) > 0:
        text += f", most of it for {STAGES[done.slowest]}"
    if done.held_s > 0.1 * done.step_s:
        text += f"; {done.held_s / done.step_s:.0%} of it waiting for its device"
    return text


def format_line(texts: dict[str, str]) -> str:
    """Joins the texts of `describe` for a log."""
    parts = []
    for subject, text in texts.items():
        if subject != "loop":
            text = f"{subject}: {text}"
        parts.append(text)
    return "; ".join(parts)
