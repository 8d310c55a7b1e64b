"""Ranks share an epoch: loaders in one process by arguments, and real processes by torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkout import ROOT, SUPPORT, TESTS
from support.pictures.drawn import FLAT_IMAGES, flat_number
from support.ranks.torchrun import ranks, torchrun

import fastpipe

PROGRAM = SUPPORT / "ranks" / "distributed_rank.py"
LATE = SUPPORT / "ranks" / "late_ranks.py"
LIMIT_S = 90


def world_of(dataset: Path, world_size: int, batch_size: int, **options: Any) -> list[list[list[int]]]:
    """For each batch, for each rank, the samples that count, told by their pixels."""
    ranks = []
    for rank in range(world_size):
        options = {"size": 8, "num_workers": 1, **options}
        with fastpipe.loader(dataset, batch_size, rank=rank, world_size=world_size, **options) as loader:
            batches = []
            for batch in loader:
                images, labels = batch
                numbers = [flat_number(pixel) for pixel in images[:, :, 4, 4].numpy()]
                assert [number % 3 for number in numbers] == labels.tolist()
                batches.append([number for number, good in zip(numbers, batch.valid.tolist(), strict=True) if good])
            assert len(batches) == len(loader)
            ranks.append(batches)
    assert len({len(batches) for batches in ranks}) == 1
    return [[batches[number] for batches in ranks] for number in range(len(ranks[0]))]


@pytest.mark.parametrize("world_size", [1, 2, 3, 8, 40])
def test_all_ranks_together_see_each_sample_once(flat: Path, world_size: int) -> None:
    world = world_of(flat, world_size, 4, drop_last=False)
    assert sorted(number for batch in world for rank in batch for number in rank) == list(range(FLAT_IMAGES))


def test_evaluation_on_several_ranks_counts_every_sample_once(flat: Path) -> None:
    world = world_of(flat, 4, 8, train=False)
    assert [number for batch in world for rank in batch for number in rank] != []
    assert sorted(number for batch in world for rank in batch for number in rank) == list(range(FLAT_IMAGES))


def test_the_size_of_the_world_keeps_global_batches_crops_and_flips(textured: Path) -> None:
    """World 8 -> 4 -> 2 -> 8, at the boundaries of global batches, each going on where the one before stood."""

    def rows(world_size: int, state: dict[str, Any] | None, batches: int) -> tuple[list[list[bytes]], dict[str, Any]]:
        found: list[list[bytes]] = [[] for _ in range(batches)]
        for rank in range(world_size):
            with fastpipe.loader(
                textured, 8 // world_size, size=16, num_workers=1, rank=rank, world_size=world_size
            ) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                taken = 0
                while taken < batches:
                    for images, _ in loader:
                        found[taken].extend(image.contiguous().numpy().tobytes() for image in images)
                        taken += 1
                        after = loader.state_dict()
                        if taken == batches:
                            break
        return [sorted(batch) for batch in found], after

    expected, _ = rows(1, None, 6)
    got, state = rows(8, None, 1)
    for world_size, batches in ((4, 2), (2, 2), (8, 1)):
        more, state = rows(world_size, json.loads(json.dumps(state)), batches)
        got += more
    assert got == expected


def test_nodes_share_nothing_and_cover_everything(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    world = world_of(flat, 4, 4, drop_last=False, partition="node")
    ranks = [{number for batch in world for number in batch[rank]} for rank in range(4)]
    first, second = ranks[0] | ranks[1], ranks[2] | ranks[3]
    assert not first & second
    assert first | second == set(range(FLAT_IMAGES))
    # By place in the shards, which pack has shuffled: the first half and the second.
    order = [flat_number(image[:, 4, 4].numpy()) for image in in_shard_order(flat)]
    assert first == set(order[: FLAT_IMAGES // 2])


def in_shard_order(dataset: Path) -> list[Any]:
    with fastpipe.loader(dataset, 64, size=8, train=False, num_workers=1) as loader:
        return [image for images, _ in loader for image in images]


def test_a_number_of_parts_keeps_the_global_batches(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def global_batches(nodes: int, local: int) -> list[list[int]]:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local))
        world = world_of(flat, nodes * local, 8 // (nodes * local), drop_last=False, partition=4)
        return [sorted(number for rank in batch for number in rank) for batch in world]

    assert global_batches(1, 1) == global_batches(2, 1) == global_batches(2, 2) == global_batches(4, 2)


@pytest.mark.parametrize("processes", [2, 4])
def test_real_processes(flat: Path, tmp_path: Path, processes: int) -> None:
    if processes == 2:
        torchrun(PROGRAM, flat, tmp_path, processes=processes, timeout_s=LIMIT_S)
    else:
        ended = ranks(PROGRAM, flat, tmp_path, processes=processes, timeout_s=LIMIT_S)
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
    ended = ranks(PROGRAM, flat, tmp_path, "die", "1", processes=3, timeout_s=LIMIT_S)
    assert ended[1][0] == -signal.SIGKILL
    for survivor in (0, 2):
        assert (tmp_path / f"{survivor}.json").exists(), ended[survivor]


def written(folder: Path) -> list[Any]:
    """What two ranks of support/ranks/late_ranks.py wrote."""
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def assert_shared(epochs: list[list[list[int]]]) -> None:
    """Each sample once in each epoch of two ranks."""
    for first, second in zip(*epochs, strict=True):
        assert sorted(first + second) == list(range(FLAT_IMAGES))
        assert abs(len(first) - len(second)) <= 3


def test_a_loader_made_before_init_process_group(flat: Path, tmp_path: Path) -> None:
    torchrun(LATE, "launched", flat, tmp_path, timeout_s=LIMIT_S)
    found = written(tmp_path)
    assert_shared([each["epochs"] for each in found])
    for rank, each in enumerate(found):
        assert f"the launcher started 2 processes (RANK={rank}, WORLD_SIZE=2)" in each["refused"]


def assert_late_ranks_share(flat: Path, folder: Path, how: str, *, timeout_s: float = LIMIT_S) -> None:
    """Of late_ranks.py, as a program that starts its ranks itself."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)])}
    command = [sys.executable, LATE, how, flat, folder]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stderr
    assert_shared(written(folder))


