"""Ranks in processes of their own share an epoch: by torchrun, by Lightning, by Accelerate; one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.checkout import ROOT, SUPPORT, TESTS
from support.pictures.drawn import FLAT_IMAGES
from support.ranks.late_epochs import assert_shared, written
from support.ranks.torchrun import ranks, torchrun

PROGRAM = SUPPORT / "ranks" / "distributed_rank.py"
LATE = SUPPORT / "ranks" / "late_ranks.py"


def test_a_killed_rank_does_not_hold_up_the_others_loaders(flat: Path, tmp_path: Path) -> None:
    """The others read on to the end of their epochs: no file, socket or memory is shared between ranks."""
    ended = ranks(PROGRAM, flat, tmp_path, processes=3)
    assert ended[1][0] == -signal.SIGKILL
    for survivor in (0, 2):
        assert (tmp_path / f"{survivor}.json").exists(), ended[survivor]


def test_a_loader_made_before_init_process_group(flat: Path, tmp_path: Path) -> None:
    torchrun(LATE, "launched", flat, tmp_path)
    found = written(tmp_path)
    assert_shared([each["epochs"] for each in found])
    for rank, each in enumerate(found):
        assert f"the launcher started 2 processes (RANK={rank}, WORLD_SIZE=2)" in each["refused"]


def test_ranks_with_seeds_of_their_own_are_refused(flat: Path, tmp_path: Path) -> None:
    ended = ranks(LATE, "seeds", flat, tmp_path)
    assert [code for code, _ in ended] == [0, 0], ended
    told = written(tmp_path)
    assert any("seed= is 42 on rank 0 and 43 on rank 1" in each for each in told), told


def test_lightning_starts_processes_after_the_loader_was_made(flat: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)])}
    command = [sys.executable, LATE, "lightning", flat, tmp_path]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert_shared(written(tmp_path))


@pytest.mark.parametrize("how", ["dispatched", "sharded"])
def test_accelerate_may_deal_out_the_whole_dataset(flat: Path, tmp_path: Path, how: str) -> None:
    ended = ranks(LATE, how, flat, tmp_path)
    assert [code for code, _ in ended] == [0, 0], ended
    first, second = written(tmp_path)
    assert set(first + second) == set(range(FLAT_IMAGES))
    assert len(first + second) - FLAT_IMAGES <= 5  # the last batch is filled up
