"""Ranks in processes of their own share an epoch: by torchrun, spawned, by Lightning, by Accelerate; one is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.checkout import ROOT, SUPPORT, TESTS
from support.pictures.drawn import FLAT_IMAGES, flat_number
from support.ranks.late_epochs import assert_shared, written
from support.ranks.torchrun import ranks, torchrun

PROGRAM = SUPPORT / "ranks" / "distributed_rank.py"
LATE = SUPPORT / "ranks" / "late_ranks.py"
HANG_S = 600


@pytest.mark.parametrize("processes", [2, 4])
def test_real_processes(flat: Path, tmp_path: Path, processes: int) -> None:
    if processes == 2:
        torchrun(PROGRAM, flat, tmp_path, processes=processes)
    else:
        ended = ranks(PROGRAM, flat, tmp_path, processes=processes)
        assert [code for code, _ in ended] == [0] * processes, ended
    of_ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(processes)]
    assert len({len(batches) for batches in of_ranks}) == 1
    half = len(of_ranks[0]) // 2
    for epoch in (slice(0, half), slice(half, None)):
        seen = [
            flat_number(np.array(pixel))
            for batches in of_ranks
            for batch in batches[epoch]
            for pixel, good in zip(batch["pixels"], batch["valid"], strict=True)
            if good
        ]
        assert sorted(seen) == list(range(FLAT_IMAGES))


def test_a_killed_rank_does_not_hold_up_the_others_loaders(flat: Path, tmp_path: Path) -> None:
    """The others read on to the end of their epochs: no file, socket or memory is shared between ranks."""
    ended = ranks(PROGRAM, flat, tmp_path, "die", "1", processes=3)
    assert ended[1][0] == -signal.SIGKILL
    for survivor in (0, 2):
        assert (tmp_path / f"{survivor}.json").exists(), ended[survivor]


def test_a_loader_made_before_init_process_group(flat: Path, tmp_path: Path) -> None:
    torchrun(LATE, "launched", flat, tmp_path)
    found = written(tmp_path)
    assert_shared([each["epochs"] for each in found])
    for rank, each in enumerate(found):
        assert f"the launcher started 2 processes (RANK={rank}, WORLD_SIZE=2)" in each["refused"]


def assert_late_ranks_share(flat: Path, folder: Path, how: str) -> None:
    """Of late_ranks.py, as a program that starts its ranks itself."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)])}
    command = [sys.executable, LATE, how, flat, folder]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    assert_shared(written(folder))


def test_a_loader_made_before_init_process_group_in_spawned_processes(flat: Path, tmp_path: Path) -> None:
    assert_late_ranks_share(flat, tmp_path, "spawned")


def test_lightning_starts_processes_after_the_loader_was_made(flat: Path, tmp_path: Path) -> None:
    assert_late_ranks_share(flat, tmp_path, "lightning")


@pytest.mark.parametrize(
    ("how", "dealer"), [("dispatched", "DataLoaderDispatcher"), ("sharded", "IterableDatasetShard")]
)
def test_accelerate_deals_out_no_share(flat: Path, tmp_path: Path, how: str, dealer: str) -> None:
    """Of a loader in a DataLoader, Accelerate would give each process a part of what is a part already."""
    ranks(LATE, how, flat, tmp_path)
    for rank in range(1 if how == "dispatched" else 2):  # only the first one reads what is dispatched
        said = json.loads((tmp_path / f"{rank}.json").read_text())
        assert f"accelerate.data_loader.{dealer} gives each process a part" in said


@pytest.mark.parametrize("how", ["dispatched whole", "sharded whole"])
def test_accelerate_may_deal_out_the_whole_dataset(flat: Path, tmp_path: Path, how: str) -> None:
    ended = ranks(LATE, how, flat, tmp_path)
    assert [code for code, _ in ended] == [0, 0], ended
    first, second = written(tmp_path)
    assert set(first + second) == set(range(FLAT_IMAGES))
    assert len(first + second) - FLAT_IMAGES <= 5  # the last batch is filled up
