"""A loader's figures at two times -> one line about what happens between them, printed while training runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING

from fastpipe.config import positive
from fastpipe.loader import Loader
from fastpipe.stats import Stats

if TYPE_CHECKING:
    from rich.console import Console

_STAGES = {"wait_s": "decoding threads", "plan_s": "planning", "transfer_s": "copying", "augment_s": "augmenting"}
_THREADS = {"read_s": "read", "decode_s": "decode", "resize_s": "resize"}


def monitor(loader: Loader, *, every: float | None = None, console: Console | None = None) -> Monitor:
    """Prints, while training runs, how a loader does: in a terminal as one line that is kept up to date.

        with fastpipe.monitor(loader):
            for images, labels in loader: ...

    Args:
        loader: that the training loop iterates.
        every: seconds between two looks; None: 1 in a terminal, 10 where each look prints a line of its own.
        console: where to; None: standard error.

    Raises:
        ConfigError: `every` is no number above 0.
    """
    return Monitor(loader, None if every is None else positive("every", every), console)


class Monitor:
    """Made by `fastpipe.monitor`; a context manager. A thread looks at the loader's figures now and then."""

    def __init__(self, loader: Loader, every_s: float | None, console: Console | None) -> None:
        self._loader = loader
        self._every_s = every_s
        self._console = console
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Monitor:
        from rich.console import Console

        self._stop.clear()
        console = self._console or Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        self._thread = threading.Thread(target=self._run, args=(console,), name="fastpipe-monitor", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, console: Console) -> None:
        from rich.live import Live
        from rich.text import Text

        if not console.is_terminal:
            self._look(self._every_s or 10.0, console.print)
            return
        with Live(Text("fastpipe: ..."), console=console, auto_refresh=False) as live:
            self._look(self._every_s or 1.0, lambda text: live.update(Text(text), refresh=True))

    def _look(self, every_s: float, show: Callable[[str], None]) -> None:
        before, then_s = self._loader.stats(), time.monotonic()
        while not self._stop.wait(every_s):
            after, now_s = self._loader.stats(), time.monotonic()
            show(line(before, after, now_s - then_s, len(self._loader)))
            before, then_s = after, now_s


def line(before: Stats, after: Stats, seconds: float, batches: int) -> str:
    """What a loader did between two looks.

    Args:
        before, after: its figures.
        seconds: between them.
        batches: an epoch.
    """
    done = after.since(before)
    spent = asdict(done)
    parts = [f"epoch {after.epoch} ({batches:,} batches)" if after.epoch >= 0 else "not begun"]
    parts.append(f"{done.samples / seconds:,.0f} images/s")
    parts.append(f"{done.bytes_read / seconds / 1e6:,.0f} MB/s read")
    if done.step_s > 0:
        text = f"waited {done.load_ratio:.0%} of the steps' time"
        slowest = max(_STAGES, key=spent.__getitem__)
        if done.load_ratio > 0.1 and spent[slowest] > 0:
            text += f", most of it for {_STAGES[slowest]}"
        parts.append(text)
    busy = sum(spent[name] for name in _THREADS)
    if busy > 0:
        shares = ", ".join(f"{word} {spent[name] / busy:.0%}" for name, word in _THREADS.items())
        parts.append(f"threads: {shares}")
    if after.replaced:
        parts.append(f"{after.replaced:,} samples replaced")
    return "fastpipe: " + "; ".join(parts)
