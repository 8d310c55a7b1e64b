"""The epochs of a course -> batches for the training loop, none twice, and what torch.compile makes of the loop."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from fastpipe.device.transfer import Batch
from fastpipe.errors import EngineError
from fastpipe.loading.course import Course
from fastpipe.loading.epoch import Epoch

_P = ParamSpec("_P")
_T = TypeVar("_T")

_LEAST_HELD_S = 1e-4  # less passes while one looks whether the device is ready
_REASON = (
    "fastpipe makes batches outside of compiled code. Without fullgraph=True a loop over a loader works in a compiled "
    "function. With it, compile the function that gets one batch, and keep the loop outside of it"
)


def uncompiled(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """torch.compiler.disable, which imports torch's compiler (a second) only where a program uses it already."""
    disabled: list[Callable[_P, _T]] = []

    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        if "torch._dynamo" not in sys.modules:
            return method(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(method))  # type: ignore[no-untyped-call]
        return disabled[0](*args, **kwargs)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    call._torchdynamo_disable_msg = _REASON  # type: ignore[attr-defined]
    return call


class Delivery:
    """Iterates one epoch. Queues the next batches on the device before it hands one out, if they are made by then.

    At the epoch's end those are of the next epoch.

    Several threads may share one: each batch goes to one of them. Iterators of one loader take turns, too.

    It takes its epoch when it is asked for the first batch, not before: training frameworks make iterators that they
    never use.

    Args:
        course: says which epoch comes next.
        on_batch: called with the seconds that the loop spent in here for a batch and those of the step before it;
            not for an epoch's first batch, before which there is no step.
    """

    def __init__(self, course: Course, on_batch: Callable[[float, float], None]) -> None:
        self._course = course
        self._on_batch = on_batch
        self._stats = course.maker.stats
        self._epoch: Epoch | None = None
        self._handed_out_at: float | None = None
        self._over = False  # by an error

    def __iter__(self) -> Delivery:
        return self

    def __len__(self) -> int:
        """Batches still to come."""
        return self._course.left if self._epoch is None else len(self._epoch)

    def skip_to(self, batch: int) -> None:
        """Begins at this batch of the epoch, if it has not begun, and would not begin later anyway."""
        if self._epoch is None:
            self._course.next.batches = max(batch, self._course.next.batches)

    @uncompiled
    def __next__(self) -> Batch:
        with self._course.lock:
            return self._next_batch()

    def _next_batch(self) -> Batch:
        if self._over:
            raise EngineError("an error ended this epoch; start a new one: for images, labels in loader")
        asked_at = time.perf_counter()
        if self._epoch is None:
            self._epoch = self._course.begin()
            self._stats.epoch = self._epoch.position.epoch
        epoch, held_s = self._epoch, self._stats.held_s
        if len(epoch) == 0:
            if epoch.position.batches:
                epoch.position.epoch += 1
                epoch.position.batches = 0
            raise StopIteration
        try:
            batch = self._next(epoch)
        except BaseException as problem:
            # Never a silent gap: whatever interrupted this, the next call says that the epoch is over.
            self._over = True
            epoch.cancel()
            if isinstance(problem, StopIteration):  # the loop would take it for the end of the epoch
                raise RuntimeError(
                    "a module of augment= raised StopIteration, as next() of an empty iterator does; correct it there"
                ) from problem
            raise
        now = time.perf_counter()
        # A device that was still at an earlier step has not waited for this batch.
        load_s = now - asked_at if self._stats.held_s - held_s < _LEAST_HELD_S else 0.0
        self._stats.load_s += load_s
        if self._handed_out_at is not None:
            step_s = now - self._handed_out_at - load_s
            self._stats.step_s += step_s
            self._on_batch(load_s, step_s)
        self._handed_out_at = now
        return batch

    def _next(self, epoch: Epoch) -> Batch:
        course, transfer = self._course, self._course.transfer
        course.maker.engine.check_usable()
        transfer.collect()
        if room := epoch.fill(course.maker.ahead + 1):
            course.go_ahead(epoch, made=min(room, course.maker.ahead))
        staged = epoch.take(transfer.lookahead)
        if (more := transfer.lookahead - len(epoch)) > 0:
            course.go_ahead(epoch, staged=more)
        batch = transfer.hand_over(staged)
        epoch.position.batches += 1
        self._stats.batches += 1
        self._stats.samples += len(staged.valid)
        return batch
