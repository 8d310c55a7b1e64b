"""The fields of a batch -> the entries that a user's function makes of them, ahead of the loop."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.dataset.fields import group_by_sample, split_by_row
from fastpipe.engine.stats import Stats
from fastpipe.errors import ConfigError, did_you_mean, first_names
from fastpipe.machine.binding import unbind_thread
from fastpipe.plan import draws
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.host_batch import HostFields

Function = Callable[[dict[str, Any]], Mapping[str, Any]]
_MAX_NAMED = 8  # samples in a message

# The threads of all loaders. At the end of a program, concurrent.futures runs everything that was
# submitted to a ThreadPoolExecutor. The batches that nobody takes any more need not be prepared.
_executors: weakref.WeakSet[ThreadPoolExecutor] = weakref.WeakSet()


def _cancel_all() -> None:
    for executor in list(_executors):
        executor.shutdown(wait=False, cancel_futures=True)


# Registered after concurrent.futures has registered its own function, so it runs before that.
threading._register_atexit(_cancel_all)  # type: ignore[attr-defined]


class _Entries(dict[str, Any]):
    """The entries that the function gets, by key.

    Attributes:
        not_yet: keys of the batch whose values other threads are making meanwhile.
    """

    def __init__(self, entries: Mapping[str, Any], not_yet: Collection[str]) -> None:
        super().__init__(entries)
        self.not_yet = not_yet

    def __missing__(self, key: object) -> NoReturn:
        if key in self.not_yet:
            raise ConfigError(
                f"{key!r} is not decoded yet when the function is called: it gets "
                f"{', '.join(self)}. Change {key!r} in the training loop, or by augment="
            )
        advice = did_you_mean(key, self)
        if not advice:
            advice = f". Pass it to fastpipe.loader, too: fields=[..., {key!r}]"
        raise ConfigError(
            f"the function gets {', '.join(self)}, and no {key!r}{advice}"
        )


class Prepare:
    """Calls the function for one batch after the other, in a thread that begins with the first."""

    def __init__(
        self,
        function: Function,
        read: Callable[..., HostFields],
        stats: Stats,
        seed: int,
    ) -> None:
        self._function = function
        self._read = read  # FieldReader.read
        self._seed = seed
        self._stats = stats
        self._executor = ThreadPoolExecutor(
            1, thread_name_prefix="fastpipe-prepare", initializer=unbind_thread
        )
        _executors.add(self._executor)

    def begin(self, plan: BatchPlan, epoch: int, number: int) -> Future[HostFields]:
        """Has the fields of a batch read, and the function called. ConfigError if it fails."""
        return self._executor.submit(self._run, plan, epoch, number)

    def _run(self, plan: BatchPlan, epoch: int, number: int) -> HostFields:
        # Not part of prepare_s, as it is the loader's own work.
        fields = self._read(plan, seed=self._seed, epoch=epoch)
        started = time.perf_counter()
        try:
            entries = self._function(self._arguments(fields, plan, epoch))
            return _with_entries(fields, entries)
        except Exception as problem:
            reason = f"the function failed: {problem!r}"
            if isinstance(problem, ConfigError):
                reason = str(problem)
            ids = [str(sample) for sample in plan.ids.tolist()]
            samples = first_names(ids, _MAX_NAMED)
            raise ConfigError(
                f"prepare: batch {number} of epoch {epoch}, samples {samples}: {reason}"
            ) from problem
        finally:
            self._stats.prepare_s += time.perf_counter() - started

    def _arguments(self, fields: HostFields, plan: BatchPlan, epoch: int) -> _Entries:
        """What the function gets: entries of the batch, and seeds for draws of its own."""
        arguments = _entries_on_host(fields, plan, epoch)
        # A field of the dataset may have this name.
        if "seeds" not in arguments:
            stream_key = draws.key(self._seed, epoch, draws.Stream.PREPARE)
            arguments["seeds"] = draws.bits(stream_key, plan.names)
        not_yet = fields.names.keys() - arguments.keys()
        return _Entries(arguments, not_yet)

    def close(self) -> None:
        """Ends the thread, when the function has returned."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _entries_on_host(fields: HostFields, plan: BatchPlan, epoch: int) -> dict[str, Any]:
    """Copies of the entries of a batch that are on the host already, by key."""
    values: dict[str, Any] = {
        "label": plan.labels,
        "id": plan.ids,
        "valid": plan.valid,
        "epoch": epoch,
        **fields.arrays,
        **fields.lists,
    }
    # Boxes and points, by view where there are several.
    by_view: dict[str, list[Any]] = {}
    for view, places in zip(plan.views, fields.places, strict=True):
        for name, placed in places.items():
            by_view.setdefault(name, []).append(
                _by_row(placed.values, placed.rows, view)
            )
            if placed.labels is not None:
                labels = _by_row(placed.labels, placed.rows, view)
                by_view.setdefault(f"{name}_labels", []).append(labels)
    for name, views in by_view.items():
        values[name] = views if plan.other_views else views[0]

    # Copies, because the function may change what it gets.
    entries = {}
    for key, name in fields.names.items():
        if name in values:
            entries[key] = _copy(values[name])
    return entries


def _copy(value: Any) -> Any:
    """A copy of a value, also of the arrays of boxes and the JSON in lists."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [_copy(part) for part in value]
    if isinstance(value, dict):
        return {name: _copy(part) for name, part in value.items()}
    return value


def _by_row(array: NDArray[Any], rows: Int64s, plan: BatchPlan) -> list[Any]:
    return group_by_sample(split_by_row(array, rows, plan), plan)


def _with_entries(fields: HostFields, entries: object) -> HostFields:
    """Adds the entries that the function returned.

    Tensors and arrays of numbers go to the device, and everything else stays as it is.
    """
    if not isinstance(entries, Mapping):
        raise ConfigError(
            f"expected a dict of entries to add or to replace, got {type(entries).__name__}"
        )
    # These entries do not exist yet, or have no final values.
    made_by_others = (
        "image",
        "image_size",
        "pixel_mask",
        *fields.images,
        *fields.stored_arrays,
        *fields.picture_lists,
    )
    names = dict(fields.names)
    for key, value in entries.items():
        if not isinstance(key, str):
            raise ConfigError(f"expected texts as keys, got {key!r}")
        if names.get(key) in made_by_others:
            raise ConfigError(
                f"{key!r} is made by other threads meanwhile, and cannot be replaced; use another "
                "key"
            )
        names[key] = f"prepare.{key}"
        if isinstance(value, (torch.Tensor, np.ndarray)):
            fields.arrays[names[key]] = _as_array(key, value)
        else:
            fields.lists[names[key]] = value
    return replace(fields, names=names)


def _as_array(key: str, value: torch.Tensor | NDArray[Any]) -> NDArray[Any]:
    try:
        array = (
            value.detach().numpy()
            if isinstance(value, torch.Tensor)
            else np.asarray(value)
        )
        torch.from_numpy(np.empty(0, array.dtype))  # raises if torch has no such dtype
    except (TypeError, RuntimeError) as problem:
        raise ConfigError(
            f"{key!r}: expected a tensor of the CPU, of a dtype that numpy has: {problem}"
        ) from problem
    return np.ascontiguousarray(array)
