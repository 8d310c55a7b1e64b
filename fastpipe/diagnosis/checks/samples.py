"""The time of each sample, and errors -> samples that are much slower than the others, and samples that fail."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastpipe.diagnosis.causes import cause_of, caused
from fastpipe.diagnosis.checks.inherited import shared
from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.observation import Fetch, Observation
from fastpipe.diagnosis.stages import stages
from fastpipe.diagnosis.words import milliseconds
from fastpipe.errors import readable

_TIMES_MEDIAN = 10
_LEAST_S = 0.05
_LEAST_SHARE = 0.05
_MOST_DELAYED = 0.2
_LEAST_SAMPLES = 20
_LEAST_OUTLIERS = 2
_SHOWN = 5


def slow(seen: Observation) -> Iterator[Finding]:
    """Samples of over 10 times the median and 50 ms, if together they cost over a twentieth of all samples' time.

    The first batch of each process is left out: it opens files and imports modules.
    """
    found = stages(seen)
    if found is not None and found.step_s is not None and found.waiting < _LEAST_SHARE:
        return  # nobody waits for them
    # A busy machine makes samples slow, too: a batch that waited long for a CPU tells nothing.
    fetches = [
        fetch
        for worker in seen.workers
        for fetch in worker.fetches[1:]
        if (fetch.delayed_s or 0.0) < _MOST_DELAYED * fetch.seconds
    ]
    times_s = np.array([micros for fetch in fetches for micros in fetch.times_us], dtype=float) / 1e6
    if len(times_s) < _LEAST_SAMPLES:
        return
    median_s = float(np.median(times_s))
    limit_s = max(_TIMES_MEDIAN * median_s, _LEAST_S)
    outliers = times_s[times_s > limit_s]
    if len(outliers) < _LEAST_OUTLIERS or outliers.sum() - len(outliers) * median_s < _LEAST_SHARE * times_s.sum():
        return
    worst = list(_worst(fetches))[:_SHOWN]
    yield Finding(
        "slow-samples",
        Severity.BAD,
        f"{len(outliers):,} of {len(times_s):,} samples take more than {milliseconds(limit_s)} (median "
        f"{milliseconds(median_s)}), and {outliers.sum() / times_s.sum():.0%} of all samples' time. The slowest: "
        f"{'; '.join(worst)}",
        "a worker makes its batch alone, so a slow sample delays its own batch and all later batches",
        "check these samples (very large images, a slow disk): make the images smaller once, or leave them out",
        str(seen.facts["dataset_place"]),
        13,
    )


def _worst(fetches: list[Fetch]) -> Iterator[str]:
    """Each sample once, the slowest first."""
    found: dict[str, tuple[float, str, int]] = {}
    for fetch in fetches:
        for index, seconds, name in fetch.worst:
            before = found.get(index, (0.0, "", 0))
            found[index] = (max(seconds, before[0]), name, before[2] + (seconds > _LEAST_S))
    for index, (seconds, name, often) in sorted(found.items(), key=lambda item: -item[1][0]):
        again = f", {often} times" if often > 1 else ""
        yield f"{index}{f' ({name})' if name else ''} {milliseconds(seconds)}{again}"


def failures(seen: Observation) -> Iterator[Finding]:
    """Samples whose reading raised, and what was at fault if not the sample."""
    found = [failure for worker in seen.workers for failure in worker.failures]
    if not found or shared(seen):
        return
    first = found[0]
    where = first["place"] or str(seen.facts["dataset_place"])
    name = f" ({first['name']})" if first["name"] else ""
    reading = f"reading sample {first['sample']}{name}" if first["failed"] == "dataset" else "collate_fn"
    what = f"{reading} raised {first['error']}"
    cause = cause_of(first["error"])
    if cause is not None:
        yield caused(cause, what, seen.made_at if cause.name == "small-shared-memory" else where)
        return
    others = {failure["sample"] for failure in found} - {first["sample"]}
    if others:
        what += f"; {len(others):,} more samples raised errors"
    if any(worker.read_again for worker in seen.workers):
        yield Finding(
            "passing-error",
            Severity.BAD,
            f"{what}; read once more, the same sample raised none",
            "the sample is good: the error comes and goes, as with a network, a disk, or a file or connection that "
            "several processes use",
            "open files and connections in the worker that uses them; try a read over a network again before it fails",
            where,
            13,
        )
        return
    mistake = bool(first.get("mistake"))
    if first["failed"] == "collate":
        yield Finding(
            "unequal-samples" if "equal size" in first["error"] else "bad-collate",
            Severity.BAD,
            what,
            "collate_fn makes a batch of samples that do not fit together",
            "return samples of the same shape, type and number of parts (resize or pad them), or give DataLoader "
            f"({readable(seen.made_at)}) a collate_fn that takes them as they are",
            where,
            13,
        )
        return
    yield Finding(
        "bad-sample",
        Severity.BAD,
        what,
        "an error in a worker ends the epoch, and its message does not name the sample",
        "correct this line: it does not take this input"
        if mistake
        else "repair or leave out this sample; or catch the error in __getitem__ and raise it with the file's name in "
        "the message",
        where,
        13,
    )
