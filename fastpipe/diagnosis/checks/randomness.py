"""The states of random generators -> draws that repeat in workers, epochs or samples."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from fastpipe.diagnosis.findings import Code, Finding
from fastpipe.diagnosis.observation import Observation, Worker
from fastpipe.diagnosis.source.places import (
    find_assignment,
    find_repeated_seed,
    find_seed,
)

# A state that repeats after fewer samples may be chance.
_MIN_STATES = 8
# Further generators that a sentence lists.
_MAX_NAMED = 3
# The global generators -> the call that seeds them in a worker, different for each worker and
# epoch.
_SEED_CALLS = {
    "random": "random.seed(torch.initial_seed())",
    "np.random": "np.random.seed(torch.initial_seed() % 2**32)",
    "torch": "torch.manual_seed(torch.utils.data.get_worker_info().seed)",
}


def check(observation: Observation) -> Iterator[Finding]:
    """Finds generators that are copied to workers, and global ones with constant seeds."""
    workers = [
        worker
        for worker in observation.workers
        if worker.number >= 0 and worker.fetches
    ]
    yield from _check_copied_generators(observation, workers)
    yield from _check_global_generators(observation, workers)


def _list_drawn(before: dict[str, int], after: dict[str, int]) -> list[tuple[str, int]]:
    """Lists the generators that the first batch drew from, each with its state before that."""
    return [
        (name, state)
        for name, state in before.items()
        if after.get(name, state) != state
    ]


def _check_copied_generators(
    observation: Observation, workers: list[Worker]
) -> Iterator[Finding]:
    """Finds generators of the dataset, or in global variables, that begin alike in two workers."""
    # (generator, state) -> numbers of workers.
    users: dict[tuple[str, int], set[int]] = {}
    for worker in workers:
        for drawn in _list_drawn(worker.generators_before, worker.generators_after):
            users.setdefault(drawn, set()).add(worker.number)
    repeated = sorted(
        {path for (path, _), numbers in users.items() if len(numbers) > 1}
    )
    if not repeated:
        return
    first = repeated[0]
    symptom = f"{first} is a random generator, with the same state in several workers"
    if len(repeated) > 1:
        others = repeated[1 : 1 + _MAX_NAMED]
        symptom += f"; so are {', '.join(others)}"
    is_of_collate = first in observation.facts["collate_generators"]
    owner = str(
        observation.facts["collate_place" if is_of_collate else "dataset_place"]
    )
    is_attribute = "." in first
    yield Finding(
        Code.SAME_RANDOM_NUMBERS,
        find_assignment(first, owner) if is_attribute else owner,
        what=symptom,
        why="each worker has a copy, and draws the same numbers; "
        "without persistent_workers, again in each epoch",
        change="draw with torch, which seeds each worker anew; "
        "or make the generator in the worker, of torch.initial_seed()",
        section=8,
    )


def _check_global_generators(
    observation: Observation, workers: list[Worker]
) -> Iterator[Finding]:
    """Finds global generators of random, NumPy and torch that the program seeds.

    torch itself gives each worker another seed.
    """
    dataset_place = str(observation.facts["dataset_place"])
    reseeded = _find_reseeded(observation)
    if reseeded:
        # A generator that was drawn from once, at the first sample, looks the same.
        # Only a line that seeds is proof.
        seed_place = find_seed(dataset_place)
        if seed_place != dataset_place:
            yield _report_seeded_in_each_sample(reseeded, seed_place)
            return

    drawn: list[tuple[int, tuple[str, int]]] = []  # worker's number, (generator, state)
    for worker in workers:
        for generator in _list_drawn(worker.globals_before, worker.globals_after):
            drawn.append((worker.number, generator))
    # Pairs with the same generator in the same state: of two workers, or of one in two epochs.
    pairs: list[tuple[int, int, str]] = []
    for (first, generator), (second, other_generator) in combinations(drawn, 2):
        if generator == other_generator:
            name, _ = generator
            pairs.append((first, second, name))
    if pairs:
        # Two workers say more than one worker in two epochs.
        pairs_of_two = [pair for pair in pairs if pair[0] != pair[1]]
        best_pairs = pairs_of_two or pairs
        first, second, name = best_pairs[0]
        yield _report_same_seed(observation, first, second, name)


def _find_reseeded(observation: Observation) -> str:
    """Finds a global generator that every sample seeds.

    After each sample it has one and the same state, other than the first. Returns "" if there is
    none.
    """
    for worker in observation.workers:
        if len(worker.states) <= _MIN_STATES:
            continue
        before = worker.states[0]
        for name, state in before.items():
            later = {states.get(name) for states in worker.states[1:]}
            if len(later) == 1 and state not in later:
                return name
    return ""


def _report_seeded_in_each_sample(generator: str, place: str) -> Finding:
    return Finding(
        Code.SAME_RANDOM_NUMBERS,
        place,
        what=f"{generator} has the same state after every sample: "
        "each sample draws the same numbers",
        why="it is seeded with a constant for each sample",
        change="remove this line",
        section=8,
    )


def _report_same_seed(
    observation: Observation, first: int, second: int, generator: str
) -> Finding:
    """A global generator begins alike in two workers, or in two epochs of one worker."""
    if first != second:
        symptom = f"workers {first} and {second} begin"
        repeats_in = "worker"
    else:
        symptom = f"worker {first} begins two epochs"
        repeats_in = "epoch"
    symptom += f" with the same state of {generator}, and so with the same draws"

    init_place = str(observation.facts["init_place"])
    # torch gives the workers different seeds, so somebody has seeded them all alike.
    if init_place:
        return Finding(
            Code.SAME_RANDOM_NUMBERS,
            find_seed(init_place),
            what=symptom,
            why=f"worker_init_fn seeds it with the same number in every {repeats_in}",
            change=f"in worker_init_fn: {_SEED_CALLS[generator]}, "
            "which differs for each worker and epoch; or leave all seeds to torch",
            section=8,
        )
    where = ""
    if observation.epochs:
        where = find_repeated_seed(observation.epochs[-1].place)
    return Finding(
        Code.SAME_RANDOM_NUMBERS,
        where or observation.made_at,
        what=symptom,
        why="torch seeds workers, and shuffles, by its own generator or the loader's: "
        f"it is seeded again for each {repeats_in}",
        change="seed once, at the start of the program",
        section=8,
    )
