"""The fields of a batch -> the entries that a user's function makes of them, in a thread ahead of the loop."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.engine.stats import Stats
from fastpipe.errors import ConfigError
from fastpipe.machine.binding import unbind_thread
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.host_batch import HostFields
from fastpipe.samples.fields import by_sample, split

Function = Callable[[dict[str, Any]], Mapping[str, Any]]
_MOST_NAMED = 8  # samples in a message

# The threads of all loaders. A program that ends runs all that was submitted to a ThreadPoolExecutor; the batches of an
# epoch that nobody takes any more need not be prepared.
_threads: weakref.WeakSet[ThreadPoolExecutor] = weakref.WeakSet()


def _cancel_all() -> None:
    for thread in list(_threads):
        thread.shutdown(wait=False, cancel_futures=True)


threading._register_atexit(_cancel_all)  # type: ignore[attr-defined]  # before that of concurrent.futures


class Prepare:
    """Calls the function for one batch after the other, in a thread of its own that begins with the first batch."""

    def __init__(self, function: Function, read: Callable[[BatchPlan], HostFields], stats: Stats) -> None:
        self._function, self._read, self._stats = function, read, stats
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fastpipe-prepare", initializer=unbind_thread)
        _threads.add(self._thread)

    def begin(self, rows: BatchPlan, epoch: int, number: int) -> Future[HostFields]:
        """What a batch has besides images, with what the function makes of it; soon. ConfigError if it fails."""
        return self._thread.submit(self._make, rows, epoch, number)

    def _make(self, rows: BatchPlan, epoch: int, number: int) -> HostFields:
        values = self._read(rows)
        started = time.perf_counter()
        try:
            return _with_entries(values, self._function(_given(values, rows, epoch)))
        except Exception as problem:
            named = ", ".join(map(str, rows.ids[:_MOST_NAMED])) + ", ..." * (len(rows.samples) > _MOST_NAMED)
            said = str(problem) if isinstance(problem, ConfigError) else f"the function failed: {problem!r}"
            raise ConfigError(f"prepare: batch {number} of epoch {epoch}, samples {named}: {said}") from problem
        finally:
            self._stats.prepare_s += time.perf_counter() - started

    def close(self) -> None:
        """Ends the thread, when the function has returned."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _given(values: HostFields, rows: BatchPlan, epoch: int) -> dict[str, Any]:
    """What the function gets: the batch's entries that are on the host already, by key."""
    own = {"label": rows.labels, "id": rows.ids, "valid": rows.valid, "epoch": epoch, **values.arrays, **values.lists}
    by_view: dict[str, list[Any]] = {}
    for view, places in zip(rows.views, values.places, strict=True):
        for name, placed in places.items():
            by_view.setdefault(name, []).append(_by_row(placed.values, placed.rows, view))
            if placed.labels is not None:
                by_view.setdefault(f"{name}_labels", []).append(_by_row(placed.labels, placed.rows, view))
    own.update({name: each if rows.more else each[0] for name, each in by_view.items()})
    given = {key: own[name] for key, name in values.names.items() if name in own}
    return {key: value.copy() if isinstance(value, (np.ndarray, list)) else value for key, value in given.items()}


def _by_row(array: NDArray[Any], rows: NDArray[np.int64], plan: BatchPlan) -> list[Any]:
    return by_sample(split(array, rows, plan), plan)


def _with_entries(values: HostFields, made: object) -> HostFields:
    """The values with what the function returned. Tensors and arrays of numbers go to the device, all else as it is."""
    if not isinstance(made, Mapping):
        raise ConfigError(f"expected a dict of entries to add or to replace, got {type(made).__name__}")
    names = dict(values.names)
    for key, value in made.items():
        if not isinstance(key, str):
            raise ConfigError(f"expected texts as keys, got {key!r}")
        if names.get(key) in ("image", "image_size", "pixel_mask", *values.images):
            raise ConfigError(f"{key!r} is made by other threads meanwhile, and cannot be replaced; use another key")
        names[key] = f"prepare.{key}"
        if isinstance(value, (torch.Tensor, np.ndarray)):
            values.arrays[names[key]] = _array(key, value)
        else:
            values.lists[names[key]] = value
    return replace(values, names=names)


def _array(key: str, value: torch.Tensor | NDArray[Any]) -> NDArray[Any]:
    try:
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        torch.from_numpy(np.empty(0, array.dtype))
    except (TypeError, RuntimeError) as problem:
        raise ConfigError(f"{key!r}: expected a tensor of the CPU, of a dtype that numpy has: {problem}") from problem
    return np.ascontiguousarray(array)
