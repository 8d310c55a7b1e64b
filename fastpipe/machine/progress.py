"""The progress of long work -> a bar in a terminal, or plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

_LINE_EVERY_S = 10.0
_MOVE_EVERY_S = 0.1


class Work(Protocol):
    """Work that is counted in bytes: those done, and all."""

    @property
    def bytes(self) -> int: ...

    @property
    def total_bytes(self) -> int: ...


class HowFar(NamedTuple):
    """How far work is: things and their bytes, done and in all, and problems so far."""

    done: int
    total: int
    bytes: int
    total_bytes: int
    problems: int = 0


W = TypeVar("W", bound=Work)


@contextlib.contextmanager
def shown(console: Console, doing: str, words: Callable[[W], str]) -> Iterator[Callable[[W], None]]:
    """Shows how far work is: a bar with time left, or a line now and then, which begin with `doing`. Yields a function
    to call as often as there is something new; it asks for `words` only when they are shown.
    """
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    terminal = console.is_terminal
    last: float | None = None
    every_s = _MOVE_EVERY_S if terminal else _LINE_EVERY_S
    what = TextColumn("{task.description}", markup=False)  # names of folders may look like markup
    how_far = TextColumn("{task.fields[words]}", markup=False)
    columns = (what, BarColumn(), TaskProgressColumn(), how_far, TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(doing, total=None, words="")

    def tell(now: W) -> None:
        nonlocal last
        at_s = time.monotonic()
        if last is not None and at_s - last < every_s and not (terminal and now.bytes == now.total_bytes):
            return
        first, last = last is None, at_s
        if terminal:
            bar.update(task, total=max(now.total_bytes, 1), completed=now.bytes, words=words(now))
        elif not first:  # work that is soon over needs no line
            console.print(f"{doing}: {words(now)}", highlight=False, markup=False, emoji=False)

    with bar if terminal else contextlib.nullcontext():
        yield tell
