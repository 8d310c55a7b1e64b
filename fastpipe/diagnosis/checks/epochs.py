"""How epochs begin -> orders and datasets that stay the same, and starts that take too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from fastpipe.diagnosis.findings import Code, Finding
from fastpipe.diagnosis.inject.fastpipe_probe.records import Epoch
from fastpipe.diagnosis.observation import Observation
from fastpipe.diagnosis.quantities import format_ms
from fastpipe.diagnosis.source.places import find_change
from fastpipe.diagnosis.stages import Stages
from fastpipe.errors import format_count

# Fewer iterators are no habit: a program may look at a batch before it trains.
_MIN_EPOCHS = 5
# A loop with fewer batches an epoch makes a new iterator for each batch, with next(iter(loader)).
_FEW_BATCHES = 1.5
# The share of the time that the starts of epochs may take.
_MAX_STARTING = 0.1
# A later batch comes that many times as fast as the first one of a slow start.
_TIMES_TYPICAL = 10
_MIN_START_S = 1.0
# Forks that take this long in a single epoch copy a large process.
_MIN_FORK_S = 3.0


def check(observation: Observation, stages: Stages | None) -> Iterator[Finding]:
    """Finds epochs that repeat or that start slowly."""
    yield from _check_stale_dataset(observation)
    yield from _check_order(observation)
    if stages is not None:
        iterators = list(_check_iterators(observation, stages))
        yield from iterators
        if not iterators:
            yield from _check_start(observation, stages)


def _check_stale_dataset(observation: Observation) -> Iterator[Finding]:
    """Finds a dataset that changes while workers that persist have a copy of it."""
    if observation.num_workers == 0:
        return
    for epoch in observation.epochs:
        if not epoch.changed:
            continue
        attribute = epoch.changed[0]
        where = (
            find_change(attribute, epoch.place) or epoch.place or observation.made_at
        )
        yield Finding(
            Code.STALE_DATASET,
            where,
            what=f"{attribute} has another value than when the workers were started",
            why="persistent_workers=True: each worker keeps the copy of the dataset of its start, "
            "and sees no change",
            change="persistent_workers=False; or pass the value by "
            "torch.tensor(...).share_memory_() or multiprocessing.Value",
            section=14,
        )
        return


def _check_order(observation: Observation) -> Iterator[Finding]:
    """Finds a sampler that shuffles by its epoch and was at the same epoch each time."""
    epochs_with_batches = {batch.epoch for batch in observation.batches}
    shuffled: list[tuple[Epoch, dict[str, Any]]] = []  # each epoch and its sampler
    for index, epoch in enumerate(observation.epochs):
        if index in epochs_with_batches and epoch.sampler:
            shuffled.append((epoch, epoch.sampler))
    if len(shuffled) < 2:
        return
    # Another DataLoader has another sampler, so only epochs of one loader are compared.
    orders = {(epoch.loader_index, sampler["epoch"]) for epoch, sampler in shuffled}
    if len(orders) > 1:
        return
    last, sampler = shuffled[-1]
    name = sampler["name"]
    yield Finding(
        Code.SAME_ORDER_EACH_EPOCH,
        last.place or observation.made_at,
        what=f"{name} was at epoch {sampler['epoch']} in each of {len(shuffled)} epochs: "
        "all had the same order",
        why=f"{name} shuffles by its seed and its epoch; "
        "set_epoch was not called, or always with this number",
        change="sampler.set_epoch(epoch) before this line, in each epoch",
        section=17,
    )


def _check_iterators(observation: Observation, stages: Stages) -> Iterator[Finding]:
    """Finds `next(iter(loader))` in each step, or a new DataLoader in each step."""
    # An epoch without a batch does not count: it may be a loop that was left at once.
    begun_count = 0
    for batch in observation.batches:
        if batch.number == 0 and batch.epoch < len(observation.epochs):
            begun_count += 1
    loader_count = len({epoch.loader_index for epoch in observation.epochs})
    is_new_loader = loader_count > begun_count / 2
    if (
        begun_count < _MIN_EPOCHS
        or len(observation.batches) > _FEW_BATCHES * begun_count
    ):
        return
    if observation.facts["batches"] == 1 and not is_new_loader:
        return  # an epoch has no more batches
    last_came_s = observation.batches[-1].came_s
    elapsed_s = last_came_s - observation.epochs[0].at_s
    share = begun_count * stages.start_s / max(elapsed_s, 1e-9)
    if share < _MAX_STARTING:
        return  # it happens now and then, as for a batch to look at

    symptom = (
        f"{format_count(len(observation.epochs), 'iterator')} "
        f"for {format_count(stages.batches, 'batch')}"
    )
    process_count = len(
        {worker.pid for worker in observation.workers if worker.number >= 0}
    )
    if process_count:
        symptom += f": {format_count(process_count, 'worker process')} started"
    symptom += f"; the start takes {format_ms(stages.start_s)}, {share:.0%} of the time"
    repeated_call = "a new DataLoader" if is_new_loader else "iter(loader)"
    why = f"{repeated_call} in each step starts a new epoch, of which one batch is used"
    if not observation.facts["shuffled"]:
        why += ": always the same, without shuffle=True"
    places = Counter(epoch.place for epoch in observation.epochs)
    most_common_place = places.most_common(1)[0][0]
    yield Finding(
        Code.ITERATOR_EACH_STEP,
        most_common_place or observation.made_at,
        what=symptom,
        why=why,
        change="one DataLoader, one iterator for many steps: batches = iter(loader) "
        "before the loop, and next(batches) in it",
        section=14,
    )


def _check_start(observation: Observation, stages: Stages) -> Iterator[Finding]:
    """Finds workers that take long to start, compared with the time of a batch."""
    facts = observation.facts
    is_single_epoch = len({batch.epoch for batch in observation.batches}) < 2
    if observation.num_workers == 0 or facts["persistent_workers"]:
        return
    if is_single_epoch and facts["method"] != "fork":
        return  # a spawned worker imports torch, and there is no second start to save
    typical_s = stages.wait_s + (stages.step_s or 0.0)
    late_s = stages.start_s - stages.fetch_s
    least_s = _MIN_FORK_S if is_single_epoch else _MIN_START_S
    if late_s <= _TIMES_TYPICAL * typical_s or late_s <= least_s:
        return
    workers = format_count(observation.num_workers, "worker")
    why = f"every epoch starts {workers} again ({facts['method']})"
    if len({epoch.loader_index for epoch in observation.epochs}) > 1:
        why += "; and it makes a new DataLoader"
    yield Finding(
        Code.SLOW_EPOCH_START,
        observation.made_at,
        what=f"an epoch's first batch comes after {stages.start_s:.1f} s, although making it "
        f"takes {format_ms(stages.fetch_s)}; a later batch comes after {format_ms(typical_s)}",
        why=why,
        change="DataLoader(..., persistent_workers=True), made once, before the epochs",
        section=14,
    )
