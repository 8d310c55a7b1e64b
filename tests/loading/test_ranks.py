"""Which rank a process is whenever an epoch begins: by its arguments, by torch.distributed, or refused."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import fastpipe
from fastpipe import warnings_once
from fastpipe.errors import ConfigError
from fastpipe.loading.ranks import _LAUNCHERS, RankResolver, group_by_node, ranks_per_node
from fastpipe.plan.partition import ALONE, Ranks

LAUNCHER = ("SLURM_NTASKS", "LOCAL_WORLD_SIZE", *_LAUNCHERS, *_LAUNCHERS.values())


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)


def test_alone_without_anything() -> None:
    assert RankResolver(None, None).known() is None


def test_arguments_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert RankResolver(3, 8).known() == Ranks(3, 8)
    assert RankResolver(0, 1).known() == ALONE


@pytest.mark.parametrize(
    ("rank", "world_size", "says"),
    [
        (
            1,
            None,
            "world_size: expected a whole number, got None; pass rank= and world_size=, or neither",
        ),
        (
            None,
            2,
            "rank: expected a whole number, got None; pass rank= and world_size=, or neither",
        ),
        (2, 2, "rank: expected 0 to 1, got 2; ranks are numbered from 0: pass 0 to world_size - 1"),
        (-1, 2, "rank: expected 0 to 1"),
        (0, 0, "world_size: expected 1 to"),
        ("0", 2, "rank: expected a whole number"),
    ],
)
def test_arguments_that_make_no_sense(rank: object, world_size: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RankResolver(rank, world_size)


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """(rank, world_size) -> this process is one of several, as far as torch.distributed tells; or alone again."""

    def connected(rank: int, world_size: int) -> None:
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: world_size > 1)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: world_size)

    return connected


def test_torch_distributed_counts_whenever_it_is_asked(tmp_path: Path) -> None:
    world = RankResolver(None, None)
    assert world.known() is None
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1
    )
    try:
        assert world.known() == Ranks(0, 1)
    finally:
        torch.distributed.destroy_process_group()
    assert world.known() is None


def samples(loader: fastpipe.Loader) -> list[int]:
    """Of an epoch, those that count."""
    return [sample for batch in loader for sample in batch.ids[batch.valid].tolist()]


Connect = Callable[[int, int], None]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"train": False},
        {"sampler": fastpipe.Repeated(2, fastpipe.Weighted({}))},
        {"sampler": fastpipe.Weighted({}, replacement=False), "epoch_size": 30},
        {"sampler": fastpipe.PerClass(samples=4)},
        {"sampler": lambda epoch: range(epoch, 37)},
        {"size": fastpipe.Buckets(area=64)},
        {"partition": "node"},
        {"views": 2},
    ],
)
def test_a_loader_made_before_has_the_epochs_of_one_made_afterwards(
    flat: Path, connect: Connect, options: dict[str, Any]
) -> None:
    options = {"size": 8, "num_workers": 1, "drop_last": False, **options}
    early = fastpipe.loader(flat, 4, **options)
    assert samples(early)  # of all; with several ranks it may be begun anew
    for rank, world_size in ((1, 2), (2, 3), (0, 1)):
        connect(rank, world_size)
        with fastpipe.loader(flat, 4, rank=rank, world_size=world_size, **options) as fixed:
            fixed.set_epoch(early.stats().epoch + 1)
            assert len(early) == len(fixed) == early.remaining == len(iter(early))
            assert early.state_dict() == fixed.state_dict()
            assert repr(early) == repr(fixed)
            assert samples(early) == samples(fixed)
    early.close()


def test_what_was_begun_of_the_next_epoch_is_not_given_to_other_ranks(
    flat: Path, connect: Connect
) -> None:
    with fastpipe.loader(flat, 4, size=8, num_workers=1, drop_last=False) as loader:
        samples(loader)
        samples(loader)
        until_s = time.monotonic() + 300
        while loader.stats().images_decoded <= 2 * len(loader.dataset):  # until epoch 2 has begun
            assert time.monotonic() < until_s
        connect(0, 2)
        first = samples(loader)
        loader.set_epoch(2)
        connect(1, 2)
        assert sorted(first + samples(loader)) == list(range(len(loader.dataset)))


def test_an_epoch_that_runs_keeps_its_ranks_and_so_does_its_state(
    flat: Path, connect: Connect
) -> None:
    connect(0, 2)
    with fastpipe.loader(flat, 4, size=8, num_workers=1, drop_last=False) as loader:
        expected = samples(loader)
        loader.set_epoch(0)
        running = iter(loader)
        first = next(running).ids.tolist()  # type: ignore[union-attr]
        state = loader.state_dict()
        connect(0, 1)
        assert loader.state_dict() == state
        assert loader.remaining == len(running) == 4  # type: ignore[arg-type]
        assert len(loader) == 10
        assert first + samples(running) == expected  # type: ignore[arg-type]
        assert loader.remaining == 10
        loader.load_state_dict(state)  # of two ranks, which may come yet
        with pytest.raises(
            ConfigError, match="batch_size, times the number of ranks, was 8 and is now 4"
        ):
            next(iter(loader))


def test_a_state_is_loaded_before_the_processes_are_connected(flat: Path, connect: Connect) -> None:
    options = {"size": 8, "num_workers": 1, "drop_last": False}
    with fastpipe.loader(flat, 4, rank=1, world_size=2, **options) as loader:  # type: ignore[arg-type]
        begin = loader.state_dict()
        running = iter(loader)
        next(running)
        state = loader.state_dict()
        rest = samples(running)  # type: ignore[arg-type]
    with fastpipe.loader(flat, 4, **options) as loader:  # type: ignore[arg-type]
        loader.load_state_dict(begin)
        assert (loader.remaining, loader.state_dict()) == (5, begin)
        loader.load_state_dict(state)
        assert loader.remaining == len(iter(loader)) == 4  # type: ignore[arg-type]
        assert loader.state_dict() == state
        for wrong in (1, 3):  # processes in the end
            connect(0, wrong)
            with pytest.raises(
                ConfigError,
                match=f"batch_size, times the number of ranks, was 8 and is now {4 * wrong}",
            ):
                next(iter(loader))
        connect(1, 2)
        assert samples(loader) == rest
        assert len(samples(loader)) in (18, 19)


@pytest.mark.parametrize("batch_size", [3, 16])
def test_a_state_that_no_number_of_processes_fits_is_refused_at_once(
    flat: Path, batch_size: int
) -> None:
    with fastpipe.loader(flat, 8, size=8, num_workers=1, drop_last=False) as loader:
        state = loader.state_dict()
    with (
        fastpipe.loader(flat, batch_size, size=8, num_workers=1, drop_last=False) as loader,
        pytest.raises(
            ConfigError,
            match=f"batch_size, times the number of ranks, was 8 and is now {batch_size}",
        ) as refused,
    ):
        loader.load_state_dict(state)
    assert "On 1 rank open the loader with batch_size=8" in str(refused.value)


def test_a_world_that_is_too_large_is_refused_when_an_epoch_begins(
    flat: Path, connect: Connect
) -> None:
    with fastpipe.loader(flat, 8, size=8, num_workers=1) as loader:
        samples(loader)
        running = iter(loader)
        next(running)
        connect(0, 8)
        assert len(samples(running)) == 24  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="a global batch of 8 ranks needs 64"):
            next(iter(loader))


@pytest.mark.parametrize("number", list(_LAUNCHERS))
def test_a_launchers_processes_that_do_not_know_each_other(
    monkeypatch: pytest.MonkeyPatch, flat: Path, number: str, connect: Connect
) -> None:
    monkeypatch.setenv(number, "1")
    monkeypatch.setenv(_LAUNCHERS[number], "4")
    options = {"size": 8, "num_workers": 1, "train": False}
    with fastpipe.loader(flat, 4, **options) as loader:  # type: ignore[arg-type]
        # Lightning's first process does not know of the others yet; all should plan the same.
        assert len(loader) == (10 if number == "LOCAL_RANK" else 3)
        told = rf"{number}=1, {_LAUNCHERS[number]}=4\), but .* each process would read the whole dataset.*init_process"
        for _ in range(2):
            with pytest.raises(ConfigError, match=told):
                next(iter(loader))
        connect(1, 4)
        assert len(samples(loader)) == 12 - 3 + 1
    with fastpipe.loader(flat, 4, rank=0, world_size=1, **options) as loader:  # type: ignore[arg-type]
        assert len(samples(loader)) == 37


@pytest.mark.parametrize(
    "given", [{"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, {"RANK": "0", "WORLD_SIZE": "1"}]
)
def test_a_process_that_is_alone_may_iterate(
    monkeypatch: pytest.MonkeyPatch, flat: Path, given: dict[str, str]
) -> None:
    """As in a batch script of Slurm, which is one process, whatever it starts later."""
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with fastpipe.loader(flat, 4, size=8, num_workers=1, train=False) as loader:
        assert samples(loader) == list(range(37))


def rows_of(data: Path, world_size: int) -> Iterator[dict[str, int]]:
    """The rows of a Hugging Face dataset that reads a loader."""
    with fastpipe.loader(
        data, 4, size=8, num_workers=1, rank=0, world_size=world_size, train=False
    ) as loader:
        yield from ({"id": sample} for sample in samples(loader))


def test_a_dataset_that_is_split_by_rank_again_is_refused(flat: Path) -> None:
    datasets = pytest.importorskip("datasets")
    split_by_node = pytest.importorskip("datasets.distributed").split_dataset_by_node

    def read(world_size: int, split: bool) -> list[int]:
        made = datasets.IterableDataset.from_generator(
            rows_of, gen_kwargs={"data": flat, "world_size": world_size}
        )
        made = split_by_node(made, 0, 2) if split else made
        return [row["id"] for row in made]

    assert read(1, split=True) == list(range(37))[::2]
    assert len(read(2, split=False)) == 19
    with pytest.raises(
        ConfigError,
        match=r"datasets.iterable_dataset.StepExamplesIterable gives each process a part",
    ):
        read(2, split=True)


def test_accelerate_deals_out_no_share(flat: Path, connect: Connect) -> None:
    """Of a loader in a DataLoader, it would give each process a part of what is a part already."""
    from accelerate.data_loader import DataLoaderDispatcher, IterableDatasetShard

    def dispatched(loader: fastpipe.Loader) -> object:
        dispatcher = SimpleNamespace(
            state=SimpleNamespace(process_index=0, num_processes=2),
            split_batches=True,
            submesh_tp=None,
            _update_state_dict=lambda: None,
        )
        return DataLoaderDispatcher._fetch_batches(dispatcher, iter(loader))

    def sharded(loader: fastpipe.Loader) -> object:
        return next(iter(IterableDatasetShard(loader, batch_size=1, num_processes=2)))

    connect(0, 2)
    for deal, name in ((dispatched, "DataLoaderDispatcher"), (sharded, "IterableDatasetShard")):
        with fastpipe.loader(flat, 4, size=8, num_workers=1) as loader:
            with pytest.raises(
                ConfigError, match=f"accelerate.data_loader.{name} gives each process a part"
            ):
                deal(loader)
            assert len(samples(loader)) == 16, "nobody deals out this one"


def test_ranks_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranks_per_node(Ranks(0, 8)) == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert ranks_per_node(Ranks(0, 8)) == 4
    assert ranks_per_node(ALONE) == 1


def test_nodes_are_groups_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert group_by_node(Ranks(5, 8), "node") == (Ranks(5, 8, 4), 4)
    assert group_by_node(Ranks(5, 8), 8) == (Ranks(5, 8, 4), 8)
    with pytest.raises(ConfigError, match=r"multiple of the 4 nodes \(8 ranks, 2 on each\), got 6"):
        group_by_node(Ranks(5, 8), 6)
    with pytest.raises(
        ConfigError,
        match=r"the same number of ranks on every node, got 5 ranks, 2 of them on this node",
    ):
        group_by_node(Ranks(0, 5), "node")


def test_threads_are_divided_by_the_ranks_here(monkeypatch: pytest.MonkeyPatch, flat: Path) -> None:
    monkeypatch.setattr(sys.modules["fastpipe.loading.factory"], "count_granted_cpus", lambda: 12)
    threads = []
    for local in (1, 2, 5, 100):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local))
        with fastpipe.loader(flat, 1, size=8, drop_last=False, rank=0, world_size=100) as loader:
            threads.append(loader.stats().threads)
    assert threads == [12, 6, 2, 1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"partition": "shard"},
            'partition: expected a whole number, got \'shard\'; .*"sample", "node" or the number',
        ),
        ({"partition": True}, "partition: expected a whole number, got True"),
        ({"partition": 0}, "partition: expected 1 to .*, got 0; pass "),
        (
            {"partition": 3},
            r"batch_size=4: batch_size times world_size=1 must be a multiple of the 3 parts of partition=",
        ),
        ({"partition": 64, "batch_size": 64}, "37 samples, fewer than the 64 parts of partition="),
        (
            {"rank": 0, "world_size": 10},
            "a global batch of 10 ranks needs 40. Pass a smaller batch_size",
        ),
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
    with pytest.raises(
        ConfigError, match=r"in worker 0 of a torch DataLoader\. Each of its 2 workers would read"
    ):
        list(torch.utils.data.DataLoader(Nested(flat, False), num_workers=2))


def test_workers_of_a_data_loader_may_share_a_dataset(flat: Path) -> None:
    labels = [
        int(label) for label in torch.utils.data.DataLoader(Nested(flat, True), num_workers=2)
    ]
    assert sorted(labels) == sorted(fastpipe.open(flat).targets.tolist())


def begin_epoch(data: Path, **options: Any) -> None:
    with fastpipe.loader(data, 4, size=8, num_workers=1, **options) as loader:
        next(iter(loader))


@pytest.fixture
def launched(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> pytest.LogCaptureFixture:
    """The log of process 1 of 2 that torchrun has started."""
    warnings_once.forget_all()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    return caplog


def test_a_group_of_one_in_each_process_of_a_launcher(
    flat: Path, launched: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    begin_epoch(flat, rank=0, world_size=1)
    assert launched.text == ""
    for _ in range(2):
        begin_epoch(flat)
    words = "the launcher started 2 processes (RANK=1, WORLD_SIZE=2), and torch.distributed has 1"
    assert launched.text.count(words) == 1
    # Slurm's tasks that each start a torchrun of one process.
    launched.clear()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    begin_epoch(flat)
    assert launched.text == ""
    monkeypatch.delenv("WORLD_SIZE")
    begin_epoch(flat)
    assert "2 processes (SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=2)" in launched.text


def test_a_rank_that_contradicts_the_launcher(
    flat: Path, launched: pytest.LogCaptureFixture
) -> None:
    begin_epoch(flat, rank=1, world_size=2)
    begin_epoch(flat, rank=0, world_size=1)
    begin_epoch(flat, rank=0, world_size=4)
    assert launched.text == ""
    for _ in range(2):
        begin_epoch(flat, rank=0, world_size=2)
    words = (
        "fastpipe.loader(..., rank=0, world_size=2): the launcher numbers this process otherwise "
        "(RANK=1, WORLD_SIZE=2)"
    )
    assert launched.text.count(words) == 1
    assert 'Pass rank=int(os.environ["RANK"])' in launched.text


@pytest.mark.parametrize(("rank", "world_size"), [(0, "2"), ("0", 2)])
def test_ranks_that_are_texts_of_the_environment(rank: object, world_size: object) -> None:
    with pytest.raises(ConfigError, match=r'are texts: int\(os.environ\["RANK"\]\)'):
        RankResolver(rank, world_size)


def test_variables_of_a_launcher_that_are_left_in_the_shell(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with (
        pytest.raises(
            ConfigError, match=r"If no launcher has started this process, unset RANK and WORLD_SIZE"
        ),
        fastpipe.loader(flat, 4, size=8, num_workers=1) as loader,
    ):
        next(iter(loader))