def test_a_loader_made_before_init_process_group_in_spawned_processes(flat: Path, tmp_path: Path) -> None:
    assert_late_ranks_share(flat, tmp_path, "spawned")


def test_a_world_that_changes_between_epochs(flat: Path, tmp_path: Path) -> None:
    """Two ranks, each by itself, two ranks: an epoch keeps the ranks with which it began, and a state goes on."""
    ended = ranks(LATE, "changing", flat, tmp_path, timeout_s=LIMIT_S)
    assert [code for code, _ in ended] == [0, 0], ended
    found = written(tmp_path)
    epochs = [each["epochs"] for each in found]
    for shared in (0, 1, 3):
        assert_shared([[each[shared]] for each in epochs])
    assert epochs[0][2] == epochs[1][2]
    assert sorted(epochs[0][2]) == list(range(FLAT_IMAGES))
    with fastpipe.loader(flat, 3, size=8, num_workers=1, drop_last=False) as alone:
        alone.set_epoch(2)
        assert [sample for batch in alone for sample in batch.ids.tolist()] == epochs[0][2]
    assert [each["lengths"] for each in found] == [[7, 13, 6]] * 2


def test_lightning_starts_processes_after_the_loader_was_made(flat: Path, tmp_path: Path) -> None:
    assert_late_ranks_share(flat, tmp_path, "lightning", timeout_s=2 * LIMIT_S)


@pytest.mark.parametrize(
    ("how", "dealer"), [("dispatched", "DataLoaderDispatcher"), ("sharded", "IterableDatasetShard")]
)
def test_accelerate_deals_out_no_share(flat: Path, tmp_path: Path, how: str, dealer: str) -> None:
    """Of a loader in a DataLoader, Accelerate would give each process a part of what is a part already."""
    ranks(LATE, how, flat, tmp_path, timeout_s=LIMIT_S)
    for rank in range(1 if how == "dispatched" else 2):  # only the first one reads what is dispatched
        said = json.loads((tmp_path / f"{rank}.json").read_text())
        assert f"accelerate.data_loader.{dealer} gives each process a part" in said


@pytest.mark.parametrize("how", ["dispatched whole", "sharded whole"])
def test_accelerate_may_deal_out_the_whole_dataset(flat: Path, tmp_path: Path, how: str) -> None:
    ended = ranks(LATE, how, flat, tmp_path, timeout_s=LIMIT_S)
    assert [code for code, _ in ended] == [0, 0], ended
    first, second = written(tmp_path)
    assert set(first + second) == set(range(FLAT_IMAGES))
    assert len(first + second) - FLAT_IMAGES <= 5  # the last batch is filled up


def test_ranks_without_a_sample_of_the_last_batch_repeat_that_of_another(flat: Path) -> None:
    """As the page about ranks says."""
    ids = []
    for rank in range(4):
        given: dict[str, Any] = {"train": False, "rank": rank, "world_size": 4, "num_workers": 1, "size": 8}
        with fastpipe.loader(fastpipe.open(flat).select(list(range(25))), 3, **given) as loader:
            *_, last = loader
            ids.append((last.ids.tolist(), last.valid.tolist()))
    assert ids == [([24], [True])] + 3 * [([24], [False])]
