"""A dataset of a billion samples opens at once, is planned at once and needs next to no memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.datasets.sparse_index import with_records
from support.programs.scripts import run_script
from support.running.memory import frees_memory
from support.running.patience import in_time

from fastpipe.dataset.format.layout import INDEX_FILE

SAMPLES = 10**9  # in 111,112 shards of 1 GB
BATCH_SIZE = 256
BATCHES = 60

# CPU seconds, since the machine may be busy.
MEASURE = """
    import json, statistics, sys, time
    import torch
    from fastpipe.plan.crops import RandomResizedCrop
    from fastpipe.dataset.format.packed_index import PackedIndex
    from fastpipe.plan.content import Content
    from fastpipe.plan.epoch import EpochPlan
    from fastpipe.plan.recipe import Recipe

    def resident_mb():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 / 1e6

    size, batches = int(sys.argv[2]), int(sys.argv[3])
    before_mb = resident_mb()
    started = time.process_time()
    index = PackedIndex(sys.argv[1])
    open_s = time.process_time() - started
    plan = EpochPlan(Recipe(size, (224, 224), RandomResizedCrop(), 0.5, True, True, 0, Content.of(index)), 0)
    seconds = []
    for number in range(len(plan) // 2, len(plan) // 2 + batches):
        started = time.process_time()
        batch = plan.batch(number)
        plan.reads(number, batch, is_first=not seconds)
        seconds.append(time.process_time() - started)
    print(json.dumps({
        "samples": len(index),
        "open_s": open_s,
        "plan_s": statistics.median(seconds),
        "first_plan_s": seconds[0],
        "resident_mb": resident_mb() - before_mb,
    }))
"""


@pytest.fixture(scope="module")
def billion(flat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its index is 54 GB of hole; only the records that the test comes to are written."""
    dataset = with_records(tmp_path_factory.mktemp("billion"), flat, SAMPLES, BATCH_SIZE, BATCHES)
    written_bytes = (dataset / INDEX_FILE).stat().st_blocks * 512
    assert written_bytes < 2**28, "it is sparse"
    return dataset


@pytest.mark.serial
@frees_memory
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_billion_samples(billion: Path) -> None:
    done = run_script(MEASURE, billion, BATCH_SIZE, BATCHES)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["samples"] == SAMPLES
    assert in_time(found["open_s"], 1)
    assert in_time(found["plan_s"], 0.005)
    assert in_time(found["first_plan_s"], 0.2), "of a window, and of the process"
    assert found["resident_mb"] < 100


WEIGHTED = """
    import json, statistics, sys, time
    import fastpipe
    from fastpipe.loading.samplers import parse_sampler
    from fastpipe.plan.epoch import EpochPlan
    from fastpipe.plan.recipe import Recipe
    from fastpipe.plan.crops import RandomResizedCrop

    size, batches = int(sys.argv[2]), int(sys.argv[3])
    started = time.process_time()
    data = fastpipe.open(sys.argv[1])
    weights = {str(name): 1 + (name + 3) % 7 for name in range(1000)}  # of class 0 the mean
    sampler = fastpipe.Repeated(2, fastpipe.Weighted(weights))
    recipe = Recipe(size, (224, 224), RandomResizedCrop(), 0.5, True, True, 0, data.content)
    plan = EpochPlan(parse_sampler(sampler, data, shuffle=True, seed=0).apply_to(recipe), 3)
    open_s = time.process_time() - started
    order = plan.orders[0]
    seconds, drawn = [], []
    for number in range(len(plan) // 2, len(plan) // 2 + batches):
        started = time.process_time()
        drawn += order.take(number * size, (number + 1) * size).ids.tolist()
        seconds.append(time.process_time() - started)
    print(json.dumps({"open_s": open_s, "plan_s": statistics.median(seconds), "samples": len(set(drawn))}))
"""


@pytest.mark.serial
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_of_the_classes_of_a_billion_samples(billion: Path) -> None:
    """Labels are read for the samples that are tried; they are 0 in a hole, so class 0 stands for all."""
    done = run_script(WEIGHTED, billion, BATCH_SIZE, BATCHES)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert in_time(found["open_s"], 2)
    assert in_time(found["plan_s"], 0.01)
    assert found["samples"] == BATCHES * BATCH_SIZE // 2
