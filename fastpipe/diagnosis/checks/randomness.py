"""Generators and samples of several workers -> draws and samples that are the same in each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from fastpipe.diagnosis.code import seeded_at
from fastpipe.diagnosis.findings import Code, Finding
from fastpipe.diagnosis.inject.fastpipe_probe.objects import checksum
from fastpipe.diagnosis.observation import Observation, Surroundings, Worker
from fastpipe.diagnosis.stages import Stages

_LEAST_SAMPLES = 2
_LEAST_DISTINCT = 16
_LEAST_SHARED = 8
_LEAST_STATES = 8
_SEEDS = {
    "random": "random.seed(torch.initial_seed())",
    "np.random": "np.random.seed(torch.initial_seed() % 2**32)",
    "torch": "torch.manual_seed(torch.utils.data.get_worker_info().seed)",
}


def check(seen: Observation, around: Surroundings, time: Stages | None) -> Iterator[Finding]:
    """Repeated random numbers, and streams that every worker reads whole."""
    workers = [worker for worker in seen.workers if worker.number >= 0 and worker.fetches]
    yield from _generators(seen, workers)
    yield from _seeds(seen, workers)
    if seen.facts["stream"]:
        yield from _streams(seen, workers)


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
        evidence = {"generator": repeated[0], "others": ", ".join(repeated[1:4]) or None}
        yield Finding(Code.SAME_RANDOM_NUMBERS, str(seen.facts["dataset_place"]), evidence, "generator")


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
        place, cause = (seeded_at(init), "init") if init else (seen.made_at, "torch")
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


def _streams(seen: Observation, workers: list[Worker]) -> Iterator[Finding]:
    latest = list({worker.number: worker for worker in workers}.values())
    for worker, other in combinations(latest, 2):
        shared, total = _in_both(worker.checksums, other.checksums)
        if shared:
            evidence = {"shared": shared, "total": total, "worker": worker.number, "other": other.number}
            yield Finding(Code.EVERY_SAMPLE_PER_WORKER, str(seen.facts["dataset_place"]), evidence)
            return


def _in_both(one: list[list[int]], other: list[list[int]]) -> tuple[int, int]:
    """How many of the first samples two workers have in common, and of how many; 0 where that may be chance.

    The same samples in the same order are no chance. In another order, samples are told by the whole, or by a part of
    them that is another one in each, such as a name: labels are not.
    """
    length = min(len(one), len(other))
    if length >= _LEAST_SAMPLES and one[:length] == other[:length] and len({tuple(each) for each in one[:length]}) > 1:
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
