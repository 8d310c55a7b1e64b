"""Epochs that were asked for -> workers started for a batch or two, an order that never changes, slow starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fastpipe.diagnosis.findings import Code, Finding
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.stages import stages

_LEAST_EPOCHS = 5
_FEW_BATCHES = 1.5
_MOST_OF_TIME = 0.1
_LEAST_START_S = 1.0
_LEAST_FORK_S = 3.0
_SLOW_START = 10


def check(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    """How the epochs of a DataLoader begin."""
    yield from _set_epoch(seen)
    changed = [epoch for epoch in seen.epochs if epoch.changed]
    if changed and seen.num_workers:  # workers that persist have a copy of the dataset
        evidence = {"attribute": changed[0].changed[0]}
        yield Finding(Code.STALE_DATASET, changed[0].place or seen.made_at, evidence)
    fresh = list(_fresh_iterators(seen))
    yield from fresh or _slow_start(seen)


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
    place = Counter(epoch.place for epoch in seen.epochs).most_common(1)[0][0]
    evidence = {
        "iterators": len(seen.epochs),
        "batches": len(seen.batches),
        "processes": len({worker.pid for worker in seen.workers if worker.number >= 0}) if seen.num_workers else None,
        "start_s": starting_s / len(firsts),
        "share": starting_s / max(spent_s, 1e-9),
        "workers": seen.num_workers or None,
        "shuffle": None if seen.num_workers or seen.facts["shuffled"] else True,
    }
    yield Finding(Code.ITERATOR_EACH_STEP, place or seen.made_at, evidence, "new-loader" if anew else "")


def _set_epoch(seen: Observation) -> Iterator[Finding]:
    """A sampler that shuffles by its epoch, which nobody tells it."""
    begun = {batch.epoch for batch in seen.batches}
    told = [(epoch, epoch.sampler) for number, epoch in enumerate(seen.epochs) if number in begun and epoch.sampler]
    if len(told) < 2 or len({epoch.made for epoch, _ in told}) > 1 or len({each["epoch"] for _, each in told}) > 1:
        return
    last, sampler = told[-1]
    evidence = {"sampler": sampler["name"], "epoch": sampler["epoch"], "epochs": len(told)}
    yield Finding(Code.SAME_ORDER_EACH_EPOCH, last.place or seen.made_at, evidence)


def _slow_start(seen: Observation) -> Iterator[Finding]:
    found = stages(seen)
    if found is None or seen.num_workers == 0 or seen.facts["persistent_workers"]:
        return
    typical_s = found.wait_s + (found.step_s or 0.0)
    late_s = found.start_s - found.fetch_s
    once = len({batch.epoch for batch in seen.batches}) < 2  # perhaps there is only one, and then it costs little
    if late_s <= max(_LEAST_START_S, _SLOW_START * typical_s):
        return
    if once and (seen.facts["method"] != "fork" or late_s < _LEAST_FORK_S):
        return
    evidence = {
        "start_s": found.start_s,
        "fetch_s": found.fetch_s,
        "typical_s": typical_s,
        "workers": seen.num_workers,
        "method": seen.facts["method"],
    }
    anew = len({epoch.made for epoch in seen.epochs}) > 1
    yield Finding(Code.SLOW_EPOCH_START, seen.made_at, evidence, "new-loader" if anew else "")
