"""A DataLoader that a program iterates -> what it is made of, and when each batch was asked for and came, in a file."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import resource
import shutil
import time
from collections.abc import Callable
from typing import Any

from .files import Batch, Ending, Epoch, Log, State
from .inherited import held_lock, is_lock, note_threads
from .machine import Snapshots
from .objects import (
    Setting,
    batch_bytes,
    changed,
    generators,
    heavy,
    own_place,
    place,
    reached,
    refused_by_pickle,
    sample_name,
    settings,
    unpicklable,
)
from .own import raised_at
from .worker import Recorder, WorkerWatch

_OPTIONS = ("batch_size", "num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "drop_last", "timeout")
SHARED_MEMORY = "/dev/shm"
_EXIT_S = 1.0
_GONE = (RuntimeError, EOFError, OSError)  # by which torch tells that a worker is gone
_count = itertools.count()


class Line:
    """The files of the DataLoaders that one line makes with the same options, and their counts."""

    def __init__(self, folder: str, told: dict[str, Any]) -> None:
        self.key = f"{os.getpid()}.{next(_count)}"
        self.log = Log(os.path.join(folder, f"loader-{self.key}.jsonl"))
        self.state = State(os.path.join(folder, f"loader-{self.key}.state"))
        self.snapshots = Snapshots()
        self.loaders = self.epochs = self.batches = 0
        self.forked = told["method"] == "fork"
        self.log.write({"facts": told})

    def at(self, stage: str) -> None:
        """Notes what the loop is at, and how many batches it has had."""
        self.state.set(stage, self.batches)


class LoaderWatch:
    """Watches one DataLoader, made by the line `made_at`, in the process that iterates it.

    `lines` are those of the process's other DataLoaders; this one's own is added. `step` says whether there is a
    training step between two batches.
    """

    def __init__(
        self, folder: str, loader: Any, made_at: str, lines: dict[Any, Line] | None = None, *, step: bool = True
    ) -> None:
        lines = {} if lines is None else lines
        told = {**facts(loader, made_at), "step": step}
        same = os.getpid(), *alike(told)
        if same not in lines:
            lines[same] = Line(folder, told)
        self.line = lines[same]
        self._folder = folder
        self._process = os.getpid()
        self._made = self.line.loaders
        self.line.loaders += 1
        self._settings: dict[str, Setting] = {}
        self._indices = _TimedIndices(iter(()))
        self.starting: list[Any] = []  # processes of workers that pickle is, or was, at work for
        _note_threads_at_forks()

    def iterator(self, loader: Any, get_iterator: Callable[[Any], Any]) -> Any:
        """What `get_iterator(loader)` gives, with workers that are watched. Afterwards the loader is as it was."""
        init = loader.worker_init_fn
        watch = WorkerWatch(self._folder, self.line.key, init, loader.collate_fn, self.line.forked)
        self.starting = watch.starting
        loader.worker_init_fn = watch
        self._settings = settings(loader.dataset) if loader.persistent_workers else {}
        if self.line.forked and loader.num_workers:
            # The locks of multiprocessing that this process holds while it starts workers, which wait for them.
            locks = [(path, value) for path, value in reached(dataset=loader.dataset) if hasattr(value, "_semlock")]
            held = [path for path, value in locks if held_lock(value) and value._semlock._is_mine()]
            if held:
                self.line.log.write({"holds": held})
        try:
            iterator = get_iterator(loader)
        finally:
            loader.worker_init_fn = init
        if fetcher := getattr(iterator, "_dataset_fetcher", None):
            Recorder(self._folder, self.line.key, -1, loader.dataset).watch(fetcher)
        if type(iterator).__module__ == "torch.utils.data.dataloader":
            iterator._sampler_iter = self._indices = _TimedIndices(iterator._sampler_iter)
        return iterator

    def began(self, loader: Any, place: str = "") -> None:
        """An epoch is asked for, by a line of the program."""
        self.line.at("starting")
        self._epoch, self._number = self.line.epochs, 0
        self.line.epochs += 1
        stale = changed(self._settings, settings(loader.dataset) if self._settings else {})
        epoch = Epoch(time.monotonic(), place, _sampler(loader), self._made, stale, _ranks())
        self.line.log.write({"epochs": [vars(epoch)]})

    def next(self, iterator: Any, next_batch: Callable[[Any], Any]) -> Any:
        """What `next_batch(iterator)` gives or raises, which is noted; but for errors, see `failed`."""
        asked_s = time.monotonic()
        self.line.at("waiting")
        try:
            batch = next_batch(iterator)
        except StopIteration:
            if self._number:  # the step of the last batch ends here
                self.stepped(asked_s)
            self.line.at("ended")
            raise
        sampler_s, self._indices.seconds = self._indices.seconds, 0.0
        told = Batch(self._epoch, self._number, asked_s, time.monotonic(), batch_bytes(batch), sampler_s)
        self.line.log.write({"batches": [vars(told)], "snapshots": self.line.snapshots.due(self.line.batches)})
        self._number += 1
        self.line.batches += 1
        self.line.at("step")
        return batch

    def stepped(self, at_s: float | None = None) -> None:
        """The step of the last batch has ended, now or at `at_s`, where no next batch tells it."""
        self.line.log.write({"stepped": [(self._epoch, self._number - 1, at_s or time.monotonic())]})

    def failed(self, problem: BaseException, iterator: Any, dataset: Any, place: str = "") -> None:
        """Asking for a batch, by a line of the program, ended in an error."""
        text = f"{type(problem).__name__}: {str(problem)[:4000]}"
        refused = refused_by_pickle(dataset, "dataset") if "pickle" in text.lower() else []
        gone = exits(iterator) if isinstance(problem, _GONE) else []
        self.line.log.write({"errors": [vars(Ending(text, raised_at(problem) or place, gone, refused))]})
        self.line.at("failed")

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A copy of a watched loader, in another process or not, has no watch."""
        return type(None), ()

    def here(self) -> bool:
        """Whether this is the process that made it: a forked child has a copy."""
        return os.getpid() == self._process


