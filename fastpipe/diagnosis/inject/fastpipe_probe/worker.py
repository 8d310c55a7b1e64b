"""A process that makes batches -> one that notes what its time goes into, and dumps its stacks when asked."""

from __future__ import annotations

import contextlib
import multiprocessing.context
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

from .files import Fetch, Log, State, arm, noted, safe_repr
from .inherited import Inherited
from .machine import Snapshots, binding, cpus, delayed_s, snapshot
from .objects import (
    checksum,
    checksums,
    generators,
    global_generators,
    kept_generators,
    place,
    reached,
    sample_name,
    walk,
)
from .own import raised_at

_WORST = 5
_CHECKSUMS = 2048
_STATES = 16
_LOOKS = 8
_SMALL = 256  # bytes of an array that may be a setting which all samples share
_FAILURES = 100
# Errors of a program, which come again at the same sample: it need not be read once more.
_MISTAKES = (TypeError, AttributeError, NameError, LookupError, ImportError, NotImplementedError, AssertionError)


class Recorder:
    """Notes one batch after the other. Nothing that it does draws a random number or keeps a sample."""

    def __init__(self, folder: str, loader: str, number: int, dataset: Any) -> None:
        name = os.path.join(folder, f"worker-{loader}-{number}-{os.getpid()}")
        self.log = Log(f"{name}.jsonl")
        self.log.write({"number": number, "pid": os.getpid(), "began_s": time.monotonic()})
        self.state = State(f"{name}.state")
        self.inherited: Inherited | None = None
        self._dataset, self._collate = dataset, None
        self._snapshots = Snapshots()
        self._batches = self._failures = self._summed = 0
        self._checksums: list[list[int]] = []
        self._states: list[dict[str, int]] = []
        self._held: dict[tuple[Any, ...], int] = {}
        self._buffer: dict[str, str] = {}  # of the first array that is used again: to look for it takes a while

    def watch(self, fetcher: Any) -> None:
        """Has torch's fetcher, which makes a batch of the dataset's samples, tell this."""
        collate, fetch = fetcher.collate_fn, fetcher.fetch
        self._collate = collate
        if hasattr(fetcher, "dataset_iter"):
            fetcher.dataset_iter = _Timed(fetcher.dataset_iter, self)
        else:
            fetcher.dataset = _Timed(fetcher.dataset, self)

        def timed_collate(samples: Any) -> Any:
            self._samples = len(samples) if isinstance(samples, (list, tuple)) and fetcher.auto_collation else 1
            return self.timed("collate", place(collate), collate, samples)

        def timed_fetch(indices: Any) -> Any:
            self._times: list[tuple[float, Any]] = []
            self._indices = indices
            self._held, self._collates = {}, bool(fetcher.auto_collation)
            self._seconds = {"dataset": 0.0, "collate": 0.0}
            if not self._states:
                self._states.append(global_generators())
            self._cpu_s, self._delayed_s = time.process_time(), delayed_s()
            self._began_s = time.monotonic()
            try:
                batch = fetch(indices)
                self._end()
            finally:
                self.state.set("idle")
            return batch

        fetcher.collate_fn, fetcher.fetch = timed_collate, timed_fetch

    def timed(self, stage: str, at: Any, work: Callable[..., Any], *arguments: Any) -> Any:
        """Does a part of making a batch, of the sample `at`, and notes its time or its error."""
        self.state.set(stage, at)
        began_s, returned = time.monotonic(), False
        try:
            result = work(*arguments)
            returned = True
            return result
        except Exception as problem:
            if work is not next or not isinstance(problem, StopIteration):
                again = (lambda: work(*arguments)) if stage == "dataset" and work is not next else None
                read = [each for _, each in self._times] or self._indices
                self._failed(stage, read if stage == "collate" else at, problem, again)
            raise
        finally:
            if returned or work is not next:  # the end of a stream is no sample
                seconds = time.monotonic() - began_s
                self._seconds[stage] += seconds
                if work is getitem or work is next:
                    self._times.append((seconds, at))
                if stage == "dataset" and len(self._states) <= _STATES:
                    self._states.append(global_generators())

    def look_at_memory(self, sample: Any) -> None:
        """Notes arrays that lie where the batch's sample before, which is still in use, had another content."""
        if self._batches < _LOOKS and self._collates:
            before, self._held = self._held, {}
            with contextlib.suppress(Exception):
                for path, array in walk(sample, "sample"):
                    if getattr(array, "nbytes", 0) > _SMALL:
                        at = _lies(array)
                        self._held[at] = now = checksum(array)
                        if before.get(at, now) != now:
                            self._buffer = self._buffer or self._held_at(at[0])
                            self.log.write({"reused": [{"part": path, **self._buffer}]})

    def _held_at(self, address: int) -> dict[str, str]:
        """What the dataset holds at an address of memory, and where its owner is written; "" for what is not known."""
        held = dict(reached(dataset=self._dataset))
        for path, value in held.items():
            if getattr(value, "nbytes", 0) > _SMALL and 0 <= address - _lies(value)[0] < value.nbytes:
                return {"buffer": path, "place": place(held.get(path.rpartition(".")[0]))}
        return {"buffer": "", "place": ""}

    def came(self, sample: Any) -> None:
        """A sample of a stream: the first ones are told from those of other workers."""
        if self._summed == 0:  # what it drew before that was for the order, which workers may have in common
            self.log.write({"generators_before": generators(dataset=self._dataset, collate_fn=self._collate)})
        if self._summed < _CHECKSUMS:
            self._summed += 1
            self._checksums.append([-1])
            with contextlib.suppress(Exception):
                self._checksums[-1] = checksums(sample)

    def _failed(self, stage: str, index: Any, problem: Exception, again: Callable[[], Any] | None) -> None:
        """An error; `again` does the same once more, to tell a bad sample from an error that comes and goes."""
        self._failures += 1
        if self._failures > _FAILURES:
            return
        mistake = isinstance(problem, _MISTAKES)
        failure = {
            "failed": stage,
            "sample": safe_repr(index),
            "name": sample_name(self._dataset, index),
            "error": f"{type(problem).__name__}: {str(problem)[:500]}",
            "place": raised_at(problem),
            "mistake": mistake,
        }
        self._look_at_files()
        self.log.write({"failures": [failure]})
        if again is not None and self._failures == 1 and not mistake:
            with kept_generators(), contextlib.suppress(Exception):
                again()
                self.log.write({"read_again": [failure["sample"]]})

    def _look_at_files(self) -> None:
        if self.inherited is not None and (used := self.inherited.used()):
            self.log.write({"inherited": used})
            self.inherited = None

    def _end(self) -> None:
        """A batch is made."""
        ended_s, delayed = time.monotonic(), delayed_s()
        worst = sorted(self._times, key=lambda each: -each[0])[:_WORST]
        fetch = Fetch(
            at_s=ended_s,
            seconds=ended_s - self._began_s,
            dataset_s=self._seconds["dataset"],
            collate_s=self._seconds["collate"],
            cpu_s=time.process_time() - self._cpu_s,
            delayed_s=None if delayed is None or self._delayed_s is None else delayed - self._delayed_s,
            samples=self._samples,
            times_us=[round(seconds * 1e6) for seconds, _ in self._times],
            worst=[(safe_repr(index), seconds, sample_name(self._dataset, index)) for seconds, index in worst],
        )
        line: dict[str, Any] = {"fetches": [vars(fetch)], "checksums": self._checksums}
        self._checksums = []
        if self._batches == 0:
            drawn = generators(dataset=self._dataset, collate_fn=self._collate)
            line |= {"generators_after": drawn, "globals_after": global_generators()}
            line["states"] = self._states
        if self._batches < _LOOKS:
            self._look_at_files()
        self.log.write(line | {"snapshots": self._snapshots.due(self._batches)})
        self._batches += 1


