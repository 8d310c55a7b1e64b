"""A DataLoader that a program iterates -> its facts and the times of its batches, in a file."""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

from .checksums import count_batch_bytes
from .files import Log, State
from .inherited import remember_threads
from .loader_facts import identify_loader, read_facts
from .locks import find_held_kind, is_shared_lock
from .machine import Snapshots
from .objects import walk_with_globals
from .recorder import Recorder
from .records import Batch, Ending, Epoch
from .settings import Setting, list_changed, read_settings
from .user_code import find_raising_line
from .worker import WorkerWatch
from .worker_hazards import list_pickle_failures

# The kernel may take a moment to hand over the exit code of a worker.
_EXIT_PATIENCE_S = 1.0
_EXIT_LOOK_S = 0.02
# The errors by which torch reports that a worker is gone.
_GONE_ERRORS = (RuntimeError, EOFError, OSError)
_counter = itertools.count()


class LoaderLine:
    """The files of the DataLoaders that one line makes with the same options, and their counts."""

    def __init__(self, folder: str, facts: dict[str, Any]) -> None:
        self.key = f"{os.getpid()}.{next(_counter)}"
        path = os.path.join(folder, f"loader-{self.key}")
        self.log = Log(f"{path}.jsonl")
        self.state = State(f"{path}.state")
        self.snapshots = Snapshots()
        self.loader_count = 0
        self.epoch_count = 0
        self.batch_count = 0
        self.is_forked = facts["method"] == "fork"
        self.log.write({"facts": facts})

    def set_stage(self, stage: str) -> None:
        """Sets the loop's present activity, and how many batches it has had."""
        self.state.set(stage, self.batch_count)