class _TimedIndices:
    """A sampler's iterator, and how long it took for its numbers."""

    def __init__(self, indices: Any) -> None:
        self._own, self.seconds = indices, 0.0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        began_s = time.monotonic()
        try:
            return next(self._own)
        finally:
            self.seconds += time.monotonic() - began_s


def exits(iterator: Any) -> list[list[int]]:
    """The workers of an iterator that ended with an error: number, process, exit code."""
    workers = getattr(iterator, "_workers", None) or []
    until_s = time.monotonic() + _EXIT_S
    while True:
        found = [[number, worker.pid, worker.exitcode] for number, worker in enumerate(workers) if worker.exitcode]
        if found or not workers or time.monotonic() > until_s:
            return found
        time.sleep(0.02)  # one that has just died has an exit code soon


def _sampler(loader: Any) -> dict[str, Any] | None:
    """The epoch that a sampler with set_epoch is at, if it shuffles."""
    for owner in (loader, getattr(loader, "batch_sampler", None)):
        sampler: Any = getattr(owner, "sampler", None)
        shuffles = hasattr(sampler, "set_epoch") and getattr(sampler, "shuffle", True)
        if shuffles and isinstance(getattr(sampler, "epoch", None), int):
            return {"name": type(sampler).__name__, "epoch": sampler.epoch}
    return None


def _ranks() -> int:
    """Processes that train together, if it is an epoch of a training."""
    import torch

    together = torch.distributed.is_available() and torch.distributed.is_initialized() and torch.is_grad_enabled()
    return torch.distributed.get_world_size() if together else 1


def _whole(loader: Any) -> str:
    """The dataset's first sample, by name, where each epoch of a loader has all samples; else ""."""
    from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

    plain = type(loader.batch_sampler) is BatchSampler and type(loader.sampler) in (RandomSampler, SequentialSampler)
    return sample_name(loader.dataset, 0) if plain and len(loader.sampler) == _length(loader.dataset) else ""


@functools.cache
def _note_threads_at_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=note_threads)


def alike(told: dict[str, Any]) -> tuple[Any, ...]:
    """The facts that DataLoaders of one line have in common, if they are the same ones again; none without a line."""
    if not told["made_at"]:
        return (object(),)  # equal to no other
    names = ("made_at", "class", "dataset", "length", "batch_size", "num_workers", "method", "pin_memory")
    return tuple(told[name] for name in names)


def facts(loader: Any, made_at: str) -> dict[str, Any]:
    """A DataLoader's options, and what in its dataset is bad for worker processes."""
    import torch

    dataset, collate, init = loader.dataset, loader.collate_fn, loader.worker_init_fn
    context = loader.multiprocessing_context
    # allow_none: to ask without it would settle the method for the whole program.
    method = (multiprocessing if context is None else context).get_start_method(allow_none=True)
    roles = (("dataset", dataset), ("collate_fn", collate), ("worker_init_fn", init))
    device = getattr(torch, "accelerator", torch.cuda)  # what torch itself asks, where pin_memory is set
    return {
        **{name: getattr(loader, name) for name in _OPTIONS},
        "class": type(loader).__name__,
        "made_at": made_at,
        "dataset": type(dataset).__name__,
        "dataset_place": own_place(dataset, "dataset") or made_at,
        "collate_place": own_place(collate, "collate_fn") or made_at,
        "sampler_place": own_place([loader.batch_sampler, loader.sampler], "sampler") or made_at,
        "init": init is not None,
        "init_place": place(init) if init is not None else "",
        "collate_generators": sorted({*generators(collate_fn=collate)} - {*generators(dataset=dataset)}),
        "whole": _whole(loader),
        "files_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "locks": [path for path, value in reached(dataset=dataset) if is_lock(value)][:4],
        "stream": isinstance(dataset, torch.utils.data.IterableDataset),
        "shuffled": not isinstance(loader.sampler, torch.utils.data.SequentialSampler),
        "length": _length(dataset),
        "batches": _length(loader),
        "in_order": getattr(loader, "in_order", True),
        "method": method or multiprocessing.get_all_start_methods()[0],
        "accelerator": device.is_available() if loader.pin_memory else None,
        "uses_cuda": torch.cuda.is_initialized(),  # type: ignore[no-untyped-call]
        "unpicklable": [found for name, value in roles for found in unpicklable(value, name)],
        "heavy": heavy(dataset, "dataset"),
        "shared_free": shutil.disk_usage(SHARED_MEMORY).free if os.path.isdir(SHARED_MEMORY) else None,
        "pid": os.getpid(),
    }


def _length(of: Any) -> int | None:
    try:
        return len(of)
    except Exception:
        return None
