"""What workers read and draw, and how epochs begin, made up -> each finding with its line and its words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.workers.made_up import FETCH, ROOMY, found, late, seen

from fastpipe.diagnosis.inject.fastpipe_probe.checksums import checksum
from fastpipe.diagnosis.inject.fastpipe_probe.records import Batch, Epoch
from fastpipe.diagnosis.observation import Observation, Worker
from fastpipe.diagnosis.report import make_diagnosis

TRAIN = """import random, zipfile
class Data:
    def __init__(self):
        self.zip = zipfile.ZipFile("a.zip")
        self.rng = random.Random(1)
        self.buffer = make()
    def __getitem__(self, number):
        random.seed(3)
        return self.zip.read(number)
def init(worker):
    random.seed(worker)
for epoch in range(3):
    data.size = epoch
    for batch in loader:
        step(batch)
"""
GETITEM, INIT, LOOP = 7, 10, 14


@pytest.fixture
def train(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return str(path)


def workers_with(observation: Observation, *changes: dict[str, Any]) -> Observation:
    """Each worker with other facts."""
    for worker, change in zip(observation.workers, changes, strict=True):
        for name, value in change.items():
            setattr(worker, name, value)
    return observation


def test_files_that_workers_share(train: str) -> None:
    held = {
        "path": "dataset.zip",
        "kind": "ZipFile",
        "file": "/data/a.zip",
        "place": f"{train}:{GETITEM}",
    }
    handle = {
        "path": "dataset.base",
        "kind": "sqlite3.Connection",
        "file": "",
        "place": f"{train}:{GETITEM}",
    }
    facts = {"dataset_place": f"{train}:{GETITEM}"}
    observation = workers_with(
        seen(**facts), {"inherited": [held, handle]}, {"inherited": [held, handle]}
    )
    finding = found(observation)["shared-file"]
    assert (
        finding.what
        == "dataset.zip is an open ZipFile (/data/a.zip), and dataset.base: 2 workers share it"
    )
    assert (finding.where, finding.section) == (f"{train}:4", 16)
    assert found(workers_with(seen(**facts), {"inherited": [held]}, {"inherited": []})) == {}, (
        "of one worker"
    )
    assert (
        found(workers_with(seen(num_workers=1), {"inherited": [held]}, {"inherited": [held]})) == {}
    )
    # The first error may have ended the other worker before it told.
    error = {
        "failed": "dataset",
        "sample": "7",
        "name": "",
        "error": "BadZipFile: bad",
        "place": f"{train}:9",
    }
    failed = workers_with(seen(**facts), {"inherited": [held], "failures": [error]}, {})
    assert set(found(failed)) == {"shared-file"}, "the sample is good"
    assert found(failed)["shared-file"].what.endswith("; reading sample 7 raised BadZipFile: bad")


def failure(error: str, **other: str) -> dict[str, str]:
    return {
        "failed": "dataset",
        "sample": "3",
        "name": "3.jpg",
        "error": error,
        "place": "train.py:5",
        **other,
    }


@pytest.mark.parametrize(
    ("failures", "name", "what", "change"),
    [
        (
            [
                failure("OSError: truncated"),
                failure("OSError: truncated", sample="9"),
                failure("OSError: 3 again"),
            ],
            "bad-sample",
            "reading sample 3 (3.jpg) raised OSError: truncated; 1 more samples raised errors",
            "repair or leave out this sample",
        ),
        (
            [failure("TypeError: no int", mistake="yes")],
            "bad-sample",
            "reading sample 3 (3.jpg) raised TypeError: no int",
            "correct this line",
        ),
        (
            [failure("KeyError: 1", failed="collate", sample="[3, 4]")],
            "bad-collate",
            "collate_fn, of the samples [3, 4], raised KeyError: 1",
            "leave out in the dataset, or in collate_fn",
        ),
        (
            [
                failure(
                    "RuntimeError: stack expects each tensor to be equal size",
                    failed="collate",
                    sample="[3, 4]",
                )
            ],
            "unequal-samples",
            "collate_fn, of the samples [3, 4], raised RuntimeError: stack expects each tensor to be equal size",
            "give DataLoader (train.py:7) another collate_fn",
        ),
    ],
)
def test_errors_of_samples(
    failures: list[dict[str, str]], name: str, what: str, change: str
) -> None:
    finding = found(workers_with(seen(), {"failures": failures}, {}))[name]
    assert (finding.what, finding.where, finding.section) == (what, "train.py:5", 13)
    assert change in finding.change


def test_a_buffer_that_samples_share(train: str) -> None:
    used = {"part": "sample[0]", "buffer": "dataset.buffer", "place": f"{train}:{GETITEM}"}
    finding = found(workers_with(seen(), {"reused": [used, used]}, {"reused": [used]}))[
        "reused-buffer"
    ]
    assert finding.where == f"{train}:6"
    assert finding.what == (
        "sample[0] of a sample lay 3 times in the same memory as that of the sample before in its batch, that of "
        "dataset.buffer"
    )
    assert found(workers_with(seen(), {"reused": [used]}, {"reused": [used]})) == {}


def test_generators_with_the_same_state_in_several_workers(train: str) -> None:
    before, after = {"dataset.rng": 1, "dataset.other": 2}, {"dataset.rng": 5, "dataset.other": 2}
    facts = {"dataset_place": f"{train}:{GETITEM}"}
    drawn = {"generators_before": before, "generators_after": after}
    finding = found(workers_with(seen(**facts), drawn, drawn))["same-random-numbers"]
    assert (
        finding.what == "dataset.rng is a random generator, with the same state in several workers"
    )
    assert (finding.where, finding.section) == (f"{train}:5", 8)
    other = {"generators_before": {**before, "dataset.rng": 9}, "generators_after": after}
    assert found(workers_with(seen(**facts), drawn, other)) == {}
    idle = {"generators_before": before, "generators_after": before}
    assert found(workers_with(seen(**facts), idle, idle)) == {}, "nobody draws"


def test_seeds_that_worker_init_fn_gives(train: str) -> None:
    drawn = {
        "globals_before": {"random": 1, "torch": 2},
        "globals_after": {"random": 3, "torch": 2},
    }
    facts = {"init": True, "init_place": f"{train}:{INIT}", "dataset_place": f"{train}:2"}
    finding = found(workers_with(seen(**facts), drawn, drawn))["same-random-numbers"]
    assert (
        finding.what
        == "workers 0 and 1 begin with the same state of random, and so with the same draws"
    )
    assert finding.where == f"{train}:{INIT + 1}"
    assert "random.seed(torch.initial_seed())" in finding.change
    again = workers_with(seen(**facts), {**drawn, "number": 0}, {**drawn, "number": 0})
    assert found(again)["same-random-numbers"].what.startswith(
        "worker 0 begins two epochs with the same state"
    )
    alone = workers_with(seen(), drawn, drawn)
    finding = found(alone)["same-random-numbers"]
    assert (finding.where, finding.change) == (
        "train.py:7",
        "seed once, at the start of the program",
    )


def test_samples_that_are_seeded_with_a_constant(train: str) -> None:
    states = [{"random": 1}, *[{"random": 2}] * 8]
    facts = {"dataset_place": f"{train}:{GETITEM}"}
    finding = found(workers_with(seen(**facts), {"states": states}, {}))["same-random-numbers"]
    assert (
        finding.what
        == "random has the same state after every sample: each sample draws the same numbers"
    )
    assert (finding.where, finding.change) == (f"{train}:{GETITEM + 1}", "remove this line")
    for quiet in (states[:-1], [{"random": 2}, *states[1:]], [*states[:-1], {"random": 4}]):
        assert found(workers_with(seen(**facts), {"states": quiet}, {})) == {}


def sums(*numbers: int) -> dict[str, Any]:
    """Checksums of a stream's samples (image, number), of which the image is another each time."""
    return {"checksums": [[checksum(object), -number, checksum(number)] for number in numbers]}


