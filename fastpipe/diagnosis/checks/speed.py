"""The time of each stage -> the stage that delays the loop, and what to change.

Note [less than this is no fault]: the loop has to wait for a fifth of its time, and for some milliseconds a batch.
A batch's way from a worker takes that long on a machine with other work, and no change to the program saves it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.observation import Observation
from fastpipe.diagnosis.stages import Stages, stages, steps_s
from fastpipe.diagnosis.surroundings import Surroundings
from fastpipe.diagnosis.words import count, milliseconds
from fastpipe.errors import readable

_MOST_WAITING = 0.2
_LEAST_WAIT_S = 5e-3
_LEAST_LATE_S = 20e-3  # where workers have time
_BUSY = 0.6  # less than nearly 1: a machine that is busy otherwise delays the asking
_LEAST_FETCH_S = 2e-3
_LEAST_ALONE_S = 10e-3  # without workers: with them, their way would take about as long
_CROWDED = 0.3
_MOST_LATE = 0.1


def check(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    """Whether the loop waits, and for what; *Note [less than this is no fault]*."""
    found = stages(seen)
    if found is None:
        return
    if found.step_s is not None and not _keeps_up(seen, found):
        if (sampler_s := _sampler_s(seen)) > max(found.wait_s / 2, _LEAST_WAIT_S):
            yield _slow_sampler(seen, found, sampler_s)
        elif not _others_work(seen, found, around):
            yield from _waiting(seen, found, around)
    elif seen.num_workers == 0 and found.step_s is None and found.fetch_s > _LEAST_ALONE_S:
        yield _no_workers(seen, found, around, Severity.NOTE)


def _sampler_s(seen: Observation) -> float:
    """Seconds that the sampler takes for a batch."""
    return statistics.fmean([batch.sampler_s for batch in seen.batches])


def _slow_sampler(seen: Observation, found: Stages, sampler_s: float) -> Finding:
    return Finding(
        "slow-sampler",
        Severity.BAD,
        f"the sampler takes {milliseconds(sampler_s)} for a batch, and the loop waits {milliseconds(found.wait_s)}",
        "the sampler runs in the process of the training loop, between two batches",
        "draw the numbers of a whole epoch at once, at the start of the sampler's __iter__",
        str(seen.facts["sampler_place"]),
        6,
    )


def bottleneck(seen: Observation, found: Stages) -> str:
    """One sentence: who waits for whom, and where the time goes."""
    if found.step_s is not None and _keeps_up(seen, found):
        text = f"the loader keeps up: the loop waits {found.waiting:.0%} of its time"
        if found.waiting > _MOST_WAITING:
            text = f"the loader keeps up: the loop waits only {milliseconds(found.wait_s)} for a batch"
        if (found.delayed or 0.0) > _CROWDED:
            text += (
                f"; but a worker that makes a batch waits {found.delayed:.0%} of the time for a CPU, and perhaps "
                "the training steps wait too"
            )
        return text
    rate = f"{found.samples / found.seconds:,.0f} samples/s" if found.seconds > 0 else "one batch"
    head = (
        f"the loop waits {found.waiting:.0%} of its time ({rate})"
        if found.step_s is not None
        else f"{rate}, without a training step"
    )
    return f"{head}; {_who(seen, found)}"


def _keeps_up(seen: Observation, found: Stages) -> bool:
    if seen.num_workers == 0:
        return found.fetch_s <= max(_LEAST_ALONE_S, _MOST_WAITING * (found.step_s or 0.0))
    least_s = _LEAST_WAIT_S if found.busy >= _BUSY else _LEAST_LATE_S
    return found.waiting <= _MOST_WAITING or found.wait_s <= least_s


def _others_work(seen: Observation, found: Stages, around: Surroundings) -> bool:
    """Whether the loader would keep up if other programs did not take the CPUs from it."""
    delayed = found.delayed or 0.0
    if delayed < _CROWDED or seen.num_workers > around.cpus or found.on_cpu > 1:
        return False
    short_s = statistics.quantiles([*steps_s(seen.batches), 0.0], n=10)[1]  # of a step that nobody delayed
    return found.fetch_s * (1 - delayed) / max(seen.num_workers, 1) < short_s


def _late(seen: Observation, found: Stages) -> float:
    """The share of the loop in which it waited for a batch that took twice as long to make as others do, or longer."""
    usual_s = statistics.median(fetch.seconds for worker in seen.workers for fetch in worker.fetches)
    slow = [
        fetch
        for worker in seen.workers
        for fetch in worker.fetches[1:]
        if fetch.seconds > max(2 * usual_s, _LEAST_LATE_S) and (fetch.delayed_s or 0.0) < fetch.seconds / 4
    ]
    waited = sum(
        batch.wait_s
        for batch in seen.batches
        if batch.number >= seen.num_workers
        and batch.wait_s > _LEAST_LATE_S
        and any(batch.asked_s < fetch.at_s <= batch.came_s for fetch in slow)
    )
    return waited / max(found.seconds, 1e-9)


def _who(seen: Observation, found: Stages) -> str:
    stage = "collate_fn" if found.collate_s > found.dataset_s else "the dataset"
    share = max(found.collate_s, found.dataset_s) / max(found.fetch_s, 1e-9)
    making = f"the bottleneck is {stage} ({share:.0%} of making a batch), {_how(found)}"
    if seen.num_workers == 0:
        transfer_s = found.transfer_s or 0.0
        if seen.facts["pin_memory"] and transfer_s > found.fetch_s:
            return "the bottleneck is pinning memory"
        return f"{making}; there are no workers, so each step makes its own batch"
    if found.busy >= _BUSY:
        return f"{making}; workers are busy {found.busy:.0%}"
    if found.transfer_s is not None and found.transfer_s > 0.3 * found.wait_s and found.transfer_s > found.fetch_s / 4:
        return (
            f"the bottleneck is the way from the workers ({milliseconds(found.transfer_s)} a batch); "
            f"they are busy {found.busy:.0%}"
        )
    return f"workers are busy {found.busy:.0%}"


def _how(found: Stages) -> str:
    """What a process does while it makes a batch."""
    if found.on_cpu > 1.05:
        return f"on {found.on_cpu:.1f} CPUs in the mean: several threads compute"
    on_cpu = min(found.on_cpu, 1.0)
    delayed = min(found.delayed or 0.0, 1 - on_cpu)
    rest = max(0.0, 1 - on_cpu - delayed)
    parts = [f"{on_cpu:.0%} of it on a CPU"]
    if found.delayed is not None:
        parts.append(f"{delayed:.0%} waiting for a CPU")
    parts.append(f"{rest:.0%} for disk, network, locks or sleep")
    return ", ".join(parts)


def _waiting(seen: Observation, found: Stages, around: Surroundings) -> Iterator[Finding]:
    if seen.num_workers == 0:
        yield _no_workers(seen, found, around, Severity.BAD)
        return
    what = (
        f"{bottleneck(seen, found)} (a wait is {milliseconds(found.wait_s)}, a step {milliseconds(found.step_s or 0)})"
    )
    section = 6
    if found.busy >= _BUSY:
        delayed = found.delayed or 0.0
        name, place = "slow-dataset", str(seen.facts["dataset_place"])
        if found.collate_s > found.dataset_s:
            name, place = "slow-collate", str(seen.facts["collate_place"])
        computing = found.on_cpu / max(1 - min(delayed, 0.99), 0.01)  # of the time in which it had a CPU
        asleep = 1 - found.on_cpu - delayed  # for a disk, a server or a lock: other CPUs would not help
        if delayed > max(_CROWDED, asleep) and seen.num_workers >= around.cpus:
            why = "more threads are ready to run than there are CPUs"
            change = (
                f"fewer workers or fewer threads for the {count(around.cpus, 'CPU')} granted: OMP_NUM_THREADS=1, "
                "cv2.setNumThreads(0) in worker_init_fn"
            )
            section = 2
        elif computing > 0.5 and seen.num_workers >= around.cpus:
            why = (
                f"all {count(around.cpus, 'CPU')} granted are in use: making samples needs more CPU time than there is"
            )
            change = (
                f"make {'collate_fn' if name == 'slow-collate' else 'a sample'} faster, at this line (decode smaller "
                "images, move augmentation to the GPU), or use fastpipe.loader"
            )
        elif computing > 0.5:
            why = "a worker uses at most one CPU, and there are more CPUs"
            change = (
                f"DataLoader(..., num_workers={around.cpus}), now {seen.num_workers} ({readable(seen.made_at)}); or "
                "make this line faster"
            )
        else:
            why = "workers spend more time on waiting for the disk, the network or a lock than on computing"
            change = (
                f"copy the data to a faster disk, or DataLoader(..., num_workers={2 * seen.num_workers}), now "
                f"{seen.num_workers}: workers that wait use no CPU"
            )
        yield Finding(name, Severity.BAD, what, why, change, place, section)
    elif "way from the workers" in what:
        yield Finding(
            "slow-transfer",
            Severity.BAD,
            what,
            "each batch is copied into shared memory, and once more if it is pinned; lists and other objects are "
            "pickled one by one",
            "return uint8 tensors (a quarter of the size of float32) and stack them in collate_fn"
            if found.fetch_s > _LEAST_FETCH_S
            else f"DataLoader(..., num_workers=0): making a batch takes {milliseconds(found.fetch_s)}",
            str(seen.facts["collate_place"]),
            3,
        )
    elif seen.num_workers > 1 and seen.facts["in_order"] and (late := _late(seen, found)) > _MOST_LATE:
        yield Finding(
            "late-batches",
            Severity.BAD,
            f"{what}; {late:.0%} of its time it waits for batches that take more than twice as long to make as others",
            "a worker makes a batch alone, sample by sample: a slow sample delays its own batch and all later batches",
            "DataLoader(..., in_order=False) if the order does not matter; if slow samples are rare, a larger "
            "prefetch_factor is enough",
            seen.made_at,
            13,
        )


def _no_workers(seen: Observation, found: Stages, around: Surroundings, severity: Severity) -> Finding:
    return Finding(
        "no-workers",
        severity,
        f"{bottleneck(seen, found)}; a batch takes {milliseconds(found.fetch_s)} to make",
        "with num_workers=0, no batch is made while a training step runs",
        f"DataLoader(..., num_workers={around.cpus}, persistent_workers=True)",
        seen.made_at,
        6,
    )