def _lies(array: Any) -> tuple[Any, ...]:
    """Where the numbers of a tensor or array lie: two views of the same memory are not the same array."""
    if hasattr(array, "data_ptr"):
        return array.data_ptr(), tuple(array.shape), array.stride()
    return array.ctypes.data, array.shape, array.strides


class _Timed:
    """A map-style dataset, or the iterator of a stream, whose samples are timed."""

    def __init__(self, samples: Any, recorder: Recorder) -> None:
        self._samples, self._recorder, self._count = samples, recorder, 0
        if getattr(samples, "__getitems__", None):
            self.__getitems__ = lambda indices: recorder.timed("dataset", indices, samples.__getitems__, indices)

    def __getitem__(self, index: Any) -> Any:
        sample = self._recorder.timed("dataset", index, getitem, self._samples, index)
        self._recorder.look_at_memory(sample)
        return sample

    def __next__(self) -> Any:
        sample = self._recorder.timed("dataset", self._count, next, self._samples)
        self._recorder.look_at_memory(sample)
        self._recorder.came(sample)
        self._count += 1
        return sample


@dataclass
class WorkerWatch:
    """Stands in the place of a loader's worker_init_fn and calls it; the dataset and collate_fn stay the user's own.

    It is pickled to workers that are spawned. What goes wrong in here is noted and never reaches the worker.
    """

    folder: str
    loader: str
    init: Callable[[int], Any] | None
    collate: Callable[[Any], Any]
    forked: bool
    starting: list[Any] = field(default_factory=list)  # the processes that it was pickled for

    def __getstate__(self) -> dict[str, Any]:
        process = getattr(multiprocessing.context, "get_spawning_popen", lambda: None)()
        if process is not None:
            self.starting.append(process)
        return {**self.__dict__, "starting": []}

    def __call__(self, worker_id: int) -> None:
        from torch.utils.data import get_worker_info

        dataset = getattr(get_worker_info(), "dataset", None)
        recorder = None
        with noted(self.folder):
            recorder = Recorder(self.folder, self.loader, worker_id, dataset)
            recorder.state.set("worker_init_fn")
            arm(self.folder, fatal=True)
            if self.forked:
                recorder.inherited = inherited = Inherited(dataset=dataset, collate_fn=self.collate)
                recorder.log.write({"locks": inherited.locks, "threads": inherited.locks and inherited.threads})
        if self.init is not None:
            self.init(worker_id)
        with noted(self.folder):
            if recorder is not None:
                before = generators(dataset=dataset, collate_fn=self.collate)
                started = {"generators_before": before, "globals_before": global_generators(), "start": snapshot()}
                recorder.log.write({**started, "cpus": cpus(), "binding": binding()})
                _watch_fetchers(recorder)


def _watch_fetchers(recorder: Recorder) -> None:
    """In this process alone; torch's worker loop makes its fetcher, and a new one each epoch, right after this."""
    from torch.utils.data import _DatasetKind

    create_fetcher = _DatasetKind.create_fetcher

    def create_and_watch(*arguments: Any) -> Any:
        recorder.state.set("iter(dataset)")
        fetcher: Any = create_fetcher(*arguments)  # type: ignore[no-untyped-call]
        recorder.watch(fetcher)
        recorder.state.set("idle")
        return fetcher

    _DatasetKind.create_fetcher = staticmethod(create_and_watch)  # type: ignore[method-assign]