def test_workers_that_read_the_same_stream() -> None:
    facts = {"stream": True, "dataset_place": "train.py:3"}
    whole = range(100, 140)
    finding = found(workers_with(seen(**facts), sums(*whole), sums(*whole)))[
        "every-sample-per-worker"
    ]
    assert finding.what == "40 of the first 40 samples of worker 0 came from worker 1, too"
    assert (finding.where, finding.section) == ("train.py:3", 9)
    shuffled = workers_with(seen(**facts), sums(*whole), sums(*reversed(range(125, 165))))
    assert found(shuffled)["every-sample-per-worker"].what.startswith(
        "15 of the first 40 samples of worker 0 came"
    )
    assert found(workers_with(seen(**facts), sums(*whole), sums(*range(133, 173)))) == {}, (
        "7 may be chance"
    )
    assert found(workers_with(seen(**facts), sums(*whole), sums(*range(140, 180)))) == {}
    counts = [
        {"checksums": [[first + number, checksum(number)] for number in range(40)]}
        for first in (0, 1000)
    ]
    assert found(workers_with(seen(**facts), *counts)) == {}, "a worker's own count of its samples"


def test_ranks_that_read_the_same() -> None:
    ranks = [seen(whole="0.jpg", length=64, pid=pid) for pid in (1, 2)]
    ranks[0].others = [ranks[1]]
    assert found(ranks[0]) == {}, "they do not train together"
    for rank in ranks:
        rank.epochs = [Epoch(0.0, ranks=2)]
    finding = found(ranks[0])["every-sample-per-worker"]
    assert finding.what == "2 ranks train together, and each reads all 64 samples in each epoch"
    assert finding.where == "train.py:7"
    ranks[1].facts["whole"] = "1.jpg"
    assert found(ranks[0]) == {}
    streams = [
        workers_with(seen(stream=True), sums(*range(100, 140)), sums(*range(140, 180)))
        for _ in ranks
    ]
    streams[0].others = [streams[1]]
    for stream in streams:
        stream.epochs = [Epoch(0.0, ranks=2)]
    finding = found(streams[0])["every-sample-per-worker"]
    assert finding.what == "40 of the first 40 samples of a worker came in another rank, too"


