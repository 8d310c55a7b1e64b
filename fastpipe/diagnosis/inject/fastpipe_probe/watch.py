"""A DataLoader that a program iterates -> what it is made of, and when each batch was asked for and came, in a file."""

from __future__ import annotations

import functools
import multiprocessing
import os
import shutil
import time
import weakref
from collections.abc import Callable
from typing import Any

from .files import Batch, Ending, Epoch, Log, State
from .inherited import held_lock, is_lock, note_threads
from .machine import Snapshots
from .objects import batch_bytes, heavy, own_place, place, plain_values, reached, refused_by_pickle, unpicklable
from .own import raised_at
from .worker import WorkerWatch, watch_without_workers

SHARED_MEMORY = "/dev/shm"
_count = 0
_EXIT_S = 1.0
_GONE = (RuntimeError, EOFError, OSError)  # by which torch tells that a worker is gone


class LoaderWatch:
    """Watches one DataLoader in the process that iterates it.

    Args:
        folder: where the files go.
        loader: torch's DataLoader.
        made_at: file and line that made it; "" where that is not known.
        step: whether there is a training step between two batches.
    """

    def __init__(self, folder: str, loader: Any, made_at: str, *, step: bool = True) -> None:
        global _count
        self.key = f"{os.getpid()}.{_count}"
        _count += 1
        self._folder = folder
        self._process = os.getpid()
        self._log = Log(os.path.join(folder, f"loader-{self.key}.jsonl"))
        self._state = State(os.path.join(folder, f"loader-{self.key}.state"))
        self._snapshots = Snapshots()
        self._epoch = -1
        self._number = self._all = 0
        self._loader = weakref.ref(loader)
        self._values: dict[str, str] = {}
        self._indices = _TimedIndices(iter(()))
        self.starting: list[Any] = []  # processes of workers that pickle is, or was, at work for
        told = facts(loader, made_at)
        self._forked = told["method"] == "fork"
        self._log.write({"facts": {**told, "step": step}})
        _note_threads_at_forks()

    def iterator(self, loader: Any, get_iterator: Callable[[Any], Any]) -> Any:
        """What `get_iterator(loader)` gives, with workers that are watched. Afterwards the loader is as it was."""
        self._state.set("starting")
        init = loader.worker_init_fn
        watch = WorkerWatch(self._folder, self.key, init, forked=self._forked)
        self.starting = watch.starting
        loader.worker_init_fn = watch
        self._values = plain_values(loader.dataset)
        if self._forked and loader.num_workers:
            self._note_locks(loader)
        try:
            iterator = get_iterator(loader)
        finally:
            loader.worker_init_fn = init
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if fetcher is not None:
            watch_without_workers(self._folder, self.key, fetcher, loader.dataset)
        if type(iterator).__module__ == "torch.utils.data.dataloader":
            iterator._sampler_iter = self._indices = _TimedIndices(iterator._sampler_iter)
        return iterator

    def _note_locks(self, loader: Any) -> None:
        """The locks of multiprocessing that this process holds while it starts workers, which wait for them."""
        held = [
            path
            for path, value in reached(loader.dataset)
            if (held_lock(value) or "").startswith("multi") and value._semlock._is_mine()
        ]
        if held:
            self._log.write({"holds": held})

    def began(self, line: str = "") -> None:
        """An epoch is asked for, by a line of the program."""
        self._epoch += 1
        self._number = 0
        self._state.set("starting")
        loader = self._loader()
        changed: list[str] = []
        if self._values and loader is not None and loader.persistent_workers:
            now = plain_values(loader.dataset)
            changed = [key for key, value in self._values.items() if now.get(key, value) != value]
        epoch = Epoch(time.monotonic(), line, _sampler(loader), changed=changed)
        self._log.write({"epochs": [vars(epoch)]})

    def asked(self) -> None:
        """A batch is asked for."""
        self._asked_s = time.monotonic()
        self._state.set("waiting")

    def came(self, batch: Any) -> None:
        """A batch is there; the step begins."""
        came_s = time.monotonic()
        sampler_s, self._indices.seconds = self._indices.seconds, 0.0
        told = Batch(self._epoch, self._number, self._asked_s, came_s, batch_bytes(batch), sampler_s=sampler_s)
        line: dict[str, Any] = {"batches": [vars(told)]}
        if self._snapshots.due(came_s):
            line["snapshots"] = [self._snapshots.take(self._all)]
        self._number += 1
        self._all += 1
        self._log.write(line)
        self._state.set("step")

    def stepped(self) -> None:
        """The training step ended, where that can be told otherwise than by the next batch."""
        self._log.write({"stepped_s": time.monotonic()})
        self._state.set("between")

    def ended(self) -> None:
        """The epoch has no more batches."""
        self._state.set("ended")

    def failed(self, problem: BaseException, iterator: Any = None, line: str = "") -> None:
        """Asking for a batch, by a line of the program, ended in an error."""
        ending = Ending(
            f"{type(problem).__name__}: {str(problem)[:4000]}",
            raised_at(problem) or line,
            exits(iterator) if isinstance(problem, _GONE) else [],
            self._refused(problem),
        )
        self._log.write({"errors": [vars(ending)]})
        self._state.set("failed")

    def _refused(self, problem: BaseException) -> list[dict[str, str]]:
        loader = self._loader()
        if loader is None or "pickle" not in f"{type(problem).__name__}: {problem}".lower():
            return []
        return refused_by_pickle(loader.dataset, "dataset")

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A copy of a watched loader, in another process or not, has no watch."""
        return type(None), ()

    def here(self) -> bool:
        """Whether this is the process that made it: a forked child has a copy."""
        return os.getpid() == self._process


class _TimedIndices:
    """A sampler's iterator, and how long it took for its numbers."""

    def __init__(self, indices: Any) -> None:
        self._own = indices
        self.seconds = 0.0

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
        codes = [[number, worker.pid, worker.exitcode] for number, worker in enumerate(workers)]
        found = [each for each in codes if each[2]]
        if found or not workers or time.monotonic() > until_s:
            return found
        time.sleep(0.02)  # one that has just died has an exit code soon


