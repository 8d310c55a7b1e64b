"""Ranks share an epoch: loaders in one process by arguments, and two processes by torch.distributed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.checkout import SUPPORT
from support.pictures.drawn import FLAT_IMAGES, flat_number
from support.ranks.late_epochs import assert_shared, written
from support.ranks.torchrun import ranks

import fastpipe

LATE = SUPPORT / "ranks" / "late_ranks.py"


def test_the_size_of_the_world_keeps_global_batches_crops_and_flips(textured: Path) -> None:
    """World 8 -> 4 -> 2 -> 8, at the boundaries of global batches, each going on where the one before stood."""

    def rows(
        world_size: int, state: dict[str, Any] | None, batches: int
    ) -> tuple[list[list[bytes]], dict[str, Any]]:
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
                        found[taken].extend(
                            image.contiguous().numpy().tobytes() for image in images
                        )
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


def test_nodes_share_nothing_and_cover_everything(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a part of the shards, whose pictures pack has shuffled: the first half, and the second."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    order = [flat_number(image[:, 4, 4].numpy()) for image, _ in fastpipe.open(flat)]
    nodes: list[list[int]] = [[], []]
    for rank in range(4):
        options = {"rank": rank, "world_size": 4, "drop_last": False, "partition": "node"}
        with fastpipe.loader(flat, 4, size=8, num_workers=1, **options) as loader:
            for batch in loader:
                numbers = [flat_number(pixel) for pixel in batch.images[:, :, 4, 4].numpy()]
                assert [number % 3 for number in numbers] == batch.labels.tolist()
                nodes[rank // 2] += [
                    number for number, good in zip(numbers, batch.valid, strict=True) if good
                ]
    assert sorted(nodes[0]) == sorted(order[: FLAT_IMAGES // 2])
    assert sorted(nodes[1]) == sorted(order[FLAT_IMAGES // 2 :])


def test_ranks_without_a_sample_of_the_last_batch_repeat_that_of_another(flat: Path) -> None:
    """As the page about ranks says."""
    ids = []
    for rank in range(4):
        given: dict[str, Any] = {
            "train": False,
            "rank": rank,
            "world_size": 4,
            "num_workers": 1,
            "size": 8,
        }
        with fastpipe.loader(fastpipe.open(flat).select(list(range(25))), 3, **given) as loader:
            *_, last = loader
            ids.append((last.ids.tolist(), last.valid.tolist()))
    assert ids == [([24], [True])] + 3 * [([24], [False])]


def test_a_world_that_changes_between_epochs(flat: Path, tmp_path: Path) -> None:
    """The gate's only test of ranks in processes of their own; the others are in tests/long.

    Two ranks, each by itself, two ranks: an epoch keeps the ranks with which it began, and a state goes on.
    """
    ended = ranks(LATE, "changing", flat, tmp_path)
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
