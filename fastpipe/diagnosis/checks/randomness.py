"""Generators and samples of several workers -> draws and samples that are the same in each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from fastpipe.diagnosis.code import seeded_at
from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.objects import checksum
from fastpipe.diagnosis.observation import Observation, Worker
from fastpipe.diagnosis.words import count

_LEAST_SAMPLES = 2
_LEAST_DISTINCT = 16
_LEAST_SHARED = 8
_LEAST_STATES = 8
_SEEDS = {
    "random": "random.seed(torch.initial_seed())",
    "np.random": "np.random.seed(torch.initial_seed() % 2**32)",
    "torch": "torch.manual_seed(torch.utils.data.get_worker_info().seed)",
}


def check(seen: Observation) -> Iterator[Finding]:
    """Repeated random numbers, and streams that every worker reads whole."""
    workers = [worker for worker in seen.workers if worker.number >= 0 and worker.fetches]
    yield from _generators(seen, workers)
    yield from _seeds(seen, workers)
    if seen.facts["stream"]:
        yield from _streams(seen, workers)


def _generators(seen: Observation, workers: list[Worker]) -> Iterator[Finding]:
    """Generators of the dataset's own, or in global variables, that begin alike in two workers, and are drawn from."""
    states: dict[tuple[str, int], set[int]] = {}
    for worker in workers:
        for path, state in worker.generators_before.items():
            if worker.generators_after.get(path, state) != state:
                states.setdefault((path, state), set()).add(worker.number)
    repeated = sorted({path for (path, _), numbers in states.items() if len(numbers) > 1})
    if repeated:
        own = repeated[0].startswith("dataset")
        yield Finding(
            "same-random-numbers",
            Severity.BAD,
            f"{repeated[0]} is a random generator {'of the dataset' if own else 'in a global variable'}, with the same "
            "state in several workers" + (f"; so are {', '.join(repeated[1:4])}" if len(repeated) > 1 else ""),
            "it was created once and copied into each worker, so all workers draw the same numbers; without "
            "persistent_workers, they draw them again in each epoch",
            "draw with torch, or from np.random.default_rng([seed, epoch, number]) in __getitem__",
            str(seen.facts["dataset_place"]),
            8,
        )


def _seeds(seen: Observation, workers: list[Worker]) -> Iterator[Finding]:
    """Global generators of random, NumPy and torch that somebody seeded: torch gives each worker another seed."""
    dataset = str(seen.facts["dataset_place"])
    # One that was drawn from once, at the first sample, looks the same: only a line that seeds is proof.
    if (name := _reseeded(seen)) and (place := seeded_at(dataset)) != dataset:
        what = f"{name} has the same state after every sample: each sample draws the same numbers"
        yield _seeded(what, "it is seeded with a constant for each sample", "remove this line", place)
        return
    drawn = [
        (worker, name, state)
        for worker in workers
        for name, state in worker.globals_before.items()
        if worker.globals_after.get(name, state) != state
    ]
    init = str(seen.facts["init_place"])
    place = seeded_at(init) if init else seen.made_at
    alike = [
        (one, other, name) for (one, name, state), (other, *same) in combinations(drawn, 2) if [name, state] == same
    ]
    if not alike:
        return
    one, other, name = max(alike, key=lambda each: each[0].number != each[1].number)
    if one.number != other.number:
        who, each = f"workers {one.number} and {other.number} begin", "worker"
    else:
        who, each = f"worker {one.number} begins two epochs", "epoch"
    yield _seeded(
        f"{who} with the same state of {name}, and so with the same draws",
        f"worker_init_fn seeds it with the same number in every {each}"
        if init
        else f"torch seeds workers from its own generator, or the loader's: it is seeded again for each {each}",
        f"in worker_init_fn: {_SEEDS[name]}, which differs for each worker and epoch; or no "
        "worker_init_fn: torch seeds random, NumPy and torch itself"
        if init
        else "seed once, at the start of the program",
        place,
    )


def _reseeded(seen: Observation) -> str:
    """A global generator that every sample leaves in the same state, which is not the one that it found; or ""."""
    for worker in seen.workers:
        before, *after = worker.states or [{}]
        for name, state in before.items():
            later = {each.get(name) for each in after}
            if len(after) >= _LEAST_STATES and len(later) == 1 and state not in later:
                return name
    return ""


def _seeded(what: str, why: str, change: str, place: str) -> Finding:
    return Finding("same-random-numbers", Severity.BAD, what, why, change, place, 8)


def _streams(seen: Observation, workers: list[Worker]) -> Iterator[Finding]:
    latest = list({worker.number: worker for worker in workers}.values())
    for worker, other in combinations(latest, 2):
        shared, total = _in_both(worker.checksums, other.checksums)
        if shared:
            yield Finding(
                "every-sample-per-worker",
                Severity.BAD,
                f"{shared:,} of the first {total:,} samples of worker {worker.number} came from worker {other.number}, "
                f"too: an epoch contains every sample {count(seen.num_workers, 'time')}",
                "each worker has a copy of the IterableDataset and iterates over all of it",
                "in __iter__: worker = torch.utils.data.get_worker_info(), then take only "
                "samples[worker.id :: worker.num_workers], and shuffle these",
                str(seen.facts["dataset_place"]),
                9,
            )
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
        mine, theirs = _distinct([each[part] for each in one]), _distinct([each[part] for each in other])
        shared = len(mine & theirs)
        if min(len(mine), len(theirs)) >= _LEAST_DISTINCT and shared >= _LEAST_SHARED:
            return shared, len(mine)
    return 0, 0


def _distinct(sums: list[int]) -> set[int]:
    """Those before the first that comes again."""
    found: set[int] = set()
    for each in sums:
        if each in found:
            break
        found.add(each)
    return found
