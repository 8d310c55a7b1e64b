"""What makes batches of samples, in a worker or without one -> the same, and the time of each part in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from .files import Log, State, safe_repr
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
        self._batches = 0
        self._failures = 0
        self._checksums: list[list[int]] = []
        self._summed = 0
        self._states: list[dict[str, int]] = []
        self._clear()

    def _clear(self) -> None:
        self._times: list[tuple[float, Any]] = []
        self._dataset_s = self._collate_s = 0.0

    def begin(self) -> None:
        self._clear()
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

    def collated(self, seconds: float) -> None:
        self._collate_s += seconds

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
        line = {
            "failed": stage,
            "sample": safe_repr(index),
            "name": "" if index is None else sample_name(self._dataset, index),
            "error": f"{type(problem).__name__}: {str(problem)[:500]}",
            "place": raised_at(problem),
            "mistake": isinstance(problem, _MISTAKES),
        }
        self._look_at_files()
        self.log.write(line)
        if again is not None and self._failures == 1 and not line["mistake"]:
            with kept_generators():
                try:
                    again()
                except Exception:
                    return
            self.log.write({"again": line["sample"]})

    def _look_at_files(self) -> None:
        used = self._inherited.used(self._dataset) if self._inherited is not None else []
        if used:
            self.log.write({"inherited": used})
            self._inherited = None

    def end(self, samples: int) -> None:
        """A batch is made."""
        ended_s = time.monotonic()
        delayed = delayed_s()
        worst = sorted(self._times, key=lambda each: -each[0])[:_WORST]
        line: dict[str, Any] = {
            "at": ended_s,
            "seconds": ended_s - self._began_s,
            "dataset": self._dataset_s,
            "collate": self._collate_s,
            "cpu": time.process_time() - self._cpu_s,
            "delayed": None if delayed is None or self._delayed_s is None else delayed - self._delayed_s,
            "samples": samples,
            "times": [round(seconds * 1e6) for seconds, _ in self._times],
            "worst": [[safe_repr(index), seconds, sample_name(self._dataset, index)] for seconds, index in worst],
        }
        if self._batches == 0:
            line["generators"] = generators(self._dataset, "dataset")
            line["globals"] = global_generators()
            line["states"] = self._states
        if self._batches < _LOOKS:
            self._look_at_files()
        if self._checksums:
            line["checksums"] = self._checksums
            self._checksums = []
        if self._snapshots.due(ended_s):
            line["snapshot"] = self._snapshots.take()
        self._batches += 1
        self.log.write(line)
        self._clear()
        self.state.set("idle")


class TimedSamples:
    """A map-style dataset whose samples are timed."""

    def __init__(self, dataset: Any, recorder: Recorder) -> None:
        self._dataset = dataset
        self._recorder = recorder
        if getattr(dataset, "__getitems__", None):
            self.__getitems__ = self._batch

    def __getitem__(self, index: Any) -> Any:
        return self._timed(lambda wanted: self._dataset[wanted], index, whole_batch=False)

    def _batch(self, indices: Any) -> Any:
        return self._timed(self._dataset.__getitems__, indices, whole_batch=True)

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
    count = [0]

    def timed_collate(samples: Any) -> Any:
        recorder.state.set("collate", place(collate))
        count[0] = len(samples) if isinstance(samples, (list, tuple)) and fetcher.auto_collation else 1
        began_s = time.monotonic()
        try:
            return collate(samples)
        except Exception as problem:
            recorder.failed("collate", None, problem)
            raise
        finally:
            recorder.collated(time.monotonic() - began_s)

    def timed_fetch(indices: Any) -> Any:
        recorder.begin()
        try:
            batch = fetch(indices)
        except BaseException:
            recorder.state.set("idle")
            raise
        recorder.end(count[0])
        return batch

    fetcher.collate_fn, fetcher.fetch = timed_collate, timed_fetch
