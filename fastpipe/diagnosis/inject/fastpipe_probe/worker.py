"""A process that makes batches -> one that notes what its time goes into, and dumps its stacks when asked."""

from __future__ import annotations

import multiprocessing.context
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from .files import Fetch, Log, State, arm, note, safe_repr
from .inherited import Inherited
from .machine import Snapshots, delayed_s
from .objects import checksums, generators, global_generators, kept_generators, place, sample_name
from .own import raised_at

_WORST = 5
_CHECKSUMS = 2048
_STATES = 16
_LOOKS = 8
_FAILURES = 100
# Errors of a program, which come again at the same sample: it need not be read once more.
_MISTAKES = (TypeError, AttributeError, NameError, LookupError, ImportError, NotImplementedError, AssertionError)


class Recorder:
    """Notes one batch after the other. Nothing that it does draws a random number or keeps a sample."""

    def __init__(self, log: Log, state: State, dataset: Any, inherited: Inherited | None) -> None:
        self.log = log
        self.state = state
        self._dataset = dataset
        self._inherited = inherited
        self._snapshots = Snapshots()
        self._batches = self._failures = self._summed = 0
        self._checksums: list[list[int]] = []
        self._states: list[dict[str, int]] = []

    def begin(self) -> None:
        self._times: list[tuple[float, Any]] = []
        self._dataset_s = self.collate_s = 0.0
        if not self._states:
            self._states.append(global_generators())
        self._cpu_s, self._delayed_s = time.process_time(), delayed_s()
        self._began_s = time.monotonic()

    def sample(self, index: Any, seconds: float, *, whole_batch: bool = False) -> None:
        self._dataset_s += seconds
        if not whole_batch:
            self._times.append((seconds, index))
        if len(self._states) <= _STATES:
            self._states.append(global_generators())

    def came(self, sample: Any) -> None:
        """A sample of a stream: the first ones are told from those of other workers."""
        if self._summed < _CHECKSUMS:
            self._summed += 1
            try:
                self._checksums.append(checksums(sample))
            except Exception:
                self._checksums.append([-1])

    def failed(self, stage: str, index: Any, problem: BaseException, again: Callable[[], Any] | None = None) -> None:
        """An error; `again` does the same once more, to tell a bad sample from an error that comes and goes."""
        self._failures += 1
        if self._failures > _FAILURES:
            return
        mistake = isinstance(problem, _MISTAKES)
        failure = {
            "failed": stage,
            "sample": safe_repr(index),
            "name": "" if index is None else sample_name(self._dataset, index),
            "error": f"{type(problem).__name__}: {str(problem)[:500]}",
            "place": raised_at(problem),
            "mistake": mistake,
        }
        self._look_at_files()
        self.log.write({"failures": [failure]})
        if again is not None and self._failures == 1 and not mistake:
            with kept_generators():
                try:
                    again()
                except Exception:
                    return
            self.log.write({"read_again": [failure["sample"]]})

    def _look_at_files(self) -> None:
        used = self._inherited.used(self._dataset) if self._inherited is not None else []
        if used:
            self.log.write({"inherited": used})
            self._inherited = None

    def end(self, samples: int) -> None:
        """A batch is made."""
        ended_s, delayed = time.monotonic(), delayed_s()
        worst = sorted(self._times, key=lambda each: -each[0])[:_WORST]
        fetch = Fetch(
            at_s=ended_s,
            seconds=ended_s - self._began_s,
            dataset_s=self._dataset_s,
            collate_s=self.collate_s,
            cpu_s=time.process_time() - self._cpu_s,
            delayed_s=None if delayed is None or self._delayed_s is None else delayed - self._delayed_s,
            samples=samples,
            times_us=[round(seconds * 1e6) for seconds, _ in self._times],
            worst=[(safe_repr(index), seconds, sample_name(self._dataset, index)) for seconds, index in worst],
        )
        line: dict[str, Any] = {"fetches": [vars(fetch)], "checksums": self._checksums}
        self._checksums = []
        if self._batches == 0:
            line |= {"generators_after": generators(self._dataset, "dataset"), "globals_after": global_generators()}
            line["states"] = self._states
        if self._batches < _LOOKS:
            self._look_at_files()
        if self._snapshots.due(ended_s):
            line["snapshots"] = [self._snapshots.take(self._batches)]
        self._batches += 1
        self.log.write(line)
        self.state.set("idle")


class TimedSamples:
    """A map-style dataset whose samples are timed."""

    def __init__(self, dataset: Any, recorder: Recorder) -> None:
        self._dataset = dataset
        self._recorder = recorder
        if getattr(dataset, "__getitems__", None):
            self.__getitems__ = lambda indices: self._timed(dataset.__getitems__, indices, whole_batch=True)

    def __getitem__(self, index: Any) -> Any:
        return self._timed(lambda wanted: self._dataset[wanted], index, whole_batch=False)

    def _timed(self, read: Callable[[Any], Any], index: Any, *, whole_batch: bool) -> Any:
        self._recorder.state.set("dataset", index)
        began_s = time.monotonic()
        try:
            return read(index)
        except Exception as problem:
            self._recorder.failed("dataset", index, problem, again=lambda: read(index))
            raise
        finally:
            self._recorder.sample(index, time.monotonic() - began_s, whole_batch=whole_batch)


