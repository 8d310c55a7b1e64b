"""Which rank a process is: by its arguments, by torch.distributed, or refused where a launcher was not listened to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.loading.ranks import in_nodes, ranks_of, ranks_per_node
from fastpipe.plan.partition import ALONE, Ranks

LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)


def test_alone_without_anything() -> None:
    assert ranks_of(None, None) == ALONE == Ranks(0, 1, 1)


def test_arguments_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert ranks_of(3, 8) == Ranks(3, 8)
    assert ranks_of(0, 1) == ALONE


@pytest.mark.parametrize(
    ("rank", "world_size", "says"),
    [
        (1, None, "world_size: expected a number, because rank is given"),
        (None, 2, "rank: expected a number, because world_size is given"),
        (2, 2, "rank: expected 0 to 1, got 2"),
        (-1, 2, "rank: expected 0 to 1"),
        (0, 0, "world_size: expected 1 to"),
        ("0", 2, "rank: expected a whole number"),
    ],
)
def test_arguments_that_make_no_sense(rank: object, world_size: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ranks_of(rank, world_size)


def test_torch_distributed_where_it_is_initialised(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        assert ranks_of(None, None) == Ranks(0, 1)
    finally:
        torch.distributed.destroy_process_group()


def test_a_launchers_processes_that_do_not_know_each_other(monkeypatch: pytest.MonkeyPatch, flat: Path) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(
        ConfigError, match=r"RANK=1, WORLD_SIZE=4.*each process would read the whole dataset.*init_process_group"
    ):
        fastpipe.loader(flat, 4, size=8)


def test_ranks_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranks_per_node(Ranks(0, 8)) == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert ranks_per_node(Ranks(0, 8)) == 4
    assert ranks_per_node(ALONE) == 1


def test_nodes_are_groups_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert in_nodes(Ranks(5, 8), None) == (Ranks(5, 8, 4), 4)
    assert in_nodes(Ranks(5, 8), 8) == (Ranks(5, 8, 4), 8)
    with pytest.raises(ConfigError, match=r"multiple of the 4 nodes \(8 ranks, 2 on each\), got 6"):
        in_nodes(Ranks(5, 8), 6)
    with pytest.raises(
        ConfigError, match=r"the same number of ranks on every node, got 5 ranks, 2 of them on this node"
    ):
        in_nodes(Ranks(0, 5), None)


def test_threads_are_divided_by_the_ranks_here(monkeypatch: pytest.MonkeyPatch, flat: Path) -> None:
    monkeypatch.setattr(sys.modules["fastpipe.loading.factory"], "granted_cpus", lambda: 12)
    threads = []
    for local in (1, 2, 5, 100):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local))
        with fastpipe.loader(flat, 1, size=8, drop_last=False, rank=0, world_size=100) as loader:
            threads.append(loader.num_workers)
    assert threads == [12, 6, 2, 1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"partition": "shard"}, "partition: expected 'sample' or 'node', got 'shard'"),
        ({"canonical_nodes": 4}, 'canonical_nodes=4 works only with partition="node"'),
        ({"partition": "node", "canonical_nodes": 3}, r"batch_size=4: batch_size times world_size=1 must be a mul"),
        ({"partition": "node", "canonical_nodes": 64, "batch_size": 64}, "37 samples, fewer than the 64 canonical"),
        ({"rank": 0, "world_size": 10}, "a global batch of 10 ranks needs 40. Pass a smaller batch_size"),
    ],
)
def test_options_that_do_not_go_together(flat: Path, options: dict[str, object], says: str) -> None:
    if "batch_size" in options:
        options = {**options, "drop_last": False}
    with pytest.raises(ConfigError, match=says):
        fastpipe.loader(flat, **{"batch_size": 4, "size": 8, **options})  # type: ignore[arg-type]


class Nested(torch.utils.data.IterableDataset[int]):
    """Yields the labels of a loader that each worker makes, shared among them or not."""

    def __init__(self, data: Path, shared: bool) -> None:
        self.data = data
        self.shared = shared

    def __iter__(self) -> Iterator[int]:
        worker = torch.utils.data.get_worker_info()
        ranks = {"rank": worker.id, "world_size": worker.num_workers} if self.shared else {}
        with fastpipe.loader(self.data, 1, size=8, train=False, num_workers=1, **ranks) as loader:
            for batch in loader:
                yield from batch.labels[batch.valid].tolist()


def test_a_loader_in_each_worker_of_a_data_loader_is_refused(flat: Path) -> None:
    with pytest.raises(ConfigError, match=r"in worker 0 of a torch DataLoader\. Each of its 2 workers would read"):
        list(torch.utils.data.DataLoader(Nested(flat, False), num_workers=2))


def test_workers_of_a_data_loader_may_share_a_dataset(flat: Path) -> None:
    labels = [int(label) for label in torch.utils.data.DataLoader(Nested(flat, True), num_workers=2)]
    assert sorted(labels) == sorted(fastpipe.Dataset(flat).targets.tolist())
