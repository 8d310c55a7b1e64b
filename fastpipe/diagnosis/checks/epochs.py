"""Epochs that were asked for -> workers started for a batch or two, an order that never changes, slow starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.observation import Observation
from fastpipe.diagnosis.stages import Stages, stages
from fastpipe.diagnosis.words import count, milliseconds

_LEAST_EPOCHS = 5
_FEW_BATCHES = 1.5
_MOST_OF_TIME = 0.1
_LEAST_START_S = 1.0
_LEAST_FORK_S = 3.0
_SLOW_START = 10


def check(seen: Observation) -> Iterator[Finding]:
    """How the epochs of a DataLoader begin."""
    fresh = list(_fresh_iterators(seen))
    yield from fresh
    yield from _set_epoch(seen)
    yield from _stale(seen)
    found = stages(seen)
    if found is not None and not fresh:
        yield from _slow_start(seen, found)


def _fresh_iterators(seen: Observation) -> Iterator[Finding]:
    """`next(iter(loader))` in each step, or a new DataLoader in each step."""
    firsts = [batch for batch in seen.batches if batch.number == 0 and batch.epoch < len(seen.epochs)]
    if len(firsts) < _LEAST_EPOCHS or len(seen.batches) > _FEW_BATCHES * len(firsts) or seen.facts["batches"] == 1:
        return
    spent_s = seen.batches[-1].came_s - seen.epochs[0].at_s
    starting_s = sum(batch.came_s - seen.epochs[batch.epoch].at_s for batch in firsts)
    if starting_s < _MOST_OF_TIME * spent_s:
        return  # now and then, as for a batch to look at
    anew = len({epoch.made for epoch in seen.epochs}) > len(firsts) / 2
    workers = count(len({worker.pid for worker in seen.workers if worker.number >= 0}), "worker process")
    what = f"{count(len(seen.epochs), 'iterator')} for {count(len(seen.batches), 'batch')}"
    what += f": {workers} started" if seen.num_workers else ""
    place = Counter(epoch.place for epoch in seen.epochs).most_common(1)[0][0]
    yield Finding(
        "iterator-each-step",
        Severity.BAD,
        f"{what}; the start takes {milliseconds(starting_s / len(firsts))}, {starting_s / max(spent_s, 1e-9):.0%} of "
        "the time",
        f"{'a new DataLoader' if anew else 'iter(loader)'} in each step starts all workers and a new epoch, of which "
        "only the first batch is used"
        if seen.num_workers
        else "iter(loader) in each step starts a new epoch, of which only the first batch is used"
        + ("" if seen.facts["shuffled"] else ": always the same, without shuffle=True"),
        f"{'make the DataLoader once, before the loop' if anew else 'one iterator for many steps'}: for batch in "
        "loader: ...; or batches = iter(loader) before the loop, and next(batches) in it",
        place or seen.made_at,
        14,
    )


def _set_epoch(seen: Observation) -> Iterator[Finding]:
    """A sampler that shuffles by its epoch, which nobody tells it."""
    begun = {batch.epoch for batch in seen.batches}
    epochs = [epoch for number, epoch in enumerate(seen.epochs) if number in begun and epoch.sampler is not None]
    often = Counter((epoch.sampler or {}).get("epoch") for epoch in epochs)
    if not often or len({epoch.made for epoch in epochs}) > 1:
        return
    number, times = often.most_common(1)[0]
    if times < 2 or times < len(epochs):
        return
    name = (epochs[0].sampler or {})["name"]
    yield Finding(
        "same-order-each-epoch",
        Severity.BAD,
        f"{name} was at epoch {number} in each of {times} epochs: all had the same order",
        f"{name} shuffles by its seed and its epoch, and nobody called set_epoch",
        "sampler.set_epoch(epoch) before this line, in each epoch",
        epochs[-1].place or seen.made_at,
        17,
    )


def _stale(seen: Observation) -> Iterator[Finding]:
    """A dataset that the program changes, and of which workers that persist have a copy."""
    changed = [epoch for epoch in seen.epochs if epoch.changed]
    if not changed or seen.num_workers == 0:
        return
    name = f"dataset.{changed[0].changed[0]}"
    yield Finding(
        "stale-dataset",
        Severity.BAD,
        f"{name} has another value than when the workers were started",
        "persistent_workers=True: each worker keeps the copy of the dataset of its start, and sees no change",
        "persistent_workers=False, or pass the value to the workers by torch.tensor(...).share_memory_() or "
        "multiprocessing.Value",
        changed[0].place or seen.made_at,
        14,
    )


def _slow_start(seen: Observation, found: Stages) -> Iterator[Finding]:
    if seen.num_workers == 0 or seen.facts["persistent_workers"]:
        return
    typical_s = found.wait_s + (found.step_s or 0.0)
    late_s = found.start_s - found.fetch_s
    once = len({batch.epoch for batch in seen.batches}) < 2  # perhaps there is only one, and then it costs little
    if late_s <= max(_LEAST_START_S, _SLOW_START * typical_s):
        return
    if once and (seen.facts["method"] != "fork" or late_s < _LEAST_FORK_S):
        return
    anew = len({epoch.made for epoch in seen.epochs}) > 1
    yield Finding(
        "slow-epoch-start",
        Severity.BAD,
        f"the first batch of an epoch comes after {found.start_s:.1f} s, although making it takes "
        f"{milliseconds(found.fetch_s)}; a later batch comes after {milliseconds(typical_s)}",
        f"every epoch starts {count(seen.num_workers, 'worker')} again ({seen.facts['method']})"
        + ("; and it makes a new DataLoader" if anew else ""),
        "make the DataLoader once, before the epochs, with persistent_workers=True"
        if anew
        else "DataLoader(..., persistent_workers=True)",
        seen.made_at,
        14,
    )
