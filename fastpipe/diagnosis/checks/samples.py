"""Files that workers share, the errors and the time of each sample -> samples that fail, and slow ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpipe.diagnosis.checks.options import several
from fastpipe.diagnosis.code import assigned_at
from fastpipe.diagnosis.ended import UNEQUAL, cause_of
from fastpipe.diagnosis.findings import Code, Finding
from fastpipe.diagnosis.inject.fastpipe_probe.files import Fetch
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.stages import Stages
from fastpipe.diagnosis.words import milliseconds

_TIMES_MEDIAN = 10
_LEAST_S = 0.05
_LEAST_SHARE = 0.05
_MOST_DELAYED = 0.2
_LEAST_SAMPLES = 20
_LEAST_OUTLIERS = 2
_SHOWN = 5


def check(seen: Observation, around: Surroundings, time: Stages | None) -> Iterator[Finding]:
    """Files that were opened before the workers were forked, then errors, which they may explain; and slow samples."""
    failures = [failure for worker in seen.workers for failure in worker.failures]
    if shared := _shared(seen, failed=bool(failures)):
        first = shared[0]
        evidence = {**several(shared), "file": first["file"] or None}
        if failures:
            evidence |= {"sample": failures[0]["sample"], "raised": failures[0]["error"]}
        where = assigned_at(first["path"], first["place"]) if first["place"] else str(seen.facts["dataset_place"])
        yield Finding(Code.SHARED_FILE, where, evidence)
    elif failures:
        yield _failed(seen, failures)
    if time is None or time.step_s is None or time.waiting >= _LEAST_SHARE:  # else nobody waits for them
        yield from _slow(seen)


def _shared(seen: Observation, *, failed: bool) -> list[dict[str, str]]:
    """The files and handles that two workers or more use: a single worker has them to itself."""
    used = {(each["path"], worker.number): each for worker in seen.workers for each in worker.inherited}
    users = Counter(path for path, _ in used)
    # The first error may end all of them.
    found = {path: each for (path, _), each in used.items() if users[path] > 1 or failed}
    return list(found.values()) if seen.num_workers > 1 else []


def _failed(seen: Observation, failures: list[dict[str, str]]) -> Finding:
    """What was at fault, if not the sample."""
    first = failures[0]
    where, collate = first["place"] or str(seen.facts["dataset_place"]), first["failed"] == "collate"
    evidence: dict[str, Any] = {"raised": first["error"]}
    evidence |= {"function": "collate_fn"} if collate else {"sample": first["sample"], "file": first["name"] or None}
    code = cause_of(first["error"])
    if code is not None:
        return Finding(code, seen.made_at if code is Code.SMALL_SHARED_MEMORY else where, evidence)
    evidence["others"] = len({failure["sample"] for failure in failures} - {first["sample"]}) or None
    if any(worker.read_again for worker in seen.workers):
        return Finding(Code.PASSING_ERROR, where, evidence)
    if collate:
        return Finding(Code.UNEQUAL_SAMPLES if UNEQUAL in first["error"] else Code.BAD_COLLATE, where, evidence)
    return Finding(Code.BAD_SAMPLE, where, evidence, "mistake" if first.get("mistake") else "")


def _slow(seen: Observation) -> Iterator[Finding]:
    """Samples of over 10 times the median and 50 ms, if together they cost over a twentieth of all samples' time.

    The first batch of each process is left out: it opens files and imports modules.
    """
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
    slow_s = times_s[times_s > limit_s]
    if len(slow_s) < _LEAST_OUTLIERS or (slow_s - median_s).sum() < _LEAST_SHARE * times_s.sum():
        return
    evidence: dict[str, Any] = {"slow": len(slow_s), "samples": len(times_s), "limit_s": limit_s, "median_s": median_s}
    evidence |= {"share": slow_s.sum() / times_s.sum(), "worst": "; ".join(_worst(fetches))}
    yield Finding(Code.SLOW_SAMPLES, str(seen.facts["dataset_place"]), evidence)


def _worst(fetches: list[Fetch]) -> list[str]:
    """Each sample once, the slowest first."""
    slowest = sorted(
        ((seconds, index, name) for fetch in fetches for index, seconds, name in fetch.worst), reverse=True
    )
    often = Counter(index for seconds, index, _ in slowest if seconds > _LEAST_S)
    found: dict[str, str] = {}
    for seconds, index, name in slowest:
        again = f", {often[index]} times" if often[index] > 1 else ""
        found.setdefault(index, f"{index}{f' ({name})' if name else ''} {milliseconds(seconds)}{again}")
    return list(found.values())[:_SHOWN]
