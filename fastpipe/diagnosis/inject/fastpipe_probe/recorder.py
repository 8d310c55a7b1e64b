"""A process that makes batches -> a record of each batch: times, errors, draws and memory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from operator import getitem
from typing import Any

from .checksums import checksum, checksum_parts, find_sample_name
from .files import Log, State, safe_repr
from .generators import (
    checksum_generators,
    checksum_global_generators,
    preserve_generators,
)
from .inherited import Inherited
from .machine import Snapshots, read_delayed_s
from .objects import find_definition, walk, walk_with_globals
from .records import Fetch
from .user_code import find_raising_line

# Limits of the looks that cost time: faults that they find show in the first batches.
_MAX_CHECKSUMS = 2048  # of samples of a stream
_MAX_STATES = 16  # of the global generators
_FIRST_BATCHES = 8  # in which memory and inherited files are looked at
_MAX_FAILURES = 100
_WORST_COUNT = 5
# A smaller array may be a setting that all samples share.
_SMALL_BYTES = 256
# Errors of a program, which come again at the same sample: there is no need to read it once more.
_MISTAKES = (
    TypeError,
    AttributeError,
    NameError,
    LookupError,
    ImportError,
    NotImplementedError,
    AssertionError,
)


class Recorder:
    """Records one batch after the other. It draws no random number and keeps no sample."""

    def __init__(self, folder: str, loader_key: str, number: int, dataset: Any) -> None:
        file_name = f"worker-{loader_key}-{number}-{os.getpid()}"
        name = os.path.join(folder, file_name)
        self.log = Log(f"{name}.jsonl")
        self.log.write(
            {"number": number, "pid": os.getpid(), "began_s": time.monotonic()}
        )
        self.state = State(f"{name}.state")
        self.inherited: Inherited | None = None
        self._dataset = dataset
        self._collate: Any = None
        self._snapshots = Snapshots()
        self._batch_count = 0
        self._failure_count = 0
        # For a stream: how many of its first samples have a checksum, and the checksums since the
        # last line of the log.
        self._checksum_count = 0
        self._checksums: list[list[int]] = []
        # Checksums of the global generators, after each of the first samples.
        self._states: list[dict[str, int]] = []
        # The memory of the arrays of the sample before -> a checksum of their content.
        self._arrays: dict[tuple[Any, ...], int] = {}
        # The first array that is used again: to find it takes a while, so it is done once.
        self._reused_buffer: dict[str, str] = {}

    def watch(self, fetcher: Any) -> None:
        """Changes torch's fetcher, which makes batches of samples, so that it reports here."""
        collate = fetcher.collate_fn
        fetch = fetcher.fetch
        self._collate = collate
        if hasattr(fetcher, "dataset_iter"):
            fetcher.dataset_iter = _TimedSamples(fetcher.dataset_iter, self)
        else:
            fetcher.dataset = _TimedSamples(fetcher.dataset, self)

        def timed_collate(samples: Any) -> Any:
            self._sample_count = 1
            if fetcher.auto_collation and isinstance(samples, (list, tuple)):
                self._sample_count = len(samples)
            return self.time_part("collate", find_definition(collate), collate, samples)

        def timed_fetch(indices: Any) -> Any:
            self._begin(indices, is_collated=bool(fetcher.auto_collation))
            try:
                batch = fetch(indices)
                self._end()
            finally:
                self.state.set("idle")
            return batch

        fetcher.collate_fn = timed_collate
        fetcher.fetch = timed_fetch

    def _begin(self, indices: Any, *, is_collated: bool) -> None:
        self._indices = indices
        self._is_collated = is_collated
        self._times: list[tuple[float, Any]] = []  # seconds and index of each sample
        self._arrays = {}
        self._seconds = {"dataset": 0.0, "collate": 0.0}
        if not self._states:
            self._states.append(checksum_global_generators())
        self._cpu_s = time.process_time()
        self._delayed_s = read_delayed_s()
        self._began_s = time.monotonic()

    def time_part(
        self, stage: str, index: Any, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Calls a function that makes a part of a batch, and records its time or its error."""
        self.state.set(stage, index)
        is_stream = function is next
        has_returned = False
        began_s = time.monotonic()
        try:
            result = function(*arguments)
            has_returned = True
            return result
        except Exception as problem:
            is_end = is_stream and isinstance(problem, StopIteration)
            if not is_end:
                # The next item of a stream is another one.
                can_repeat = stage == "dataset" and not is_stream
                repeat = (lambda: function(*arguments)) if can_repeat else None
                self._record_failure(stage, index, problem, repeat)
            raise
        finally:
            # A stream that does not return has ended: that is no sample.
            if has_returned or not is_stream:
                seconds = time.monotonic() - began_s
                self._seconds[stage] += seconds
                if is_stream or function is getitem:
                    self._times.append((seconds, index))
                if stage == "dataset" and len(self._states) <= _MAX_STATES:
                    self._states.append(checksum_global_generators())

    def look_at_memory(self, sample: Any) -> None:
        """Records arrays that have overwritten those of the sample before, still in use."""
        if self._batch_count >= _FIRST_BATCHES or not self._is_collated:
            return
        # Only checksums are kept: a reference to the sample would keep its memory in use.
        before = self._arrays
        self._arrays = {}
        with contextlib.suppress(Exception):
            for path, array in walk(sample, "sample"):
                if getattr(array, "nbytes", 0) <= _SMALL_BYTES:
                    continue
                memory = _find_memory(array)
                content = checksum(array)
                self._arrays[memory] = content
                if before.get(memory, content) != content:
                    if not self._reused_buffer:
                        self._reused_buffer = self._find_buffer(address=memory[0])
                    self.log.write({"reused": [{"part": path, **self._reused_buffer}]})

    def _find_buffer(self, address: int) -> dict[str, str]:
        """Finds the dataset's array at an address, and the class of its owner; "" if not known."""
        objects = dict(walk_with_globals(dataset=self._dataset))
        for path, value in objects.items():
            size_bytes = getattr(value, "nbytes", 0)
            if (
                size_bytes > _SMALL_BYTES
                and 0 <= address - _find_memory(value)[0] < size_bytes
            ):
                owner_path, _, _ = path.rpartition(".")
                return {
                    "buffer": path,
                    "place": find_definition(objects.get(owner_path)),
                }
        return {"buffer": "", "place": ""}

    def record_stream_sample(self, sample: Any) -> None:
        """Records checksums of a stream's first samples, to compare them with other workers'."""
        if self._checksum_count == 0:
            # The draws before were for the order, which workers may have in common.
            states = checksum_generators(
                dataset=self._dataset, collate_fn=self._collate
            )
            self.log.write({"generators_before": states})
        if self._checksum_count >= _MAX_CHECKSUMS:
            return
        self._checksum_count += 1
        checksums = [-1]
        with contextlib.suppress(Exception):
            checksums = checksum_parts(sample)
        self._checksums.append(checksums)

    def _record_failure(
        self,
        stage: str,
        index: Any,
        problem: Exception,
        repeat: Callable[[], Any] | None,
    ) -> None:
        """Records an error.

        Args:
            stage: "dataset" or "collate".
            index: of the sample.
            problem: the error.
            repeat: reads the sample once more: if that succeeds, the error has passed, and the
                sample is good. None: the sample cannot be read again.
        """
        self._failure_count += 1
        if self._failure_count > _MAX_FAILURES:
            return
        if stage == "collate":
            # The error is one of the whole batch.
            index = [sample_index for _, sample_index in self._times] or self._indices
        is_mistake = isinstance(problem, _MISTAKES)
        failure = {
            "failed": stage,
            "sample": safe_repr(index),
            "name": find_sample_name(self._dataset, index),
            "error": f"{type(problem).__name__}: {str(problem)[:500]}",
            "place": find_raising_line(problem),
            "mistake": is_mistake,
        }
        self._record_inherited_files()
        self.log.write({"failures": [failure]})
        is_first = self._failure_count == 1
        if repeat is not None and is_first and not is_mistake:
            # `read_again` is recorded only if `repeat` raises nothing.
            with preserve_generators(), contextlib.suppress(Exception):
                repeat()
                self.log.write({"read_again": [failure["sample"]]})

    def _record_inherited_files(self) -> None:
        """Records the inherited files that are in use, once."""
        if self.inherited is None:
            return
        used = self.inherited.list_used()
        if used:
            self.log.write({"inherited": used})
            self.inherited = None

    def _end(self) -> None:
        """Records the batch that is finished."""
        ended_s = time.monotonic()
        delayed_s = read_delayed_s()
        batch_delayed_s = None
        if delayed_s is not None and self._delayed_s is not None:
            batch_delayed_s = delayed_s - self._delayed_s
        slowest_first = sorted(self._times, key=lambda entry: -entry[0])
        slowest = slowest_first[:_WORST_COUNT]
        worst = []
        for seconds, index in slowest:
            worst.append(
                (safe_repr(index), seconds, find_sample_name(self._dataset, index))
            )
        fetch = Fetch(
            finished_s=ended_s,
            seconds=ended_s - self._began_s,
            dataset_s=self._seconds["dataset"],
            collate_s=self._seconds["collate"],
            cpu_s=time.process_time() - self._cpu_s,
            delayed_s=batch_delayed_s,
            samples=self._sample_count,
            times_us=[round(seconds * 1e6) for seconds, _ in self._times],
            worst=worst,
        )
        line: dict[str, Any] = {"fetches": [vars(fetch)], "checksums": self._checksums}
        self._checksums = []
        if self._batch_count == 0:
            line["generators_after"] = checksum_generators(
                dataset=self._dataset, collate_fn=self._collate
            )
            line["globals_after"] = checksum_global_generators()
            line["states"] = self._states
        if self._batch_count < _FIRST_BATCHES:
            self._record_inherited_files()
        line["snapshots"] = self._snapshots.take_if_due(self._batch_count)
        self.log.write(line)
        self._batch_count += 1


def _find_memory(array: Any) -> tuple[Any, ...]:
    """Finds where the numbers of a tensor or array lie: address, shape, strides.

    Views of one memory differ in them.
    """
    if hasattr(array, "data_ptr"):
        return array.data_ptr(), tuple(array.shape), array.stride()
    return array.ctypes.data, array.shape, array.strides


class _TimedSamples:
    """A map-style dataset, or the iterator of a stream, whose samples are timed."""

    def __init__(self, samples: Any, recorder: Recorder) -> None:
        self._samples = samples
        self._recorder = recorder
        self._count = 0
        # torch asks by this attribute whether a dataset reads whole batches. A method would be a
        # reference to this object from itself, and the dataset would be freed late.
        if getattr(samples, "__getitems__", None):

            def get_batch(indices: Any) -> Any:
                return recorder.time_part(
                    "dataset", indices, samples.__getitems__, indices
                )

            self.__getitems__ = get_batch

    def __getitem__(self, index: Any) -> Any:
        sample = self._recorder.time_part(
            "dataset", index, getitem, self._samples, index
        )
        self._recorder.look_at_memory(sample)
        return sample

    def __next__(self) -> Any:
        sample = self._recorder.time_part("dataset", self._count, next, self._samples)
        self._recorder.look_at_memory(sample)
        self._recorder.record_stream_sample(sample)
        self._count += 1
        return sample
