"""What workers read and draw -> samples that fail, are slow, or are the same in several workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import numpy as np

from fastpipe.diagnosis.code import assigned_at, seeded_again_at, seeded_at
from fastpipe.diagnosis.ended import UNEQUAL, cause_of
from fastpipe.diagnosis.findings import Code, Finding
from fastpipe.diagnosis.inject.fastpipe_probe.files import Fetch
from fastpipe.diagnosis.inject.fastpipe_probe.objects import checksum
from fastpipe.diagnosis.observation import Observation, Surroundings, Worker
from fastpipe.diagnosis.stages import Stages
from fastpipe.diagnosis.words import milliseconds

_LEAST_SLOW_S = 0.05
_LEAST_SHARE = 0.05
_SHOWN = 5
_LEAST_DISTINCT = 16
_LEAST_SHARED = 8
_LEAST_STATES = 8
_LEAST_REUSED = 3
_COMPUTING = 0.7  # of a slow sample's time
_SEEDS = {
    "random": "random.seed(torch.initial_seed())",
    "np.random": "np.random.seed(torch.initial_seed() % 2**32)",
    "torch": "torch.manual_seed(torch.utils.data.get_worker_info().seed)",
}


def check(seen: Observation, around: Surroundings, time: Stages | None) -> Iterator[Finding]:
    """Files that are shared, else errors, which these may explain; slow samples; repeated draws and samples."""
    failures = [failure for worker in seen.workers for failure in worker.failures]
    if shared := _shared(seen, failed=bool(failures)):
        first = shared[0]
        others = ", ".join(each["path"] for each in shared[1:4]) or None
        evidence = {**first, "others": others, "file": first["file"] or None}
        if failures:
            evidence |= {"sample": failures[0]["sample"], "raised": failures[0]["error"]}
        where = assigned_at(first["path"], first["place"]) or str(seen.facts["dataset_place"])
        yield Finding(Code.SHARED_FILE, where, evidence)
    elif failures:
        yield _failed(seen, failures)
    if time is None or time.step_s is None or time.waiting >= _LEAST_SHARE:  # else nobody waits for them
        yield from _slow(seen)
    workers = [worker for worker in seen.workers if worker.number >= 0 and worker.fetches]
    yield from _generators(seen, workers)
    yield from _seeds(seen, workers)
    reused = [each for worker in seen.workers for each in worker.reused]
    if len(reused) >= _LEAST_REUSED:
        first, times = reused[0], len(reused)
        where = assigned_at(first["buffer"], first["place"]) or str(seen.facts["dataset_place"])
        yield Finding(Code.REUSED_BUFFER, where, {**first, "buffer": first["buffer"] or None, "times": times})
    yield from _streams(seen) if seen.facts["stream"] else _whole(seen)


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
    sample = {"sample": first["sample"], "file": first["name"] or None}
    evidence |= {"function": "collate_fn", "of_samples": first["sample"]} if collate else sample
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

    The first batch of each process is left out: it opens files and imports modules. A busy machine makes samples slow,
    too: a batch that waited for a CPU a fifth of its time tells nothing.
    """
    all_fetches = [fetch for worker in seen.workers for fetch in worker.fetches[1:]]
    fetches = [fetch for fetch in all_fetches if (fetch.delayed_s or 0.0) < 0.2 * fetch.seconds]
    times_s = np.array([micros for fetch in fetches for micros in fetch.times_us], dtype=float) / 1e6
    if len(times_s) < 20:
        return
    median_s = float(np.median(times_s))
    limit_s = max(10 * median_s, _LEAST_SLOW_S)
    slow_s = times_s[times_s > limit_s]
    if len(slow_s) > 1 and (slow_s - median_s).sum() >= _LEAST_SHARE * times_s.sum():
        evidence: dict[str, Any] = {"slow": len(slow_s), "samples": len(times_s), "limit_s": limit_s}
        evidence |= {
            "median_s": median_s,
            "share": slow_s.sum() / times_s.sum(),
            "worst": "; ".join(_worst(fetches, limit_s)),
        }
        theirs = [fetch for fetch in fetches if max(fetch.times_us, default=0) > limit_s * 1e6]
        on_cpu = sum(fetch.cpu_s for fetch in theirs) / sum(fetch.seconds for fetch in theirs)
        cause = "computes" if on_cpu > _COMPUTING else "waits" if on_cpu < 1 - _COMPUTING else ""
        yield Finding(Code.SLOW_SAMPLES, str(seen.facts["dataset_place"]), evidence, cause)


def _worst(fetches: list[Fetch], limit_s: float) -> list[str]:
    """Each sample that took longer once, the slowest first."""
    slow = (each for fetch in fetches for each in fetch.worst if each[1] > limit_s)
    slowest = sorted(slow, key=lambda each: -each[1])
    often = Counter(index for index, seconds, _ in slowest if seconds > _LEAST_SLOW_S)
    found: dict[str, str] = {}
    for index, seconds, name in slowest:
        again = f", {often[index]} times" if often[index] > 1 else ""
        found.setdefault(index, f"{index}{f' ({name})' if name else ''} {milliseconds(seconds)}{again}")
    return list(found.values())[:_SHOWN]


def _drawn(before: dict[str, int], after: dict[str, int]) -> list[tuple[str, int]]:
    """The generators that the first batch drew from, and the state in which it found each."""
    return [(name, state) for name, state in before.items() if after.get(name, state) != state]


