"""Ranks that share an epoch and differ in seed, weights, batch size or dataset: refused, and named."""

from __future__ import annotations

import platform
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.remote.range_server import RangeServer
from torch._C._distributed_c10d import HashStore

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.loading import agreement

Made = Callable[..., fastpipe.Loader]


class Ranks:
    """Several ranks in one process: they have one store, and each counts its loaders by itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, world_size: int = 2) -> None:
        distributed, store = torch.distributed, HashStore()
        self._patch, self._turns = monkeypatch, [Counter[str]() for _ in range(world_size)]
        monkeypatch.setattr(distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(distributed, "get_world_size", lambda: world_size)
        monkeypatch.setattr(distributed.distributed_c10d, "_get_default_store", lambda: store)

    def become(self, rank: int) -> None:
        self._patch.setattr(torch.distributed, "get_rank", lambda: rank)
        self._patch.setattr(agreement, "_turns", self._turns[rank])


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return Ranks(monkeypatch)


@pytest.fixture
def made() -> Iterator[Made]:
    loaders: list[fastpipe.Loader] = []

    def make(data: Any, batch_size: int = 4, **options: Any) -> fastpipe.Loader:
        loaders.append(
            fastpipe.loader(data, batch_size, size=8, num_workers=1, drop_last=False, **options)
        )
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()


def loader_of_each(ranks: Ranks, data: Path, **options: Any) -> list[fastpipe.Loader]:
    """A loader of each of two ranks, made in one line of the program."""
    loaders = []
    for rank in range(2):
        ranks.become(rank)
        loaders.append(fastpipe.loader(data, 4, size=8, num_workers=1, **options))
    return loaders


def ids(loader: Any) -> list[int]:
    return [sample for batch in loader for sample in batch.ids[batch.valid].tolist()]


def test_a_seed_of_each_rank_is_refused_on_all_of_them(
    flat: Path, ranks: Ranks, made: Made
) -> None:
    ranks.become(0)
    first = made(flat, seed=42)
    running = iter(first)
    next(running)
    ranks.become(1)
    told = "seed= is 42 on rank 0 and 43 on rank 1.*the same seed"
    second = made(flat, seed=43)
    for _ in range(2):
        with pytest.raises(ConfigError, match=told):
            ids(second)
    ranks.become(0)
    with pytest.raises(ConfigError, match=told):
        ids(running)


def test_a_rank_that_was_first_learns_of_it_at_the_end_of_a_short_epoch(
    flat: Path, ranks: Ranks, made: Made
) -> None:
    ranks.become(0)
    first = iter(made(flat, 32, seed=42))
    next(first)
    ranks.become(1)
    with pytest.raises(ConfigError, match="seed="):
        ids(made(flat, 32, seed=43))
    ranks.become(0)
    with pytest.raises(ConfigError, match="seed= is 42 on rank 0 and 43 on rank 1"):
        next(first)


@pytest.mark.parametrize(
    ("here", "there", "told"),
    [
        (
            {"batch_size": 4},
            {"batch_size": 5},
            "batch_size= times world_size= is 8 on rank 0 and 10 on rank 1",
        ),
        ({"shuffle": True}, {"shuffle": False}, "shuffle is True on rank 0 and False on rank 1"),
        (
            {"sampler": fastpipe.Weighted({"red": 2})},
            {"sampler": fastpipe.Weighted({"red": 3})},
            "the weights are different ones on rank 0 and on rank 1.*the same weights",
        ),
        (
            {"sampler": lambda _: [1, 2, 3, 4]},
            {"sampler": lambda _: [5, 6, 7, 8]},
            "the sampler has given different numbers on rank 0",
        ),
    ],
)
def test_what_decides_the_samples_has_to_be_the_same(
    flat: Path, ranks: Ranks, made: Made, here: dict[str, Any], there: dict[str, Any], told: str
) -> None:
    ranks.become(0)
    classes = fastpipe.open(flat).classes
    for options in (here, there):
        if isinstance(options.get("sampler"), fastpipe.Weighted):
            (weight,) = options["sampler"].weights.values()
            options["sampler"] = fastpipe.Weighted({classes[0]: weight})
    one = made(flat, **here)
    next(iter(one))
    ranks.become(1)
    with pytest.raises(ConfigError, match=told):
        ids(made(flat, **there))


def test_another_dataset_or_part_of_it_is_refused(
    flat: Path, textured: Path, ranks: Ranks, made: Made
) -> None:
    ranks.become(0)
    next(iter(made(flat)))
    ranks.become(1)
    with pytest.raises(
        ConfigError, match=r"the dataset is .* on rank 0 and .* on rank 1.*the same files"
    ) as refused:
        ids(made(textured))
    assert "stored is" not in str(refused.value), "what a state keeps for its own messages"


@pytest.mark.parametrize("names", [("part-0", "part-1"), ("part-0/packed", "part-1/packed")])
def test_a_dataset_of_each_rank_is_named_with_what_reads_all_of_them(
    flat: Path, textured: Path, ranks: Ranks, made: Made, tmp_path: Path, names: tuple[str, str]
) -> None:
    parts = [tmp_path / name for name in names]
    for data, part in zip((flat, textured), parts, strict=True):
        shutil.copytree(data, part)
    ranks.become(0)
    next(iter(made(parts[0])))
    ranks.become(1)
    with pytest.raises(ConfigError) as refused:
        ids(made(parts[1]))
    text = str(refused.value)
    assert f"the dataset is '{parts[0]}' on rank 0 and '{parts[1]}' on rank 1" in text
    assert f"fastpipe.concat('{parts[0]}', '{parts[1]}') on all ranks" in text
    assert "unfinished copy" not in text
    assert "pass the same epoch_size= on all of them" in text
    lengths = set()
    for data in parts:
        lengths.add(len(made(data, rank=0, world_size=1, epoch_size=40)))
    assert len(lengths) == 1


def test_another_copy_on_each_machine(
    flat: Path,
    textured: Path,
    ranks: Ranks,
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for machine, data in {"one": flat, "two": textured}.items():
        shutil.copytree(data, tmp_path / machine / "data")
    ranks.become(0)
    monkeypatch.setattr(platform, "node", lambda: "one")
    next(iter(made(tmp_path / "one/data")))
    ranks.become(1)
    monkeypatch.setattr(platform, "node", lambda: "two")
    with pytest.raises(ConfigError, match="may have an older or unfinished copy") as refused:
        ids(made(tmp_path / "two/data"))
    assert f"'{tmp_path}/one/data' on rank 0" in str(refused.value)
    assert "fastpipe.concat" not in str(refused.value)


def test_a_part_of_each_rank_is_refused(flat: Path, ranks: Ranks, made: Made) -> None:
    """As programs choose it that know a DataLoader, which shares nothing out."""
    ranks.become(0)
    data = fastpipe.open(flat)
    next(iter(made(data.select(range(0, 36, 2)))))
    ranks.become(1)
    with pytest.raises(ConfigError, match="the loader shares them out itself"):
        ids(made(data.select(range(1, 36, 2))))


def test_weights_that_one_rank_changes_later_are_refused(
    flat: Path, ranks: Ranks, made: Made
) -> None:
    loaders = []
    for rank in range(2):
        ranks.become(rank)
        loaders.append(made(flat, sampler=fastpipe.Weighted({})))
        ids(loaders[rank])
    ranks.become(0)
    loaders[0].set_weights({fastpipe.open(flat).classes[0]: 5.0})
    ids(loaders[0])
    ranks.become(1)
    with pytest.raises(ConfigError, match="the weights are different ones"):
        ids(loaders[1])


def test_ranks_that_agree_read_each_sample_once_whoever_iterates_more(
    flat: Path, ranks: Ranks, made: Made
) -> None:
    """Rank 0 looks at a batch first, makes another loader, and begins an epoch more: nobody waits or is refused."""
    ranks.become(0)
    show = made(flat, 3, seed=9)
    next(iter(show))
    loaders = loader_of_each(ranks, flat, drop_last=False)
    ranks.become(0)
    next(iter(loaders[0]))
    loaders[0].set_epoch(0)
    found = ids(loaders[0])
    ids(loaders[0])
    ranks.become(1)
    assert sorted(found + ids(loaders[1])) == list(range(37))
    for loader in loaders:
        loader.close()


def test_ranks_in_different_epochs_are_logged(
    flat: Path, ranks: Ranks, caplog: pytest.LogCaptureFixture
) -> None:
    """Rank 0 looks at a batch, which the others do not; so it is an epoch ahead."""
    loaders = loader_of_each(ranks, flat)
    ranks.become(0)
    next(iter(loaders[0]))
    ids(loaders[0])
    assert not caplog.records
    ranks.become(1)
    ids(loaders[1])
    assert "rank 0 reads epoch 1 while rank 1 reads epoch 0" in caplog.text
    # It is said once, and rank 0 is not taken for one that evaluates alone.
    for rank, loader in enumerate(loaders * 2):
        ranks.become(rank % 2)
        ids(loader)
    agreement._warn_at_exit()
    assert len(caplog.records) == 1
    for loader in loaders:
        loader.close()


def test_ranks_with_caches_of_their_own(
    range_server: RangeServer, tmp_path: Path, ranks: Ranks, caplog: pytest.LogCaptureFixture
) -> None:
    def read(folders: list[str]) -> None:
        for rank, folder in enumerate(folders):
            ranks.become(rank)
            data = fastpipe.open(range_server.url, cache_dir=tmp_path / folder)
            with fastpipe.loader(data, 4, size=8, num_workers=1) as loader:
                next(iter(loader))

    read(["shared", "shared"])
    assert caplog.text == ""
    read(["first", "second"])
    assert f"ranks of this machine keep {range_server.url} in" in caplog.text
    assert "Pass one cache_dir= to fastpipe.open on all ranks" in caplog.text


def test_a_state_that_one_rank_alone_loads_is_logged(
    flat: Path, ranks: Ranks, caplog: pytest.LogCaptureFixture
) -> None:
    ranks.become(0)
    with fastpipe.loader(flat, 4, size=8, num_workers=1) as saved:
        running = iter(saved)
        next(running)
        next(running)
        state = saved.state_dict()
    loaders = loader_of_each(ranks, flat)
    ranks.become(0)
    loaders[0].load_state_dict(state)
    ids(loaders[0])
    ranks.become(1)
    ids(loaders[1])
    assert "rank 0 reads epoch 0 from batch 2 while rank 1 reads epoch 0" in caplog.text
    for loader in loaders:
        loader.close()


def test_a_rank_that_is_late_for_two_epochs_is_not_logged(
    flat: Path, ranks: Ranks, caplog: pytest.LogCaptureFixture
) -> None:
    """Rank 0 reads two short epochs before rank 1 begins: no step holds them together."""
    loaders = loader_of_each(ranks, flat)
    for rank, loader in enumerate(loaders):
        ranks.become(rank)
        for _ in range(2):
            ids(loader)
    agreement._warn_at_exit()
    assert not caplog.records
    for loader in loaders:
        loader.close()


def test_a_rank_that_evaluates_alone_is_logged(
    flat: Path, ranks: Ranks, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "_LOOP_PATIENCE_S", 0.0)
    training = loader_of_each(ranks, flat)
    evaluation = loader_of_each(ranks, flat, train=False)
    for readers in ([0, 1], [0]):
        for rank in readers:
            ranks.become(rank)
            ids(evaluation[rank])
        assert not caplog.records
        for rank in range(2):
            ranks.become(rank)
            ids(training[rank])
    (record,) = caplog.records
    assert "only rank 0 of 2 has read epoch 1, and a rank reads its share" in record.getMessage()
    for loader in (*training, *evaluation):
        loader.close()


def test_a_rank_that_evaluates_alone_is_logged_once_the_others_train_on(
    flat: Path, ranks: Ranks, caplog: pytest.LogCaptureFixture
) -> None:
    """They are not late: they have left the evaluation out."""
    training = loader_of_each(ranks, flat)
    evaluation = loader_of_each(ranks, flat, train=False)
    for rank in range(2):
        ranks.become(rank)
        ids(training[rank])
    ranks.become(0)
    ids(evaluation[0])
    ranks.become(1)
    ids(training[1])
    assert not caplog.records
    ranks.become(0)
    ids(training[0])
    (record,) = caplog.records
    assert "only rank 0 of 2 has read epoch 0, and a rank reads its share" in record.getMessage()
    for loader in (*training, *evaluation):
        loader.close()


def test_a_long_evaluation_of_one_rank_is_logged_at_its_end(
    flat: Path, ranks: Ranks, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "_EVALUATION_PATIENCE_S", 0.0)
    evaluation = loader_of_each(ranks, flat, train=False)
    ranks.become(0)
    ids(evaluation[0])
    assert "only rank 0 of 2 has read epoch 0" in caplog.text
    for loader in evaluation:
        loader.close()


@pytest.mark.parametrize("readers", [[0], [0, 1]])
def test_a_program_that_ends_after_one_rank_has_evaluated_alone(
    flat: Path,
    ranks: Ranks,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    readers: list[int],
) -> None:
    monkeypatch.setattr(agreement, "_EXIT_PATIENCE_S", 0.0)
    evaluation = loader_of_each(ranks, flat, train=False)
    for rank in readers:
        ranks.become(rank)
        ids(evaluation[rank])
    assert not caplog.records
    for _ in range(2):
        agreement._warn_at_exit()
    count = caplog.text.count("only rank 0 of 2 has read epoch 0, and a rank reads its share")
    assert count == (len(readers) == 1)
    for loader in evaluation:
        loader.close()


def test_two_processes_with_one_rank_are_refused(flat: Path, ranks: Ranks) -> None:
    """As LOCAL_RANK makes them of two machines."""
    loaders = loader_of_each(ranks, flat, rank=0, world_size=2)
    ranks.become(0)
    running = iter(loaders[0])
    next(running)
    ranks.become(1)
    with pytest.raises(
        ConfigError, match=r"the processes 0 and 1 .* both read the share of rank=0"
    ):
        ids(loaders[1])
    ranks.become(0)
    with pytest.raises(ConfigError, match="LOCAL_RANK"):
        list(running)
    for loader in loaders:
        loader.close()


def test_a_rank_that_reads_by_itself_may_differ(flat: Path, ranks: Ranks, made: Made) -> None:
    for rank in range(2):
        ranks.become(rank)
        assert len(ids(made(flat, seed=rank, rank=0, world_size=1))) == 37


def test_a_store_that_cannot_be_reached_refuses_nothing(
    flat: Path, ranks: Ranks, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> object:
        raise RuntimeError("Broken pipe")

    ranks.become(1)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", gone)
    assert len(ids(made(flat))) == 18


class _Group:
    def size(self) -> int:
        return 2


class _Wrapper:
    """What stands for DistributedDataParallel."""

    process_group = _Group()


@pytest.mark.parametrize("case", ["same", "own seeds", "no wrapper", "evaluation", "one rank"])
def test_ranks_that_all_read_everything_in_one_order(
    flat: Path,
    ranks: Ranks,
    made: Made,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:
    monkeypatch.setattr(
        "torch.nn.parallel.distributed.DistributedDataParallel", _Wrapper, raising=True
    )
    model = None if case == "no wrapper" else _Wrapper()
    for rank in range(1 if case == "one rank" else 2):
        ranks.become(rank)
        seed = rank if case == "own seeds" else 0
        loader = made(flat, seed=seed, rank=0, world_size=1, train=case != "evaluation")
        for _ in range(2):
            next(iter(loader))
    words = "torch.distributed has 2 ranks, and the loader of .* is rank 0 of 1 on each: each rank reads"
    assert len(re.findall(words, caplog.text)) == (case == "same")
    del model


def test_a_loader_of_one_rank_alone_is_no_turn_of_the_others(
    flat: Path, textured: Path, ranks: Ranks, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "torch.nn.parallel.distributed.DistributedDataParallel", _Wrapper, raising=True
    )
    model = _Wrapper()
    for rank in range(2):
        ranks.become(rank)
        if rank == 0:
            next(iter(made(flat, rank=0, world_size=1)))
        for data in (flat, textured):
            next(
                iter(made(data))
            )  # of both ranks: the first one's is compared with the first one's
    del model
