"""Files that workers share, the errors and the time of each sample -> samples that fail, and slow ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpipe.diagnosis.checks.options import several
from fastpipe.diagnosis.code import assigned_at
from fastpipe.diagnosis.ended import cause_of
from fastpipe.diagnosis.findings import Code, Finding
from fastpipe.diagnosis.inject.fastpipe_probe.files import Fetch
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.stages import stages
from fastpipe.diagnosis.words import milliseconds

_TIMES_MEDIAN = 10
_LEAST_S = 0.05
_LEAST_SHARE = 0.05
_MOST_DELAYED = 0.2
_LEAST_SAMPLES = 20
_LEAST_OUTLIERS = 2
_SHOWN = 5


def check(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    """Files that were opened before the workers were forked, then errors, which they may explain; and slow samples."""
    failures = [failure for worker in seen.workers for failure in worker.failures]
    if shared := _shared(seen, failed=bool(failures)):
        first = shared[0]
        evidence = {**several(shared), "file": first["file"] or None, "workers": seen.num_workers}
        if failures:
            evidence |= {"sample": failures[0]["sample"], "raised": failures[0]["error"]}
        where = assigned_at(first["path"], first["place"]) if first["place"] else str(seen.facts["dataset_place"])
        yield Finding(Code.SHARED_FILE, where, evidence, "position" if first["file"] else "handle")
    elif failures:
        yield _failed(seen, failures)
    yield from _slow(seen)


def _shared(seen: Observation, *, failed: bool) -> list[dict[str, str]]:
    """The files and handles that two workers or more use: a single worker has them to itself."""
    if seen.num_workers < 2:
        return []
    held = {each["path"]: each for worker in seen.workers for each in worker.inherited}
    users = {path: {each.number for each in seen.workers if path in _paths(each.inherited)} for path in held}
    return [each for path, each in held.items() if len(users[path]) > 1 or failed]  # the first error may end them all


def _paths(found: list[dict[str, str]]) -> set[str]:
    return {each["path"] for each in found}


def _failed(seen: Observation, failures: list[dict[str, str]]) -> Finding:
    """What was at fault, if not the sample."""
    first = failures[0]
    where = first["place"] or str(seen.facts["dataset_place"])
    others = len({failure["sample"] for failure in failures} - {first["sample"]})
    collate = first["failed"] == "collate"
    evidence: dict[str, Any] = {
        "function": "collate_fn" if collate else None,
        "sample": None if collate else first["sample"],
        "file": None if collate else first["name"] or None,
        "raised": first["error"],
    }
    code = cause_of(first["error"])
    if code is not None:
        return Finding(code, seen.made_at if code is Code.SMALL_SHARED_MEMORY else where, evidence)
    evidence |= {"others": others or None, "made_at": seen.made_at}
    if any(worker.read_again for worker in seen.workers):
        return Finding(Code.PASSING_ERROR, where, evidence)
    if collate:  # torch's words
        unequal = "equal size" in first["error"]
        return Finding(Code.UNEQUAL_SAMPLES if unequal else Code.BAD_COLLATE, where, evidence)
    return Finding(Code.BAD_SAMPLE, where, evidence, "mistake" if first.get("mistake") else "")


def _slow(seen: Observation) -> Iterator[Finding]:
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
    evidence = {
        "slow": len(outliers),
        "samples": len(times_s),
        "limit_s": limit_s,
        "median_s": median_s,
        "share": outliers.sum() / times_s.sum(),
        "worst": "; ".join(_worst(fetches)[:_SHOWN]),
    }
    yield Finding(Code.SLOW_SAMPLES, str(seen.facts["dataset_place"]), evidence)


def _worst(fetches: list[Fetch]) -> list[str]:
    """Each sample once, the slowest first."""
    by_sample: dict[str, list[tuple[float, str]]] = {}
    for fetch in fetches:
        for index, seconds, name in fetch.worst:
            by_sample.setdefault(index, []).append((seconds, f" ({name})" if name else ""))
    found = []
    for index, times in sorted(by_sample.items(), key=lambda item: -max(item[1])[0]):
        often = sum(seconds > _LEAST_S for seconds, _ in times)
        again = f", {often} times" if often > 1 else ""
        found.append(f"{index}{times[-1][1]} {milliseconds(max(times)[0])}{again}")
    return found
