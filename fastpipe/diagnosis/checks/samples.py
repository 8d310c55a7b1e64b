"""Times and memory of samples -> slow samples, and samples that overwrite each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from fastpipe.diagnosis.findings import Code, Finding
from fastpipe.diagnosis.inject.fastpipe_probe.records import Fetch
from fastpipe.diagnosis.observation import Observation
from fastpipe.diagnosis.quantities import format_ms
from fastpipe.diagnosis.source.places import find_assignment
from fastpipe.diagnosis.stages import Stages

# A sample is slow if it takes longer than this and than that many times the median.
_MIN_SLOW_S = 0.05
_MIN_TIMES_MEDIAN = 10
# The share of all samples' time that slow samples cost, and of the loop's time that it waits.
_MIN_SHARE = 0.05
_MIN_SAMPLES = 20
# The share of its time in which a batch may wait for a CPU.
_MAX_DELAYED = 0.2
# A sample computes if it is on a CPU for this share of its time, and waits if it is off for it.
_COMPUTING = 0.7
_SHOWN = 5
# Once or twice may be chance.
_MIN_REUSED = 3


def check(observation: Observation, stages: Stages | None) -> Iterator[Finding]:
    """Finds slow samples, if somebody waits for them, and samples that lie in the same memory."""
    # A loop that does not wait has no use for faster samples.
    loop_waits = stages is None or stages.step_s is None or stages.waiting >= _MIN_SHARE
    if loop_waits:
        yield from _check_slow_samples(observation)
    yield from _check_reused_buffer(observation)


def _check_slow_samples(observation: Observation) -> Iterator[Finding]:
    """Finds samples of over 10 times the median and over 50 ms.

    Together they have to take a twentieth of all samples' time.
    """
    fetches: list[Fetch] = []
    for worker in observation.workers:
        # The first batch of a process opens files and imports modules.
        for fetch in worker.fetches[1:]:
            # A busy machine makes samples slow, too: a batch that waited for a CPU proves nothing.
            if (fetch.delayed_s or 0.0) < _MAX_DELAYED * fetch.seconds:
                fetches.append(fetch)
    times_us: list[int] = []
    for fetch in fetches:
        times_us += fetch.times_us
    if len(times_us) < _MIN_SAMPLES:
        return
    times_s = np.array(times_us, dtype=float) / 1e6  # (samples,)
    median_s = float(np.median(times_s))
    limit_s = max(_MIN_TIMES_MEDIAN * median_s, _MIN_SLOW_S)
    slow_s = times_s[times_s > limit_s]
    lost_s = (slow_s - median_s).sum()
    if len(slow_s) < 2 or lost_s < _MIN_SHARE * times_s.sum():
        return

    share = slow_s.sum() / times_s.sum()
    worst = "; ".join(_describe_worst(fetches, limit_s))
    yield Finding(
        Code.SLOW_SAMPLES,
        str(observation.facts["dataset_place"]),
        what=f"{len(slow_s):,} of {len(times_s):,} samples take more than {format_ms(limit_s)} "
        f"(median {format_ms(median_s)}), and {share:.0%} of all samples' time. "
        f"The slowest: {worst}",
        why="a worker makes its batch alone: "
        "a slow sample delays its own batch and all later batches",
        change=_advise_on_slow_samples(fetches, limit_s),
        section=13,
    )


def _advise_on_slow_samples(fetches: list[Fetch], limit_s: float) -> str:
    """Says where to look: batches with slow samples mostly compute, or mostly wait."""
    cpu_s = 0.0
    seconds = 0.0
    for fetch in fetches:
        if max(fetch.times_us, default=0) > limit_s * 1e6:
            cpu_s += fetch.cpu_s
            seconds += fetch.seconds
    on_cpu = cpu_s / seconds
    if on_cpu > _COMPUTING:
        return (
            "check what this line computes for these samples: make very large files smaller once; "
            "bound a loop that tries again until something fits"
        )
    if on_cpu < 1 - _COMPUTING:
        return (
            "check what this line waits for with these samples: a slow disk, the network, a lock; "
            "copy such files to a faster disk, or leave them out"
        )
    return (
        "check these samples (very large files, a slow disk): "
        "make them smaller once, or leave them out"
    )


def _describe_worst(fetches: list[Fetch], limit_s: float) -> list[str]:
    """Describes each sample that was slow at least once, the slowest first."""
    slow: list[tuple[str, float, str]] = []  # index, seconds, name
    slow_count: Counter[str] = Counter()
    for fetch in fetches:
        for index, seconds, name in fetch.worst:
            if seconds <= limit_s:
                continue
            slow.append((index, seconds, name))
            if seconds > _MIN_SLOW_S:
                slow_count[index] += 1
    slow.sort(key=lambda entry: -entry[1])
    described: dict[str, str] = {}
    for index, seconds, name in slow:
        if index in described:
            continue
        text = str(index)
        if name:
            text += f" ({name})"
        text += f" {format_ms(seconds)}"
        if slow_count[index] > 1:
            text += f", {slow_count[index]} times"
        described[index] = text
    return list(described.values())[:_SHOWN]


def _check_reused_buffer(observation: Observation) -> Iterator[Finding]:
    """Finds samples that lie in the memory of the sample before, which is still in use."""
    reused = []
    for worker in observation.workers:
        reused += worker.reused
    if len(reused) < _MIN_REUSED:
        return
    first = reused[0]
    symptom = (
        f"{first['part']} of a sample lay {len(reused):,} times in the same memory as that of the "
        "sample before in its batch"
    )
    if first["buffer"]:
        symptom += f", that of {first['buffer']}"
    where = find_assignment(first["buffer"], first["place"])
    yield Finding(
        Code.REUSED_BUFFER,
        where or str(observation.facts["dataset_place"]),
        what=symptom,
        why="the dataset writes each sample into one buffer: "
        "all samples of a batch become the last one",
        change="return a copy of the buffer (.copy() or .clone()), "
        "or make a new one for each sample",
    )
