"""Tests of fastpipe.Dataset in DataLoader workers of every start method: the same samples, on one thread each."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.checkout import SUPPORT
from support.programs import warm
from support.workers.dataset_in_workers import BATCH_SIZE

from fastpipe.format.index import Index

PROGRAM = SUPPORT / "workers" / "dataset_in_workers.py"
METHODS = ("fork", "forkserver", "spawn")


@pytest.fixture(scope="module", params=METHODS)
def found(request: pytest.FixtureRequest, textured: Path) -> dict[int, list[dict[str, Any]]]:
    """What came of each sample, by number of workers. A hang ends as an error."""
    done = warm.run(PROGRAM, textured, request.param, timeout_s=300)
    assert (done.returncode, done.stderr) == (0, "")
    return {int(workers): samples for workers, samples in json.loads(done.stdout).items()}


def test_the_same_samples(found: dict[int, list[dict[str, Any]]], textured: Path) -> None:
    index = Index(textured)
    pictures = {
        workers: [(seen["hash"], seen["shape"], seen["label"]) for seen in samples]
        for workers, samples in found.items()
    }
    assert len(pictures) == 3
    assert pictures[0] == pictures[1] == pictures[max(pictures)]
    sizes = [[3, int(record["height"]), int(record["width"])] for record in index.records]
    assert [shape for _, shape, _ in pictures[0]] == sizes
    assert [label for _, _, label in pictures[0]] == index.records["label"].tolist()


def test_they_come_from_workers(found: dict[int, list[dict[str, Any]]]) -> None:
    processes = {workers: {seen["process"] for seen in samples} for workers, samples in found.items()}
    assert (len(processes[0]), len(processes[1])) == (1, 1)
    most = max(found)
    assert most > 1
    assert len(processes[most]) == min(most, -(-len(found[most]) // BATCH_SIZE))
    assert not processes[0] & (processes[1] | processes[most])
    assert os.getpid() not in processes[0]


def test_libraries_use_one_thread_in_workers(found: dict[int, list[dict[str, Any]]]) -> None:
    for workers in (1, max(found)):
        for seen in found[workers]:
            assert seen["in_worker"]
            assert (seen["opencv_threads"], seen["torch_threads"], seen["threads_begun"]) == (1, 1, 0)


def test_nothing_is_limited_in_the_parent(found: dict[int, list[dict[str, Any]]]) -> None:
    for seen in found[0]:
        assert not seen["in_worker"]
        assert (seen["opencv_threads"], seen["torch_threads"]) == (4, 4)