def test_samples_that_are_slow() -> None:
    observation = late(0.2, lambda number: 0.02)
    slow = replace(
        FETCH,
        seconds=0.3,
        cpu_s=0.15,
        times_us=(2000, 2000, 2000, 300_000),
        worst=((7, 0.3, "7.jpg"),),
    )
    for worker in observation.workers:
        worker.fetches[3:5] = [slow, replace(slow, worst=((8, 0.3, ""),))]
    finding = found(observation)["slow-samples"]
    assert finding.what == (
        "4 of 112 samples take more than 50 ms (median 2.0 ms), and 85% of all samples' time. The slowest: "
        "7 (7.jpg) 300 ms, 2 times; 8 300 ms, 2 times"
    )
    for worker in observation.workers:
        worker.fetches = [replace(fetch, delayed_s=0.3 * fetch.seconds) for fetch in worker.fetches]
    assert "slow-samples" not in found(observation), "the machine is busy"


def epochs_of(observation: Observation, count: int, batches: int = 10, **epoch: Any) -> Observation:
    """The same batches, in several epochs."""
    observation.epochs = [Epoch(batches * 0.02 * number, **epoch) for number in range(count)]
    observation.batches = [
        replace(batch, epoch=batch.number // batches, number=batch.number % batches)
        for batch in observation.batches[: count * batches]
    ]
    return observation


def test_a_dataset_that_changes_while_its_workers_persist(train: str) -> None:
    observation = epochs_of(seen(), 3, changed=["dataset.size"], place=f"{train}:{LOOP}")
    finding = found(observation)["stale-dataset"]
    assert finding.what == "dataset.size has another value than when the workers were started"
    assert (finding.where, finding.section) == (f"{train}:{LOOP - 1}", 14)


def test_a_sampler_that_is_not_told_the_epoch() -> None:
    told = {"name": "DistributedSampler", "epoch": 0}
    finding = found(epochs_of(seen(), 3, sampler=told, place="train.py:20"))[
        "same-order-each-epoch"
    ]
    assert (
        finding.what
        == "DistributedSampler was at epoch 0 in each of 3 epochs: all had the same order"
    )
    assert (finding.where, finding.section) == ("train.py:20", 17)
    observation = epochs_of(seen(), 3, sampler=told)
    observation.epochs[2] = replace(observation.epochs[2], sampler={**told, "epoch": 1})
    assert found(observation) == {}
    assert found(epochs_of(seen(), 1, sampler=told)) == {}


def test_an_iterator_in_each_step() -> None:
    observation = seen(shuffled=True)
    observation.epochs = [Epoch(0.2 * number, place="train.py:30") for number in range(6)]
    observation.batches = [
        Batch(number, 0, 0.2 * number + 0.1, 0.2 * number + 0.15, 1 << 20) for number in range(6)
    ]
    finding = found(observation)["iterator-each-step"]
    assert finding.what == (
        "6 iterators for 6 batches: 2 worker processes started; the start takes 150 ms, 78% of the time"
    )
    assert "iter(loader) in each step" in finding.why
    assert (finding.where, finding.section) == ("train.py:30", 14)
    observation.epochs = [
        replace(epoch, loader_index=number) for number, epoch in enumerate(observation.epochs)
    ]
    assert "a new DataLoader in each step" in found(observation)["iterator-each-step"].why
    observation.batches, observation.epochs = observation.batches[:4], observation.epochs[:4]
    assert "iterator-each-step" not in found(observation)


def test_epochs_that_start_slowly() -> None:
    observation = epochs_of(seen(), 3)
    observation.batches = [
        replace(batch, came_s=batch.came_s + 1.5) if batch.number == 0 else batch
        for batch in observation.batches
    ]
    finding = found(observation)["slow-epoch-start"]
    assert (
        "an epoch's first batch comes after 1.5 s, although making it takes 10 ms" in finding.what
    )
    assert (finding.where, finding.section) == ("train.py:7", 14)
    assert "slow-epoch-start" not in found(replace_facts(observation, persistent_workers=True))


def replace_facts(observation: Observation, **facts: Any) -> Observation:
    observation.facts = {**observation.facts, **facts}
    return observation


def test_a_sampler_that_is_slow() -> None:
    observation = late(0.2, lambda number: 0.02, sampler_place="train.py:40")
    observation.batches = [replace(batch, sampler_s=0.19) for batch in observation.batches]
    finding = found(observation)["slow-sampler"]
    assert finding.what == "the sampler takes 190 ms for a batch, and the loop waits 200 ms"
    assert (finding.where, finding.section) == ("train.py:40", 6)


def alone(fetch_s: float, step_s: float) -> Observation:
    """Without workers."""
    observation = seen(num_workers=0, prefetch_factor=None)
    fetches = [
        replace(FETCH, seconds=fetch_s, dataset_s=fetch_s, collate_s=0.0)
        for _ in observation.batches
    ]
    observation.workers = [Worker(-1, 100, 0.0, fetches=fetches)]
    both_s = fetch_s + step_s
    observation.batches = [
        Batch(0, number, both_s * number, both_s * number + fetch_s, 1 << 20)
        for number in range(30)
    ]
    return observation


def test_a_loop_that_makes_its_own_batches() -> None:
    finding = found(alone(0.05, 0.05))["no-workers"]
    assert finding.what.endswith("; a batch takes 50 ms to make")
    assert finding.what.startswith(
        "the loop waits 50% of its time; 41 samples/s; the bottleneck is the dataset (100%"
    )
    assert finding.change == "DataLoader(..., num_workers=8, persistent_workers=True)"
    assert found(alone(0.009, 0.009)) == {}, "less than workers would cost"
    assert found(alone(0.05, 0.3)) == {}
    assert found(replace_facts(alone(0.05, 0.05), step=False))["no-workers"].severity == "note"


def test_collate_fn_may_be_what_is_slow() -> None:
    observation = late(0.2, lambda number: 0.3, collate_place="train.py:9")
    for worker in observation.workers:
        worker.fetches = [
            replace(fetch, dataset_s=0.1, collate_s=0.2, finished_s=0.3 * number)
            for number, fetch in enumerate(worker.fetches)
        ]
    finding = found(observation)["slow-collate"]
    assert finding.where == "train.py:9"
    assert "the bottleneck is collate_fn (67% of making a batch)" in finding.what


def test_epochs_without_a_batch() -> None:
    for facts, why in (
        ({"length": 0, "drop_last": False}, "len(dataset) or len(sampler) is 0"),
        (
            {"length": 3, "drop_last": True, "batch_size": 4},
            "drop_last=True leaves out the only batch",
        ),
    ):
        observation = seen(batches=0, **facts)
        observation.batches = []
        finding = found(observation)["no-batches"]
        assert why in finding.why
        assert (
            finding.what == f"the dataset has {facts['length']} samples, and an epoch has no batch"
        )


REPORT = """\
train.py:7: DataLoader(batch_size=4, num_workers=2, prefetch_factor=2, persistent_workers=False, pin_memory=False,
method=fork)
the loop waits 66% of its time; 14 samples/s; the bottleneck is the dataset (100% of making a batch), 2% of it on a CPU,
0% waiting for a CPU, 98% for disk, network, locks or sleep; workers are busy 84%
3 processes, 6 threads in all

 stage                     runs in     a batch   share of its time
 ─────────────────────────────────────────────────────────────────
 dataset                   2 workers    500 ms                 84%
 collate                   2 workers    2.0 ms                  0%
 transfer                  loop         0.5 ms
 wait                      loop         200 ms                 67%
 step                      loop         100 ms                 33%
 first batch of an epoch   loop         200 ms


 private memory      batches   at first   grew by   an epoch
 ───────────────────────────────────────────────────────────
 worker 0, pid 100   14         52.4 MB   +0.0 MB    +0.0 MB
 worker 1, pid 101   14         52.4 MB   +0.0 MB    +0.0 MB

1. bad: slow-dataset
   seen    the loop waits 66% of its time; 14 samples/s; the bottleneck is the dataset (100% of making a batch), 2% of
           it on a CPU, 0% waiting for a CPU, 98% for disk, network, locks or sleep; workers are busy 84% (a wait is 200
           ms, a step 100 ms)
   why     workers spend more time on waiting for the disk, the network or a lock than on computing
   change  a faster disk for the data, or a copy on this machine; or DataLoader(..., num_workers=6), now 2: waiting uses
           no CPU. If workers wait for a lock (flock), hold it only around the lines that need it
   where   train.py:3
   more    `fastpipe docs failures`, section 6
"""


def test_a_report_as_text() -> None:
    diagnosis = make_diagnosis(late(0.2, lambda number: 0.5, dataset_place="train.py:3"), ROOMY)
    assert str(diagnosis) == repr(diagnosis) == REPORT.rstrip("\n")
    told = json.loads(json.dumps(diagnosis.as_dict()))
    assert [finding["name"] for finding in told["findings"]] == ["slow-dataset"]
    assert told["stages"]["dataset_s"] == 0.5
    assert told["processes"] == 2
    assert str(make_diagnosis(seen(), ROOMY)).endswith("no cause of slow or stuck input found")
