"""Generators and samples of several workers -> draws and samples that are the same in each."""

from __future__ import annotations

from collections.abc import Iterator

from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.observation import Observation, Worker
from fastpipe.diagnosis.words import count

_LEAST_SAMPLES = 2


def check(seen: Observation) -> Iterator[Finding]:
    """Repeated random numbers, and streams that every worker reads whole."""
    workers = [worker for worker in seen.workers if worker.number >= 0 and worker.fetches]
    yield from _generators(seen, workers)
    if seen.facts["stream"]:
        yield from _streams(seen, workers)


def _generators(seen: Observation, workers: list[Worker]) -> Iterator[Finding]:
    """Generators of the dataset's own that begin alike in two workers, and are drawn from.

    torch seeds the global ones of random, NumPy and torch by worker; so does a worker_init_fn that seeds these.
    """
    states: dict[tuple[str, int], set[int]] = {}
    for worker in workers:
        for path, state in worker.generators_before.items():
            if worker.generators_after.get(path, state) != state:
                states.setdefault((path, state), set()).add(worker.number)
    repeated = sorted({path for (path, _), numbers in states.items() if len(numbers) > 1})
    if repeated:
        yield Finding(
            "same-random-numbers",
            Severity.BAD,
            f"{repeated[0]} is a random generator of the dataset's own, with the same state in several workers"
            + (f"; so are {', '.join(repeated[1:4])}" if len(repeated) > 1 else ""),
            "it was created once and copied into each worker, so all workers draw the same numbers; without "
            "persistent_workers, they draw them again in each epoch",
            "draw with torch, or from np.random.default_rng([seed, epoch, number]) in __getitem__",
            str(seen.facts["dataset_place"]),
            8,
        )


def _streams(seen: Observation, workers: list[Worker]) -> Iterator[Finding]:
    latest = list({worker.number: worker for worker in workers}.values())
    for number, worker in enumerate(latest):
        for other in latest[number + 1 :]:
            shared = min(len(worker.checksums), len(other.checksums))
            mine, theirs = worker.checksums[:shared], other.checksums[:shared]
            if shared >= _LEAST_SAMPLES and mine == theirs and len(set(mine)) > 1:
                yield Finding(
                    "every-sample-per-worker",
                    Severity.BAD,
                    f"workers {worker.number} and {other.number} started with the same {shared} samples: an epoch "
                    f"contains every sample {count(seen.num_workers, 'time')}",
                    "each worker has a copy of the IterableDataset and iterates over all of it",
                    "in __iter__: worker = torch.utils.data.get_worker_info(), then yield "
                    "samples[worker.id :: worker.num_workers]",
                    str(seen.facts["dataset_place"]),
                    9,
                )
                return
