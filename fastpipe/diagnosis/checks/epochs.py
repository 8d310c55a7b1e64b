"""Epochs that were asked for -> workers started for a batch or two, an order that never changes, slow starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fastpipe.diagnosis.findings import Code, Finding
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.stages import Stages

_LEAST_EPOCHS = 5
_FEW_BATCHES = 1.5
_MOST_OF_TIME = 0.1
_LEAST_START_S = 1.0
_LEAST_FORK_S = 3.0
_SLOW_START = 10


def check(seen: Observation, around: Surroundings, time: Stages | None) -> Iterator[Finding]:
    """How the epochs of a DataLoader begin."""
    changed = [epoch for epoch in seen.epochs if epoch.changed]
    if changed and seen.num_workers:  # workers that persist have a copy of the dataset
        yield Finding(Code.STALE_DATASET, changed[0].place or seen.made_at, {"attribute": changed[0].changed[0]})
    begun = {batch.epoch for batch in seen.batches}
    told = [(epoch, epoch.sampler) for number, epoch in enumerate(seen.epochs) if number in begun and epoch.sampler]
    if len(told) > 1 and len({(epoch.made, sampler["epoch"]) for epoch, sampler in told}) == 1:  # nobody tells it
        last, sampler = told[-1]
        evidence = {"sampler": sampler["name"], "epoch": sampler["epoch"], "epochs": len(told)}
        yield Finding(Code.SAME_ORDER_EACH_EPOCH, last.place or seen.made_at, evidence)
    if time is not None:
        yield from list(_fresh_iterators(seen)) or _slow_start(seen, time)


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
    evidence = {
        "iterators": len(seen.epochs),
        "made": "a new DataLoader" if anew else "iter(loader)",
        "processes": len({worker.pid for worker in seen.workers if worker.number >= 0}) if seen.num_workers else None,
        "share": starting_s / max(spent_s, 1e-9),
        "shuffle": None if seen.num_workers or seen.facts["shuffled"] else True,
    }
    place = Counter(epoch.place for epoch in seen.epochs).most_common(1)[0][0]
    yield Finding(Code.ITERATOR_EACH_STEP, place or seen.made_at, evidence)


def _slow_start(seen: Observation, time: Stages) -> Iterator[Finding]:
    typical_s, late_s = time.wait_s + (time.step_s or 0.0), time.start_s - time.fetch_s
    starts = seen.num_workers and not seen.facts["persistent_workers"]
    once = len({batch.epoch for batch in seen.batches}) < 2  # perhaps there is only one, and then it costs little
    if once and (seen.facts["method"] != "fork" or late_s < _LEAST_FORK_S):
        return
    if starts and late_s > max(_LEAST_START_S, _SLOW_START * typical_s):
        anew = "a new DataLoader" if len({epoch.made for epoch in seen.epochs}) > 1 else None
        yield Finding(Code.SLOW_EPOCH_START, seen.made_at, {"typical_s": typical_s, "made": anew})
