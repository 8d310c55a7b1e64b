"""A loader's figures at two times -> its speed and waits between them, as short text, shown while training runs."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from fastpipe.engine.stats import Stats
from fastpipe.errors import ConfigError, positive
from fastpipe.loading.advice import STAGES
from fastpipe.loading.loader import Loader

if TYPE_CHECKING:
    from rich.console import Console


def monitor(
    loader: Loader, *, every: float | None = None, console: Console | None = None
) -> AbstractContextManager[None]:
    """Shows a loader's speed, waits, threads and queues while training runs: in a terminal four lines that change,
    in a log one line from time to time.

        with fastpipe.monitor(loader):
            for images, labels in loader: ...

    Args:
        loader: the loader that the training loop iterates over.
        every: seconds between two updates; None: 1 in a terminal, 10 in a log.
        console: where to print; None: standard error.

    Raises:
        ConfigError: an argument is wrong.
    """
    if not isinstance(loader, Loader):
        raise ConfigError(f"loader: expected a loader that fastpipe.loader made, got {type(loader).__name__}")
    if console is not None and not hasattr(console, "is_terminal"):
        raise ConfigError(
            f"console: expected a rich.console.Console, got {type(console).__name__}; for a file, write "
            "rich.console.Console(file=...)"
        )
    return _shown(loader, None if every is None else positive("every", every), console)


@contextlib.contextmanager
def _shown(loader: Loader, every_s: float | None, console: Console | None) -> Iterator[None]:
    """A thread reads the loader's figures from time to time, and shows them."""
    # Imports come before the thread: they run code from strings, after which Python forgets that Ctrl-C ends it.
    from rich.console import Console

    console = console or Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    over = threading.Event()
    thread = threading.Thread(target=_show, args=(loader, every_s, console, over), name="fastpipe-monitor", daemon=True)
    try:
        thread.start()
        yield
    finally:
        over.set()
        if thread.is_alive():  # not if Ctrl-C came while this waited for its start
            thread.join()


def _show(loader: Loader, every_s: float | None, console: Console, over: threading.Event) -> None:
    from rich.live import Live
    from rich.table import Table

    if not console.is_terminal:
        for words in _looks(loader, every_s or 10.0, over):
            console.print(line(words))
        return
    # What the program prints goes above the display if it goes to a terminal; into a file it goes as ever.
    out, err = sys.stdout.isatty(), sys.stderr.isatty()
    with Live("fastpipe: ...", console=console, auto_refresh=False, redirect_stdout=out, redirect_stderr=err) as live:
        for words in _looks(loader, every_s or 1.0, over):
            table = Table.grid(padding=(0, 2))
            table.add_column(no_wrap=True)
            for what, text in words.items():
                table.add_row(what, text)
            live.update(table, refresh=True)


def _looks(loader: Loader, every_s: float, over: threading.Event) -> Iterator[dict[str, str]]:
    before, then_s = loader.stats(), time.monotonic()
    while not over.wait(min(every_s, threading.TIMEOUT_MAX)):
        after, now_s = loader.stats(), time.monotonic()
        yield describe(before, after, now_s - then_s, len(loader))
        before, then_s = after, now_s


def describe(before: Stats, after: Stats, seconds: float, batches: int) -> dict[str, str]:
    """What a loader did between two looks, and what waits in it at the second, by subject; `batches`: of an epoch."""
    done = after.since(before)
    epoch = f"epoch {after.epoch} ({batches:,} batches)" if after.epoch >= 0 else "not begun"
    rates = f"{done.samples / seconds:,.0f} images/s; {done.bytes_read / seconds / 1e6:,.0f} MB/s read"
    words = {"fastpipe": f"{epoch}; {rates}"}
    if after.replaced:
        words["fastpipe"] += f"; {after.replaced:,} samples replaced"
    if done.step_s > 0:
        words["loop"] = _loop(done)
    words["threads"] = f"{after.threads_busy} of {after.threads} busy"
    spent = {"read": done.read_s, "decode": done.decode_s, "resize": done.resize_s}
    if (busy := sum(spent.values())) > 0:
        words["threads"] += ", " + ", ".join(f"{stage} {seconds / busy:.0%}" for stage, seconds in spent.items())
    if after.requests:
        words["network"] = _network(done, seconds)
    ahead = after.batches_ready + after.batches_making
    words["queues"] = f"{after.batches_ready} of {ahead} batches ready, {after.rows_waiting:,} rows waiting"
    if after.batches_copying:
        words["queues"] += f", {after.batches_copying} being copied to the device"
    return words


def _network(done: Stats, seconds: float) -> str:
    text = f"{done.fetched_bytes / seconds / 1e6:,.0f} MB/s, {done.requests_under_way} requests under way"
    wanted = done.fetched_bytes + done.cache_hit_bytes
    if wanted:
        text += f"; {done.cache_hit_bytes / wanted:.0%} from the cache"
    if done.retries:
        text += f"; {done.retries:,} requests made again"
    return text


def _loop(done: Stats) -> str:
    ratio = done.load_ratio
    how_long = f"{ratio:.0%} of the steps' time" if ratio < 1 else f"{ratio:,.1f} times as long as the steps took"
    text = f"waited {how_long}"
    if ratio > 0.1 and getattr(done, done.slowest) > 0:
        text += f", most of it for {STAGES[done.slowest]}"
    if done.held_s > 0.1 * done.step_s:
        text += f"; {done.held_s / done.step_s:.0%} of it waiting for its device"
    return text


def line(words: dict[str, str]) -> str:
    """What `describe` says, for a log."""
    return "; ".join(text if what == "loop" else f"{what}: {text}" for what, text in words.items())