def _generators(seen: Observation, workers: list[Worker]) -> Iterator[Finding]:
    """Generators of the dataset's own, or in global variables, that begin alike in two workers, and are drawn from."""
    states: dict[tuple[str, int], set[int]] = {}
    for worker in workers:
        for drawn in _drawn(worker.generators_before, worker.generators_after):
            states.setdefault(drawn, set()).add(worker.number)
    repeated = sorted({path for (path, _), numbers in states.items() if len(numbers) > 1})
    if repeated:
        first = repeated[0]
        evidence = {"generator": first, "others": ", ".join(repeated[1:4]) or None}
        owner = str(seen.facts["collate_place" if first in seen.facts["collate_generators"] else "dataset_place"])
        place = assigned_at(first, owner) if "." in first else owner
        yield Finding(Code.SAME_RANDOM_NUMBERS, place, evidence, "generator")


def _seeds(seen: Observation, workers: list[Worker]) -> Iterator[Finding]:
    """Global generators of random, NumPy and torch that somebody seeded: torch gives each worker another seed."""
    dataset, init = str(seen.facts["dataset_place"]), str(seen.facts["init_place"])
    # One that was drawn from once, at the first sample, looks the same: only a line that seeds is proof.
    if (name := _reseeded(seen)) and (place := seeded_at(dataset)) != dataset:
        yield Finding(Code.SAME_RANDOM_NUMBERS, place, {"generator": name}, "sample")
        return
    drawn = [
        (worker.number, each) for worker in workers for each in _drawn(worker.globals_before, worker.globals_after)
    ]
    alike = [(one, other, state[0]) for (one, state), (other, same) in combinations(drawn, 2) if state == same]
    if alike:
        one, other, name = max(alike, key=lambda each: each[0] != each[1])
        evidence = {"one": one, "other": other, "each": "worker"} if one != other else {"again": one, "each": "epoch"}
        again = seeded_again_at(seen.epochs[-1].place) if seen.epochs else ""
        place, cause = (seeded_at(init), "init") if init else (again or seen.made_at, "torch")
        yield Finding(Code.SAME_RANDOM_NUMBERS, place, {**evidence, "generator": name, "seed": _SEEDS[name]}, cause)


def _reseeded(seen: Observation) -> str:
    """A global generator that every sample leaves in the same state, which is not the one that it found; or ""."""
    for worker in seen.workers:
        before, *after = worker.states or [{}]
        for name, state in before.items():
            later = {each.get(name) for each in after}
            if len(after) >= _LEAST_STATES and len(later) == 1 and state not in later:
                return name
    return ""


def _streams(seen: Observation) -> Iterator[Finding]:
    """Workers of one process, or of ranks that train together, that give the same samples."""
    own, elsewhere = _by_start(seen), [_by_start(other) for other in _ranks(seen)]
    for start, together in own.items():
        others = [worker for other in elsewhere for worker in other.get(start, [])]
        pairs = [("", *pair) for pair in combinations(together, 2)]
        pairs += [("rank", *pair) for pair in product(together, others)]
        for cause, worker, other in pairs:
            shared, total = _in_both(worker.checksums, other.checksums)
            if shared:
                evidence = {"shared": shared, "total": total, "worker": worker.number, "other": other.number}
                yield Finding(Code.EVERY_SAMPLE_PER_WORKER, str(seen.facts["dataset_place"]), evidence, cause)
                return


def _by_start(seen: Observation) -> dict[int, list[Worker]]:
    """The workers that were started together: those of one epoch, if they do not persist."""
    started: Counter[int] = Counter()
    together: dict[int, list[Worker]] = {}
    for worker in seen.workers:  # of each number in the order of their starts
        together.setdefault(started[worker.number], []).append(worker)
        started[worker.number] += 1
    return together


def _whole(seen: Observation) -> Iterator[Finding]:
    """Ranks that train together, each with all of the same samples."""
    ranks = [other for other in _ranks(seen) if other.facts["whole"] == seen.facts["whole"] != ""]
    if ranks:
        yield Finding(Code.EVERY_SAMPLE_PER_WORKER, seen.made_at, {"ranks": 1 + len(ranks)}, "sampler")


def _ranks(seen: Observation) -> list[Observation]:
    return [other for other in seen.others if all(each.ranks > 1 for each in [*seen.epochs, *other.epochs])]


def _in_both(one: list[list[int]], other: list[list[int]]) -> tuple[int, int]:
    """How many of the first samples two workers have in common, and of how many; 0 where that may be chance.

    The same samples in the same order are no chance. In another order, samples are told by the whole, or by a part of
    them that is another one in each, such as a name: labels are not.
    """
    length = min(len(one), len(other))
    if length > 1 and one[:length] == other[:length] and len({tuple(each) for each in one[:length]}) > 1:
        return length, length
    counted = [checksum(number) for number in range(_LEAST_DISTINCT)]
    for part in range(min((len(each) for each in [*one, *other]), default=0)):
        if part and [each[part] for each in one[:_LEAST_DISTINCT]] == counted:
            continue  # a worker's own count of its samples
        mine, theirs = (_distinct([each[part] for each in samples]) for samples in (one, other))
        if min(len(mine), len(theirs)) >= _LEAST_DISTINCT and len(mine & theirs) >= _LEAST_SHARED:
            return len(mine & theirs), len(mine)
    return 0, 0


def _distinct(sums: list[int]) -> set[int]:
    """Those before the first that comes again."""
    again = next((at for at, each in enumerate(sums) if each in sums[:at]), len(sums))
    return set(sums[:again])