class TimedStream:
    """A dataset's iterator whose samples are timed and counted."""

    def __init__(self, samples: Iterator[Any], recorder: Recorder) -> None:
        self._samples = samples
        self._recorder = recorder
        self._count = 0

    def __iter__(self) -> TimedStream:
        return self

    def __next__(self) -> Any:
        self._recorder.state.set("dataset", self._count)
        began_s = time.monotonic()
        try:
            sample = next(self._samples)
        except StopIteration:
            raise
        except Exception as problem:
            self._recorder.failed("dataset", self._count, problem)
            raise
        self._recorder.sample(self._count, time.monotonic() - began_s)
        self._recorder.came(sample)
        self._count += 1
        return sample


def watch_fetcher(fetcher: Any, recorder: Recorder) -> None:
    """Has torch's fetcher, which makes a batch of the dataset's samples, tell the recorder."""
    collate, fetch = fetcher.collate_fn, fetcher.fetch
    if hasattr(fetcher, "dataset_iter"):
        fetcher.dataset_iter = TimedStream(fetcher.dataset_iter, recorder)
    else:
        fetcher.dataset = TimedSamples(fetcher.dataset, recorder)
    count = 0

    def timed_collate(samples: Any) -> Any:
        nonlocal count
        recorder.state.set("collate", place(collate))
        count = len(samples) if isinstance(samples, (list, tuple)) and fetcher.auto_collation else 1
        began_s = time.monotonic()
        try:
            return collate(samples)
        except Exception as problem:
            recorder.failed("collate", None, problem)
            raise
        finally:
            recorder.collate_s += time.monotonic() - began_s

    def timed_fetch(indices: Any) -> Any:
        recorder.begin()
        try:
            batch = fetch(indices)
        except BaseException:
            recorder.state.set("idle")
            raise
        recorder.end(count)
        return batch

    fetcher.collate_fn, fetcher.fetch = timed_collate, timed_fetch


def _files(folder: str, loader: str, number: int) -> tuple[Log, State]:
    name = os.path.join(folder, f"worker-{loader}-{number}-{os.getpid()}")
    log = Log(f"{name}.jsonl")
    log.write({"number": number, "pid": os.getpid(), "began_s": time.monotonic()})
    return log, State(f"{name}.state")


def watch_without_workers(folder: str, loader: str, fetcher: Any, dataset: Any) -> None:
    """Of a loader with num_workers=0, which has its fetcher in the process that iterates."""
    watch_fetcher(fetcher, Recorder(*_files(folder, loader, -1), dataset, None))


class WorkerWatch:
    """Stands in the place of a loader's worker_init_fn and calls it; the dataset and collate_fn stay the user's own.

    It is pickled to workers that are spawned. What goes wrong in here is noted and never reaches the worker.
    """

    def __init__(self, folder: str, loader: str, init: Callable[[int], Any] | None, *, forked: bool) -> None:
        self._folder = folder
        self._loader = loader
        self._init = init
        self._forked = forked
        self.starting: list[Any] = []  # the processes that it was pickled for

    def __getstate__(self) -> dict[str, Any]:
        process = getattr(multiprocessing.context, "get_spawning_popen", lambda: None)()
        if process is not None:
            self.starting.append(process)
        return {**self.__dict__, "starting": []}

    def __call__(self, worker_id: int) -> None:
        recorder = None
        try:
            recorder = self._recorder(worker_id)
        except Exception as problem:
            note(self._folder, problem)
        if self._init is not None:
            self._init(worker_id)
        try:
            if recorder is not None:
                _watch_this_worker(recorder)
        except Exception as problem:
            note(self._folder, problem)

    def _recorder(self, worker_id: int) -> Recorder:
        from torch.utils.data import get_worker_info

        log, state = _files(self._folder, self._loader, worker_id)
        state.set("worker_init_fn")
        arm(self._folder, fatal=True)
        dataset = getattr(get_worker_info(), "dataset", None)
        inherited = Inherited(dataset) if self._forked else None
        if inherited is not None and inherited.locks:
            log.write({"locks": inherited.locks, "threads": inherited.threads})
        return Recorder(log, state, dataset, inherited)


def _watch_this_worker(recorder: Recorder) -> None:
    from torch.utils.data import _DatasetKind, get_worker_info

    dataset = getattr(get_worker_info(), "dataset", None)
    started = {"generators_before": generators(dataset, "dataset"), "globals_before": global_generators()}
    recorder.log.write({**started, "start": Snapshots().take(0)})
    create_fetcher = _DatasetKind.create_fetcher

    def create_and_watch(*arguments: Any) -> Any:
        recorder.state.set("iter(dataset)")
        fetcher: Any = create_fetcher(*arguments)  # type: ignore[no-untyped-call]
        watch_fetcher(fetcher, recorder)
        recorder.state.set("idle")
        return fetcher

    # In this process alone; torch's worker loop makes its fetcher, and a new one each epoch, right after this.
    _DatasetKind.create_fetcher = staticmethod(create_and_watch)  # type: ignore[method-assign]