class LoaderWatch:
    """Watches one DataLoader in the process that iterates it.

    Args:
        folder: the folder of the files.
        loader: the DataLoader.
        made_at: the line that made it, as file:line.
        lines: those of the process's other DataLoaders, to which this one's is added.
        step: whether there is a training step between two batches.
    """

    def __init__(
        self,
        folder: str,
        loader: Any,
        made_at: str,
        lines: dict[Any, LoaderLine] | None = None,
        *,
        step: bool = True,
    ) -> None:
        facts = {**read_facts(loader, made_at), "step": step}
        pid = os.getpid()
        if lines is None:
            lines = {}
        identity = (pid, *identify_loader(facts))
        if identity not in lines:
            lines[identity] = LoaderLine(folder, facts)
        self.line = lines[identity]
        self._folder = folder
        self._pid = pid
        self._loader_index = self.line.loader_count
        self.line.loader_count += 1
        self._settings: dict[str, Setting] = {}
        self._indices = _TimedIndices(iter(()))
        # Processes of workers for which pickle is or was at work.
        self.starting: list[Any] = []
        _remember_threads_at_forks()

    def make_iterator(self, loader: Any, get_iterator: Callable[[Any], Any]) -> Any:
        """Returns `get_iterator(loader)`, with workers that are watched.

        Afterwards the loader is as it was.
        """
        init = loader.worker_init_fn
        watch = WorkerWatch(
            self._folder, self.line.key, init, loader.collate_fn, self.line.is_forked
        )
        self.starting = watch.starting
        if loader.persistent_workers:
            self._settings = read_settings(loader.dataset)
        if self.line.is_forked and loader.num_workers:
            self._record_held_locks(loader.dataset)
        # torch pickles or forks the loader's worker_init_fn while it makes the iterator.
        loader.worker_init_fn = watch
        try:
            iterator = get_iterator(loader)
        finally:
            loader.worker_init_fn = init
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if fetcher is not None:  # without workers, this process makes the batches
            recorder = Recorder(self._folder, self.line.key, -1, loader.dataset)
            recorder.watch(fetcher)
        # Another iterator, of a subclass, may have no such attribute or mean another thing by it.
        if type(iterator).__module__ == "torch.utils.data.dataloader":
            self._indices = _TimedIndices(iterator._sampler_iter)
            iterator._sampler_iter = self._indices
        return iterator

    def _record_held_locks(self, dataset: Any) -> None:
        """Records the shared locks that this process holds: its new workers would wait for them."""
        held = []
        for path, value in walk_with_globals(dataset=dataset):
            if (
                is_shared_lock(value)
                and find_held_kind(value)
                and value._semlock._is_mine()
            ):
                held.append(path)
        if held:
            self.line.log.write({"holds": held})

    def begin_epoch(self, loader: Any, place: str = "") -> None:
        """Records that a line of the program begins an epoch."""
        self.line.set_stage("starting")
        self._epoch = self.line.epoch_count
        self._batch_number = 0
        self.line.epoch_count += 1
        changed: list[str] = []
        if self._settings:
            changed = list_changed(self._settings, read_settings(loader.dataset))
        epoch = Epoch(
            at_s=time.monotonic(),
            place=place,
            sampler=_read_sampler(loader),
            loader_index=self._loader_index,
            changed=changed,
            ranks=_count_ranks(),
        )
        self.line.log.write({"epochs": [vars(epoch)]})

    def next_batch(self, iterator: Any, get_next: Callable[[Any], Any]) -> Any:
        """Returns `get_next(iterator)` and records it. For errors call `record_error`."""
        asked_s = time.monotonic()
        self.line.set_stage("waiting")
        try:
            batch = get_next(iterator)
        except StopIteration:
            if self._batch_number:  # the step of the last batch ends here
                self.end_step(asked_s)
            self.line.set_stage("ended")
            raise
        record = Batch(
            epoch=self._epoch,
            number=self._batch_number,
            asked_s=asked_s,
            came_s=time.monotonic(),
            size_bytes=count_batch_bytes(batch),
            sampler_s=self._indices.seconds,
        )
        self._indices.seconds = 0.0
        snapshots = self.line.snapshots.take_if_due(self.line.batch_count)
        self.line.log.write({"batches": [vars(record)], "snapshots": snapshots})
        self._batch_number += 1
        self.line.batch_count += 1
        self.line.set_stage("step")
        return batch

    def end_step(self, at_s: float | None = None) -> None:
        """Records the end of the last step, now or at `at_s`, if no next batch shows it."""
        if at_s is None:
            at_s = time.monotonic()
        step = (self._epoch, self._batch_number - 1, at_s)
        self.line.log.write({"stepped": [step]})

    def record_error(
        self, problem: BaseException, iterator: Any, dataset: Any, place: str = ""
    ) -> None:
        """Records an error with which a request for a batch, by a line of the program, ended."""
        text = f"{type(problem).__name__}: {str(problem)[:4000]}"
        unpicklable: list[dict[str, str]] = []
        if "pickle" in text.lower():
            unpicklable = list_pickle_failures(dataset, "dataset")
        exits: list[list[int]] = []
        if isinstance(problem, _GONE_ERRORS):
            exits = _wait_for_exits(iterator)
        raised_at = find_raising_line(problem) or place
        ending = Ending(text, raised_at, exits, unpicklable)
        self.line.log.write({"errors": [vars(ending)]})
        self.line.set_stage("failed")

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A copy of a watched loader, in another process or not, has no watch."""
        return type(None), ()

    def is_of_this_process(self) -> bool:
        """Whether this process made it. A forked child has a copy."""
        return os.getpid() == self._pid


class _TimedIndices:
    """A sampler's iterator, with the seconds that it takes."""

    def __init__(self, indices: Any) -> None:
        self.seconds = 0.0
        self._indices = indices

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        began_s = time.monotonic()
        try:
            return next(self._indices)
        finally:
            self.seconds += time.monotonic() - began_s


def _wait_for_exits(iterator: Any) -> list[list[int]]:
    """Lists the workers of an iterator that ended with an error: number, process, exit code."""
    workers = getattr(iterator, "_workers", None) or []
    until_s = time.monotonic() + _EXIT_PATIENCE_S
    while True:
        exits = []
        for number, worker in enumerate(workers):
            if worker.exitcode:
                exits.append([number, worker.pid, worker.exitcode])
        if exits or not workers or time.monotonic() > until_s:
            return exits
        time.sleep(_EXIT_LOOK_S)  # a worker that has just died gets its exit code soon


def _read_sampler(loader: Any) -> dict[str, Any] | None:
    """Reads the epoch of a sampler that has set_epoch and shuffles."""
    for owner in (loader, getattr(loader, "batch_sampler", None)):
        sampler: Any = getattr(owner, "sampler", None)
        epoch = getattr(sampler, "epoch", None)
        has_epochs = hasattr(sampler, "set_epoch") and isinstance(epoch, int)
        if has_epochs and getattr(sampler, "shuffle", True):
            name = type(sampler).__name__
            return {"name": name, "epoch": epoch}
    return None


def _count_ranks() -> int:
    """Counts the processes that train together. Without gradients it is no epoch of a training."""
    import torch

    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return 1
    if not torch.is_grad_enabled():
        return 1
    return torch.distributed.get_world_size()


@functools.cache
def _remember_threads_at_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=remember_threads)
