"""A device's queue in which nothing is done before the test says so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(eq=False)
class FakeMark:
    """A mark that is done when the test says so; waiting for it is noted and makes it done, after `late` times."""

    stream: FakeStream
    what: str
    is_done: bool = False

    def done(self) -> bool:
        self.stream.asked.append(self.what)
        if self.stream.error is not None:
            raise self.stream.error
        return self.is_done or self.stream.at_once

    def wait(self, timeout_s: float) -> bool:
        self.stream.log.append(f"wait {self.what}")
        time.sleep(self.stream.pause_s)
        self.is_done = self.stream.late == 0
        self.stream.late = max(0, self.stream.late - 1)
        return self.is_done

    def since(self, earlier: FakeMark) -> float:
        return 0.25


@dataclass
class FakeStream:
    """Looks like another device to what it is given to: it asks for copies, and looks ahead.

    Attributes:
        at_once: marks are done when they are made.
        late, pause_s: waits that are in vain, and seconds that each wait takes.
        log: what was asked for, in order.
        marks: all that were made in the stream itself.
        asked: marks that were asked whether they are done.
        error: what asking raises.
        handed: addresses of the memory that was handed over with each batch.
    """

    at_once: bool = True
    lookahead: int = 1
    late: int = 0
    pause_s: float = 0.0
    log: list[str] = field(default_factory=list)
    marks: list[FakeMark] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    error: Exception | None = None
    handed: list[list[int]] = field(default_factory=list)
    slots: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    copies: bool = True

    @property
    def pinned_bytes(self) -> int:
        return 1000 * self.slots

    def slot(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        self.slots += 1
        return np.empty(shape, dtype=np.uint8)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    @contextmanager
    def work(self, follows: bool = False) -> Iterator[None]:
        self.log.append("begin")
        yield
        self.log.append("queued")

    def mark(self) -> FakeMark:
        self.marks.append(FakeMark(self, f"mark {len(self.marks)}"))
        return self.marks[-1]

    def hand_over(self, mark: FakeMark, tensors: tuple[torch.Tensor, ...]) -> FakeMark:
        self.log.append("hand over")
        self.handed.append([tensor.untyped_storage().data_ptr() for tensor in tensors])
        return FakeMark(self, "user")
