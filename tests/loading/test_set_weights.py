"""Tests of Loader.set_weights: weights that follow from losses, epoch after epoch, and runs that go on after an end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fastpipe
from fastpipe.errors import ConfigError

EPOCHS = 5
STOPPED = 3, 4  # in this epoch, after this batch
Weights = NDArray[np.float64]


def train(loader: fastpipe.Loader, epochs: int, saved: dict[str, Any], on_batch: Callable[[str, Any], None]) -> None:
    """The weights of an epoch follow from the losses so far, and these from the pixels. `saved` is what a checkpoint
    has, and what it goes on from.
    """
    losses, weights = np.array(saved["losses"]), np.array(saved["weights"])
    while (epoch := loader.state_dict()["epoch"]) < epochs:
        for batch in loader:
            mean = batch.images.float().mean(dim=(1, 2, 3)).numpy()
            losses[batch.ids] = 0.02 + mean / 255 + 0.1 * epoch * (batch.labels.numpy() == 1)
            row = hashlib.sha256(batch.images.contiguous().numpy().tobytes()).hexdigest()
            state = {"loader": loader.state_dict(), "losses": losses.tolist(), "weights": weights.tolist()}
            on_batch(f"{batch.epoch} {batch.ids.tolist()} {row}", state)
        weights = losses**4
        loader.set_weights(weights)


def loader_of(data: Any, sampler: Any, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(data, 6, **{"size": 12, "num_workers": 1, "seed": 5, "sampler": sampler, **options})


def unweighted(count: int) -> dict[str, Any]:
    return {"losses": [1.0] * count, "weights": [1.0] * count}


def undisturbed(data: Any, repeats: int = 1, **options: Any) -> tuple[list[str], dict[str, Any], int]:
    """The batches of all epochs, the checkpoint in the middle of one, and how many batches came before it."""
    lines: list[str] = []
    kept: dict[str, Any] = {}

    def on_batch(line: str, state: dict[str, Any]) -> None:
        lines.append(line)
        if (state["loader"]["epoch"], state["loader"]["batches"]) == STOPPED:
            kept.update(json.loads(json.dumps(state)), done=len(lines))

    with loader_of(data, fastpipe.Repeated(repeats, fastpipe.Weighted(np.ones(len(data)))), **options) as loader:
        train(loader, EPOCHS, unweighted(len(data)), on_batch)
    return lines, kept, kept["done"]


@pytest.fixture(scope="module")
def run(flat: Path) -> tuple[list[str], dict[str, Any], int]:
    return undisturbed(fastpipe.open(flat))


def test_weights_follow_from_losses(run: tuple[list[str], dict[str, Any], int], flat: Path) -> None:
    """Samples with large losses come more often, epoch after epoch."""
    lines, saved, _ = run
    ids = [json.loads(line[line.index("[") : line.index("]") + 1]) for line in lines]
    last = np.bincount(np.concatenate(ids[-6:]), minlength=37)
    assert np.bincount(np.concatenate(ids[:6]), minlength=37).max() == 1, "at first all weights are the same"
    heavy = np.argsort(saved["weights"])
    assert last[heavy[-10:]].sum() > 2 * last[heavy[:10]].sum()
    assert len(lines) == EPOCHS * 6


@pytest.mark.parametrize("where", ["Weighted", "set_weights"])
def test_another_loader_goes_on_in_the_middle_of_an_epoch(
    run: tuple[list[str], dict[str, Any], int], flat: Path, where: str
) -> None:
    """With other threads; a process of its own does the same: test_state.py."""
    lines, saved, done = run
    first = saved["weights"] if where == "Weighted" else np.ones(37)
    rest: list[str] = []
    with loader_of(flat, fastpipe.Weighted(first), num_workers=2, prefetch_factor=4) as loader:
        if where == "set_weights":
            loader.set_weights(saved["weights"])
        loader.load_state_dict(saved["loader"])
        train(loader, EPOCHS, saved, lambda line, _: rest.append(line))
    assert 0 < done < len(lines)
    assert rest == lines[done:]


def mixed(flat: Path, textured: Path) -> fastpipe.Dataset:
    return fastpipe.mix({flat: 0.7, textured: 0.3})


def selected(flat: Path, textured: Path) -> fastpipe.Dataset:
    return fastpipe.open(flat).select(range(36, 4, -1))


def joined(flat: Path, textured: Path) -> fastpipe.Dataset:
    return fastpipe.concat(flat, textured)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (mixed, {"partition": 2}),
        (mixed, {"repeats": 2, "epoch_size": 40}),
        (selected, {"partition": 2}),
        (joined, {"repeats": 2}),
        (joined, {"shuffle": False, "epoch_size": 40}),
    ],
)
def test_any_dataset_goes_on(
    flat: Path, textured: Path, make: Callable[[Path, Path], fastpipe.Dataset], options: dict[str, Any]
) -> None:
    data = make(flat, textured)
    lines, saved, done = undisturbed(data, **options)
    rest: list[str] = []
    repeats = options.get("repeats", 1)
    others = {name: value for name, value in options.items() if name != "repeats"}
    sampler = fastpipe.Repeated(repeats, fastpipe.Weighted(saved["weights"]))
    with loader_of(make(flat, textured), sampler, **others) as loader:
        loader.load_state_dict(saved["loader"])
        train(loader, EPOCHS, saved, lambda line, _: rest.append(line))
    assert rest == lines[done:]


def test_ranks_go_on(run: tuple[list[str], dict[str, Any], int], flat: Path) -> None:
    """Two ranks have the batches of one, all from the same weights."""
    lines, saved, done = run
    ids = []
    for rank in (0, 1):
        sampler = fastpipe.Weighted(saved["weights"])
        with fastpipe.loader(
            flat, 3, size=12, num_workers=1, seed=5, sampler=sampler, rank=rank, world_size=2
        ) as loader:
            loader.load_state_dict(saved["loader"])
            ids.append([batch.ids.tolist() for batch in loader])
    expected = [json.loads(line[line.index("[") : line.index("]") + 1]) for line in lines[done : done + 2]]
    assert [first + second for first, second in zip(*ids, strict=True)] == expected


def test_other_weights_than_those_of_the_state_are_refused(
    run: tuple[list[str], dict[str, Any], int], flat: Path
) -> None:
    lines, saved, done = run
    state, weights = saved["loader"], saved["weights"]
    mark = json.loads(state["order"])["weights"]
    what = r"\(a hash of them: pass those of that epoch, to fastpipe.Weighted or before to loader.set_weights\)"
    with loader_of(flat, fastpipe.Weighted(np.ones(37))) as loader:
        with pytest.raises(ConfigError, match=rf"^load_state_dict: .* weights was '{mark}' and is now '\w+' {what}"):
            loader.load_state_dict(state)
        loader.set_weights(weights)
        loader.load_state_dict(state)
        loader.set_weights(np.ones(37))  # now those of no epoch
        with pytest.raises(ConfigError, match=rf"weights was '{mark}' and is now"):
            next(iter(loader))
        loader.set_weights(weights)
        assert next(iter(loader)).ids.tolist() == json.loads(lines[done][2 : lines[done].index("]") + 1])
    with loader_of(flat, None) as loader:
        with pytest.raises(ConfigError, match=rf"weights was '{mark}' and is now None {what}"):
            loader.load_state_dict(state)
        assert len(list(loader)) == 6, "as if no state had been loaded"


def epoch_of(loader: fastpipe.Loader) -> list[int]:
    return [number for batch in loader for number in batch.ids.tolist()]


def one(number: int) -> Weights:
    """Weights with which all draws are of one sample."""
    return np.eye(37)[number]


def test_an_epoch_that_runs_keeps_its_weights(flat: Path) -> None:
    """Also if the next one was begun early, and whatever is set in between."""
    with loader_of(flat, fastpipe.Weighted(one(3)), prefetch_factor=8) as loader:
        for _ in range(2):
            assert set(epoch_of(loader)) == {3}
        running = iter(loader)
        first = next(running)
        for number in range(4, 20):  # the last one counts
            loader.set_weights(one(number))
        assert set(first.ids.tolist()) == {3}
        assert json.loads(loader.state_dict()["order"])["weights"] == mark_of(flat, one(3))
        assert {number for batch in running for number in batch.ids.tolist()} == {3}
        assert json.loads(loader.state_dict()["order"])["weights"] == mark_of(flat, one(19))
        assert set(epoch_of(loader)) == {19}


def mark_of(data: Path, weights: Weights) -> Any:
    with loader_of(data, fastpipe.Weighted(weights)) as loader:
        return json.loads(loader.state_dict()["order"])["weights"]


def test_weights_of_any_form(flat: Path) -> None:
    """By class, by key and by sample; what the sampler was made with does not matter."""
    data = fastpipe.open(flat)
    bees = np.flatnonzero(data["label"] == data.class_to_idx["bee"])
    forms: Iterator[Any] = iter(
        [
            {"ant": 0, "cow": 0},
            {key: 0.0 for number, key in enumerate(data["key"][:]) if number not in bees},
            np.isin(np.arange(37), bees).astype(np.float32),
            [float(number in bees) for number in range(37)],
        ]
    )
    with loader_of(data, fastpipe.Weighted(np.ones(37))) as loader:
        for weights in forms:
            loader.set_weights(weights)
            loader.set_epoch(1)
            assert set(epoch_of(loader)) == set(bees.tolist())


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (np.ones(36), r"expected a number at least 0 for each of 37 samples.*got shape \(36,\)"),
        (-np.ones(37), "got -1.0 for sample 0"),
        (np.zeros(37), "expected a weight above 0, got only 0"),
        ({"gnu": 1}, "no samples with the key 'gnu'.* Nor is 'gnu' a class"),
        (None, "got None"),
        (np.arange(37) > 30, "draws each sample once at most: expected epoch_size= of 1 to 6, got 30"),
    ],
)
def test_wrong_weights_change_nothing(flat: Path, weights: Any, says: str) -> None:
    with (
        loader_of(flat, fastpipe.Weighted(np.arange(1, 38), replacement=False), epoch_size=30) as loader,
        loader_of(flat, fastpipe.Weighted(np.arange(1, 38), replacement=False), epoch_size=30) as other,
    ):
        with pytest.raises(ConfigError, match=says):
            loader.set_weights(weights)
        assert loader.state_dict() == other.state_dict()
        assert epoch_of(loader) == epoch_of(other)


@pytest.mark.parametrize(
    "sampler", [None, fastpipe.Repeated(2), fastpipe.Sequential(), fastpipe.PerClass(samples=2), range(36)]
)
def test_a_loader_that_draws_by_no_weights_says_so(flat: Path, sampler: Any) -> None:
    with (
        loader_of(flat, sampler) as loader,
        pytest.raises(
            ConfigError, match=r"^set_weights: .* no weights; pass sampler=fastpipe.Weighted\(\.\.\.\) to it"
        ),
    ):
        loader.set_weights(np.ones(37))
