"""sampler=, epoch_size= and what was chosen of a dataset: what an epoch holds, on any number of ranks."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.datasets.packed import damage
from support.pictures.drawn import FLAT_CLASSES, FLAT_IMAGES, smooth_noise
from support.running.distributions import assert_distribution

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions

Row = tuple[int, bytes]  # id, pixels


def loader_of(
    dataset: fastpipe.Dataset | Path | str, batch_size: int = 4, **options: Any
) -> fastpipe.Loader:
    return fastpipe.loader(
        dataset, batch_size, **{"size": 12, "num_workers": 1, "drop_last": False, **options}
    )


def rows_of(batch: Any) -> list[Row]:
    pixels = [image.contiguous().numpy().tobytes() for image in batch.images]
    return list(zip(batch.ids.tolist(), pixels, strict=True))


def ids_of(loader: fastpipe.Loader) -> list[int]:
    with loader:
        return [number for batch in loader for number in batch.ids[batch.valid].tolist()]


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in which crops differ; it has as many samples and the classes of `flat`."""
    source = tmp_path_factory.mktemp("noisy") / "source"
    for number in range(FLAT_IMAGES):
        folder = source / FLAT_CLASSES[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        smooth_noise(40 + number, 80 - number, seed=number).save(folder / f"{number}.jpg")
    pack(source, source.parent / "packed", PackOptions(workers=1))
    return source.parent / "packed"


def numbers_of(epoch: int) -> NDArray[np.int64]:
    """A sampler: 16 to 18 numbers, the same one several times."""
    return np.random.default_rng(epoch).integers(0, FLAT_IMAGES, 16 + epoch % 3)


SPREAD = np.arange(FLAT_IMAGES)


def test_balanced_classes_come_equally_often(thousand: Path) -> None:
    data = fastpipe.open(thousand)
    weights = fastpipe.balanced(data)
    assert weights == {"again": 1 / 100, "common": 1 / 810, "rare": 1 / 90}
    some = data.select(range(500))
    counts = np.bincount(some["label"])
    assert fastpipe.balanced(some) == dict(zip(data.classes, 1 / counts, strict=True))
    for chosen in (data, some, data.only(["rare", "common"])):
        sampler = fastpipe.Weighted(fastpipe.balanced(chosen))
        with loader_of(chosen, 100, size=8, sampler=sampler) as loader:
            labels = torch.cat([batch.labels for _ in range(2) for batch in loader]).numpy()
        assert_distribution(np.bincount(labels), np.ones(len(chosen.classes)))
    with pytest.raises(
        ConfigError, match=r"balanced: expected a dataset from fastpipe\.open\(FOLDER\), got"
    ):
        fastpipe.balanced(thousand)  # type: ignore[arg-type]


def test_each_time_a_sample_is_drawn_it_is_cropped_anew(noisy: Path) -> None:
    samplers: list[Any] = [
        fastpipe.Weighted(np.eye(FLAT_IMAGES)[3]),
        lambda epoch: [3] * FLAT_IMAGES,
    ]
    for sampler in samplers:
        with loader_of(noisy, sampler=sampler) as loader:
            rows = [row for batch in loader for row in rows_of(batch)]
        assert [number for number, _ in rows] == [3] * FLAT_IMAGES
        assert len({pixels for _, pixels in rows}) > FLAT_IMAGES * 0.9


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_repeats_have_crops_of_their_own_and_go_to_different_ranks(
    noisy: Path, world_size: int
) -> None:
    repeats, ranks = 3, []
    sampler = fastpipe.Repeated(repeats)
    for rank in range(world_size):
        with loader_of(
            noisy, 12 // world_size, rank=rank, world_size=world_size, sampler=sampler
        ) as loader:
            ranks.append([rows_of(batch) for batch in loader])
    for number in range(FLAT_IMAGES // 12):
        batch = [row for rank in ranks for row in rank[number]]
        ids = [number for number, _ in batch]
        assert all(ids.count(number) == repeats for number in ids), "12 rows are 4 samples"
        assert len({pixels for _, pixels in batch}) > 10
        if world_size >= repeats:
            assert all(len({row[0] for row in rank[number]}) == len(rank[number]) for rank in ranks)


def batches_of(dataset: Any, epochs: int, **options: Any) -> list[list[list[int]]]:
    """By epoch and batch: the ids."""
    with loader_of(dataset, 8, **options) as loader:
        return [[batch.ids.tolist() for batch in loader] for _ in range(epochs)]


def test_a_function_says_what_each_epoch_has(flat: Path) -> None:
    """In its order, and as many: epochs may differ in length."""
    with loader_of(flat, 4, sampler=numbers_of) as loader:
        for epoch in range(3):
            assert len(loader) == -(-len(numbers_of(epoch)) // 4)
            assert [number for batch in loader for number in batch.ids.tolist()] == numbers_of(
                epoch
            ).tolist()
            loader.set_epoch(epoch + 1)


def test_an_epoch_without_a_batch_is_an_error_and_no_empty_loop(flat: Path) -> None:
    with loader_of(
        flat, 4, sampler=lambda epoch: range(3 if epoch == 2 else 8), drop_last=True
    ) as loader:
        for _ in range(2):
            assert len(list(loader)) == 2
        with pytest.raises(
            ConfigError, match=r"no full batch: epoch 2 of .* has 3 samples.*, or drop_last=False"
        ):
            list(loader)
        loader.set_epoch(3)
        assert len(list(loader)) == 2


def test_a_function_without_the_epoch(flat: Path) -> None:
    for function in (lambda: [0, 1], lambda epoch, seed: [epoch, seed]):
        with pytest.raises(
            ConfigError, match=r"^sampler: expected a function of the epoch's number.*lambda epoch:"
        ):
            fastpipe.loader(flat, 2, size=8, sampler=function)


def test_a_function_that_is_wrong_in_a_later_epoch_is_told_then(flat: Path) -> None:
    with loader_of(flat, 4, sampler=lambda epoch: [0, 37 if epoch == 2 else 36]) as loader:
        for _ in range(2):
            assert [batch.ids.tolist() for batch in loader] == [[0, 36]]
        with pytest.raises(ConfigError, match=r"from 0 to 36 for epoch 2; got 37$"):
            list(loader)
        loader.set_epoch(3)
        assert [batch.ids.tolist() for batch in loader] == [[0, 36]]


def test_samplers_of_torch(flat: Path) -> None:
    """Their draws follow from the loader's seed and the epoch, and leave the program's generators alone."""
    utils = torch.utils.data
    generator = torch.Generator().manual_seed(3)
    mine = generator.get_state()
    samplers: dict[str, Any] = {
        "random": utils.RandomSampler(range(FLAT_IMAGES)),
        "with a generator": utils.RandomSampler(range(FLAT_IMAGES), generator=generator),
        "subset": utils.SubsetRandomSampler([3, 4, 5, 30]),
        "weighted": utils.WeightedRandomSampler([1.0, 0.0] * 18 + [1.0], 20),
        "of ranks": utils.DistributedSampler(range(FLAT_IMAGES), num_replicas=1, rank=0),
    }
    for name, sampler in samplers.items():
        torch.manual_seed(5)
        before = torch.random.get_rng_state()
        one, same, other = (batches_of(flat, 2, sampler=sampler, seed=seed) for seed in (0, 0, 1))
        assert one == same, name
        assert torch.equal(torch.random.get_rng_state(), before), name
        assert torch.equal(generator.get_state(), mine), name
        if name != "of ranks":  # it has a seed of its own
            assert one != other, name
        first, second = (sorted(number for batch in batches for number in batch) for batches in one)
        assert one[0] != one[1], "each epoch has an order of its own"
        if name in ("random", "with a generator"):
            assert first == second == list(range(FLAT_IMAGES))
        elif name == "subset":
            assert first == second == [3, 4, 5, 30]
        elif name == "weighted":
            assert len(first) == 20
            assert not any(number % 2 for number in first)
        else:
            assert first == [*range(FLAT_IMAGES)]
    assert batches_of(flat, 1, sampler=utils.SequentialSampler(range(20))) == [
        [[*range(8)], [*range(8, 16)], [*range(16, 20)]]
    ]


def test_a_list_that_changes_between_epochs_is_that_of_the_epoch_that_begins(flat: Path) -> None:
    """Also where the epoch was made ahead of the change: hard examples, a curriculum."""
    hard = [[*range(20)]]
    with loader_of(flat, sampler=lambda epoch: hard[0]) as loader:
        for epoch in range(4):
            assert [number for batch in loader for number in batch.ids.tolist()] == hard[0]
            hard[0] = [*range(epoch + 1, epoch + 11 + epoch)]
    weighted = torch.utils.data.WeightedRandomSampler([1.0] * FLAT_IMAGES, 30)
    with loader_of(flat, sampler=weighted) as loader:
        for epoch in range(3):
            weighted.weights = torch.eye(FLAT_IMAGES, dtype=torch.float64)[epoch]
            assert {number for batch in loader for number in batch.ids.tolist()} == {epoch}


class Own(torch.utils.data.Sampler[int]):
    """Permutes, by a generator of its own or by counting its calls."""

    def __init__(self, draws: Any) -> None:
        self.draws, self.calls = draws, 0

    def __len__(self) -> int:
        return FLAT_IMAGES

    def __iter__(self) -> Any:
        self.calls += 1
        if isinstance(self.draws, torch.Generator):
            return iter(torch.randperm(FLAT_IMAGES, generator=self.draws).tolist())
        if isinstance(self.draws, random.Random):
            return iter(self.draws.sample(range(FLAT_IMAGES), FLAT_IMAGES))
        return iter(
            (self.draws or np.random.default_rng(self.calls)).permutation(FLAT_IMAGES).tolist()
        )


@pytest.mark.parametrize(
    "draws",
    [torch.Generator(), np.random.default_rng(1), np.random.RandomState(1), random.Random(1)],
    ids=type,
)
def test_whatever_generator_a_sampler_has_an_epoch_has_one_order(flat: Path, draws: Any) -> None:
    epochs, again = (batches_of(flat, 3, sampler=Own(draws)) for _ in range(2))
    assert epochs == again
    assert len({str(epoch) for epoch in epochs}) == 3
    with loader_of(flat, 8, sampler=Own(draws)) as loader:
        loader.set_epoch(2)
        assert [batch.ids.tolist() for batch in loader] == epochs[2]


class Shuffling(torch.utils.data.Sampler[int]):
    """Shuffles a list of its own in place, by Python's global generator."""

    def __init__(self) -> None:
        self.numbers = [*range(FLAT_IMAGES)]

    def __iter__(self) -> Any:
        random.shuffle(self.numbers)
        return iter(self.numbers)


def test_a_sampler_may_shuffle_in_place(flat: Path) -> None:
    sampler = Shuffling()
    epochs, again = (batches_of(flat, 3, sampler=sampler) for _ in range(2))
    assert epochs == again
    assert len({str(epoch) for epoch in epochs}) == 3
    assert sampler.numbers == [*range(FLAT_IMAGES)], "the program's own stays as it is"


def test_a_sampler_that_does_not_repeat_itself_is_refused(flat: Path) -> None:
    """Its epochs would differ from rank to rank, and could not be resumed."""
    generator = np.random.default_rng(1)
    for sampler in (Own(None), lambda epoch: generator.permutation(FLAT_IMAGES)):
        with pytest.raises(ConfigError, match="asked twice for epoch 0, it gave others"):
            loader_of(flat, sampler=sampler)
    epochs = batches_of(flat, 2, sampler=lambda epoch: np.random.permutation(FLAT_IMAGES))
    assert epochs[0] != epochs[1]
    assert epochs == batches_of(flat, 2, sampler=lambda epoch: np.random.permutation(FLAT_IMAGES))


def test_a_distributed_sampler_gives_each_rank_its_numbers(flat: Path) -> None:
    """As a loop over torch's DataLoader has them, batch by batch."""
    ranks = [
        torch.utils.data.DistributedSampler(range(FLAT_IMAGES), num_replicas=2, rank=rank)
        for rank in range(2)
    ]
    for rank, sampler in enumerate(ranks):
        with loader_of(flat, 4, rank=rank, world_size=2, sampler=sampler) as loader:
            for epoch in range(2):
                sampler.set_epoch(epoch)
                got = [batch.ids[batch.valid].tolist() for batch in loader]
                numbers = [*sampler]
                assert got == [numbers[start : start + 4] for start in range(0, len(numbers), 4)]


def test_a_distributed_sampler_of_a_loader_that_is_alone(flat: Path) -> None:
    """Each process would read the numbers of both ranks."""
    sampler = torch.utils.data.DistributedSampler(range(FLAT_IMAGES), num_replicas=2, rank=1)
    words = (
        "a DistributedSampler of 2 replicas, but this loader is rank 0 of 1.*"
        "pass rank= and world_size=2 to"
    )
    for passed in (sampler, fastpipe.Repeated(2, sampler)):
        with loader_of(flat, 4, sampler=passed) as loader, pytest.raises(ConfigError, match=words):
            next(iter(loader))


def test_a_bad_sample_is_replaced_by_one_that_is_chosen(
    flat: Path, copied: Callable[[Path], Path]
) -> None:
    bad = copied(flat)
    damage(bad, 5)
    data, few = fastpipe.open(bad), [4, 5, 6]
    cases: dict[str, tuple[fastpipe.Dataset, Any, set[int]]] = {
        "select": (data.select(few), None, {0, 2}),
        "weights": (data, fastpipe.Weighted(np.isin(SPREAD, few)), {4, 6}),
        "function": (data, lambda epoch: few, {4, 6}),
        "per class": (data.select(few).with_labels([0, 1, 2]), fastpipe.PerClass(1), {0, 2}),
    }
    for name, (chosen, sampler, expected) in cases.items():
        with loader_of(chosen, 3, train=False, on_error="replace", sampler=sampler) as loader:
            ids = torch.cat([batch.ids for _ in range(4) for batch in loader]).tolist()
            assert set(ids) == expected, name
            assert loader.stats().replaced > 0


def test_a_loader_of_everything_has_the_state_it_always_had(flat: Path) -> None:
    with loader_of(flat) as loader:
        order = json.loads(loader.state_dict()["order"])
    assert list(order) == [
        "seed",
        "shuffle",
        "drop_last",
        "global_batch_size",
        "sequences",
        "stored",
        "class_names",
    ]


def test_choosing_everything_is_the_dataset(flat: Path) -> None:
    """Its orders, its states: a state of the whole is one of each."""
    data = fastpipe.open(flat)
    with loader_of(data) as loader:
        state, expected = loader.state_dict(), [row for batch in loader for row in rows_of(batch)]
    for whole in (data.select(range(FLAT_IMAGES)), data.select(SPREAD >= 0), data.take(1.0)):
        with loader_of(whole) as loader:
            loader.load_state_dict(state)
            assert [row for batch in loader for row in rows_of(batch)] == expected


Weighted, Repeated, PerClass = fastpipe.Weighted, fastpipe.Repeated, fastpipe.PerClass


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (
            Weighted([1, 2]),
            r"Weighted: expected a number at least 0 for each of 37 samples.*got shape \(2,\)",
        ),
        (Weighted([-1] * 37), "got -1.0 for sample 0"),
        (Weighted([float("nan")] * 37), "got nan for sample 0"),
        (Weighted(torch.ones(37, requires_grad=True)), r"got Tensor: .*tensor\.detach\(\)"),
        (Weighted([0] * 37), "got only 0"),
        (
            Weighted([1e308] * 37),
            "weights with a finite sum, got inf; divide them all by the largest one",
        ),
        (Weighted({"cow": 1e308, "bee": 1e308}), "weights with a finite sum"),
        (Weighted("balanced"), "got str"),  # type: ignore[arg-type]
        (
            Weighted({"elephant": 1}),
            "the source path 'elephant', nor a class of this name; it has 'ant', 'bee', 'cow'",
        ),
        (
            Weighted({"cow": 1, "elephant": 1}),
            "no class 'elephant', and names .* keys of samples; it has 'ant', ",
        ),
        (
            Weighted({"cow": 1, "be": 2}),
            "no class 'be', and names .* keys of samples; did you mean 'bee'\\?$",
        ),
        (Weighted({"cow": -1}), "number at least 0 for each .*; got -1.0 for class 'cow'$"),
        (Weighted({"cow": "2"}), "got str '2'$"),  # type: ignore[dict-item]
        (Weighted({"ant": 0, "bee": 0, "cow": 0}), "got only 0 for the samples of the dataset"),
        (
            Weighted({}, replacement=False),
            "expected epoch_size= of 1 to 37, got no epoch_size=; pass",
        ),
        (Weighted({}, replacement=3), "replacement.*: expected True or False"),  # type: ignore[arg-type]
        (Repeated(0), r"Repeated\(times=\): expected 1 to"),
        (Repeated(True), r"Repeated\(times=\): expected a whole number, got True"),  # == 1
        (Repeated(1.0), r"Repeated\(times=\): expected a whole number, got 1.0"),  # type: ignore[arg-type]
        (Repeated(2, "balanced"), r"sampler: expected fastpipe\.Weighted.*got 'balanced'"),
        (PerClass(0), r"PerClass\(samples=\): expected 1 to"),
        (PerClass(2, classes=0), r"PerClass\(classes=\): expected 1 to"),
        (PerClass(2, classes=2.5), r"PerClass\(classes=\): expected a whole number"),  # type: ignore[arg-type]
        (
            PerClass(3, classes=2),
            r"PerClass\(classes=2, samples=3\) makes batches of 6, but the loader has batch_size=4",
        ),
        (
            PerClass(3),
            r"makes batches of 3, but the loader has batch_size=4. Pass .*classes=2, samples=2.*or another batch_size",
        ),
        (
            PerClass(5),
            "takes 5 rows for each class, more than batch_size=4. Pass PerClass",
        ),
        (
            PerClass(2, classes=10),
            "makes batches of 20, but the loader has batch_size=4. Pass PerClass",
        ),
        (PerClass(1), "needs 4 classes to fill batch_size=4, but the dataset has 3. Pass"),
        (fastpipe.Weighted, r"expected fastpipe\.Weighted\(\.\.\.\).*got <class"),
        ({"ant": 2}, r"expected fastpipe\.Weighted\(\.\.\.\).*got {'ant': 2}$"),
        (3, r"expected fastpipe\.Weighted\(\.\.\.\).*got 3$"),
        (lambda epoch: [37], "expected whole numbers from 0 to 36 for epoch 0; got 37$"),
        (lambda epoch: [-1, 3], "for epoch 0; got -1$"),
        (lambda epoch: [0.5], r"got float64 of shape \(1,\)"),
        (lambda epoch: [], "got none$"),
        (lambda epoch: 3, "got 3$"),
        (
            torch.utils.data.BatchSampler(range(37), 4, drop_last=False),
            "got <.*BatchSampler.*; pass the sampler in it, and batch_size=",
        ),
    ],
)
def test_wrong_samplers(flat: Path, sampler: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        loader_of(flat, sampler=sampler)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"sampler": Weighted({}, replacement=False), "epoch_size": 38},
            "expected epoch_size= of 1 to 37, got 38",
        ),
        (
            {"sampler": Weighted({"ant": 2.0}, replacement=False), "drop_last": True},
            "got no epoch_size=; pass one of",
        ),
        ({"epoch_size": 0}, "epoch_size: expected 1 to"),
        (
            {"epoch_size": 3, "drop_last": True},
            "epoch 0 of .* has 3 samples. epoch_size=3 counts samples, .* pass a smaller batch_size, or",
        ),
        ({"sampler": lambda epoch: range(3), "drop_last": True}, "epoch 0 of .* has 3 samples"),
    ],
)
def test_wrong_options_of_epochs(flat: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        loader_of(flat, **options)


def test_without_replacement_each_part_draws_equally_many(flat: Path) -> None:
    sampler = fastpipe.Weighted({}, replacement=False)
    options: dict[str, Any] = {"sampler": sampler, "partition": 2}
    with pytest.raises(
        ConfigError, match=r"epoch_size= of 1 to 36, with the 2 parts of partition=, each .* got 37"
    ):
        loader_of(flat, epoch_size=37, **options)
    ids = ids_of(loader_of(flat, epoch_size=36, **options))
    assert len(ids) == len(set(ids)) == 36
    options["sampler"] = fastpipe.Repeated(3, sampler)
    with pytest.raises(
        ConfigError,
        match=r"epoch_size= of 1 to 108, with the 2 parts of partition=, each .* got 109",
    ):
        loader_of(flat, epoch_size=109, **options)
    assert len(set(ids_of(loader_of(flat, epoch_size=108, **options)))) == 36


def test_soft_labels_need_labels_of_the_chosen_samples_only(tmp_path: Path) -> None:
    data = io.BytesIO()
    smooth_noise(20, 16, seed=0).save(data, "JPEG")
    with fastpipe.Writer(tmp_path / "data", classes=["ant", "bee"]) as writer:
        for number in range(30):
            writer.add(data.getvalue(), label=(0, 1, None)[number % 3])
    augment = fastpipe.Augment.imagenet(mixup=0.2)
    data = fastpipe.open(tmp_path / "data")
    labelled = data.select(data["label"] >= 0)
    cases: list[tuple[fastpipe.Dataset, Any]] = [
        (data.only(["bee"]), None),
        (labelled, None),
        (data, fastpipe.Weighted({"ant": 2.0})),
        (data, fastpipe.Weighted(fastpipe.balanced(data))),
        (data, fastpipe.PerClass(2)),
        (data, fastpipe.Repeated(2, fastpipe.PerClass(1))),
        (data.with_labels(np.arange(30) % 2), None),
    ]
    for chosen, sampler in cases:
        with loader_of(chosen, augment=augment, sampler=sampler) as loader:
            for _, labels in loader:
                assert torch.allclose(labels.sum(1), torch.ones(len(labels)))
    with pytest.raises(
        ConfigError,
        match=r"samples without labels \(10 of 30 of .*Leave them out with data\.select",
    ):
        loader_of(data, augment=augment)
    with pytest.raises(ConfigError, match=r"samples without labels \(1 of 21 of "):
        loader_of(data.select([*np.flatnonzero(data["label"] >= 0), 2]), augment=augment)
