"""The progress of long work -> a bar in a terminal, or plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

# A log should not fill up, and a bar should look alive.
_LINE_EVERY_S = 10.0
_MOVE_EVERY_S = 0.1


class Work(Protocol):
    """Work that is counted in bytes."""

    @property
    def bytes(self) -> int:
        """Bytes that are done."""

    @property
    def total_bytes(self) -> int:
        """All bytes."""


class WorkProgress(NamedTuple):
    """The progress of work on things that have bytes."""

    done: int
    total: int
    bytes: int
    total_bytes: int
    problems: int = 0


W = TypeVar("W", bound=Work)


@contextlib.contextmanager
def show_progress(
    console: Console, doing: str, describe: Callable[[W], str]
) -> Iterator[Callable[[W], None]]:
    """Shows the progress of work: as a bar with the time left, or as a line now and then.

    Args:
        console: where to show it.
        doing: the first words of the bar or line.
        describe: describes the progress; called only when it is shown.

    Yields:
        A function to call with the progress whenever it has changed.
    """
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    is_terminal = console.is_terminal
    every_s = _MOVE_EVERY_S if is_terminal else _LINE_EVERY_S
    bar = Progress(
        # Names of folders may look like markup.
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[words]}", markup=False),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task(doing, total=None, words="")
    shown_s: float | None = None  # when it was shown last

    def show(progress: W) -> None:
        nonlocal shown_s
        now_s = time.monotonic()
        is_first = shown_s is None
        # A bar has to end full, however soon after its last move.
        is_complete = is_terminal and progress.bytes == progress.total_bytes
        if shown_s is not None and now_s - shown_s < every_s and not is_complete:
            return
        shown_s = now_s
        if is_terminal:
            total = max(progress.total_bytes, 1)
            bar.update(
                task, total=total, completed=progress.bytes, words=describe(progress)
            )
        elif not is_first:  # work that is soon over needs no line
            line = f"{doing}: {describe(progress)}"
            console.print(line, highlight=False, markup=False, emoji=False)

    with bar if is_terminal else contextlib.nullcontext():
        yield show