def _sampler(loader: Any) -> dict[str, Any] | None:
    """The epoch that a sampler with set_epoch is at, if it shuffles."""
    for owner in (loader, getattr(loader, "batch_sampler", None)):
        sampler: Any = getattr(owner, "sampler", None)
        shuffles = callable(getattr(sampler, "set_epoch", None)) and getattr(sampler, "shuffle", True)
        if shuffles and isinstance(getattr(sampler, "epoch", None), int):
            return {"name": type(sampler).__name__, "epoch": sampler.epoch}
    return None


@functools.cache
def _note_threads_at_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=note_threads)


def facts(loader: Any, made_at: str) -> dict[str, Any]:
    """A DataLoader's options, and what in its dataset is bad for worker processes."""
    import torch

    dataset, collate = loader.dataset, loader.collate_fn
    context = loader.multiprocessing_context
    # allow_none: to ask without it would settle the method for the whole program.
    method = (multiprocessing if context is None else context).get_start_method(allow_none=True)
    roles = (("dataset", dataset), ("collate_fn", collate), ("worker_init_fn", loader.worker_init_fn))
    device = getattr(torch, "accelerator", torch.cuda)  # what torch itself asks, where pin_memory is set
    return {
        "class": type(loader).__name__,
        "made_at": made_at,
        "dataset": type(dataset).__name__,
        "dataset_place": own_place(dataset, "dataset") or made_at,
        "collate_place": own_place(collate, "collate_fn") or made_at,
        "sampler_place": own_place([loader.batch_sampler, loader.sampler], "sampler") or made_at,
        "drop_last": loader.drop_last,
        "init": loader.worker_init_fn is not None,
        "init_place": place(loader.worker_init_fn) if loader.worker_init_fn is not None else "",
        "locks": [path for path, value in reached(dataset) if is_lock(value)][:4],
        "stream": isinstance(dataset, torch.utils.data.IterableDataset),
        "shuffled": not isinstance(loader.sampler, torch.utils.data.SequentialSampler),
        "length": _length(dataset),
        "batches": _length(loader),
        "batch_size": loader.batch_size,
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
        "pin_memory": loader.pin_memory,
        "in_order": getattr(loader, "in_order", True),
        "timeout": loader.timeout,
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
