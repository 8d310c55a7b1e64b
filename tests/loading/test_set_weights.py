"""Tests of Loader.set_weights: weights that follow from losses, epoch after epoch, and runs that go on after an end."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import fastpipe
from fastpipe.errors import ConfigError

EPOCHS = 5
STOPPED = 3, 4  # in this epoch, after this batch
Weights = NDArray[np.float64]


def loader_of(data: Any, sampler: Any, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(
        data, 6, **{"size": 12, "num_workers": 1, "seed": 5, "sampler": sampler, **options}
    )


def weights_of(epoch: int) -> Weights:
    """As they might follow from the losses so far."""
    return np.random.default_rng(epoch).random(37) ** 4


def lines_of(batches: Iterable[Any]) -> list[str]:
    return [
        f"{batch.ids.tolist()} {batch.images.contiguous().numpy().tobytes().hex()}"
        for batch in batches
    ]


class Run(NamedTuple):
    """The batches of all epochs, and a state in the middle of one, before the batch `done`."""

    lines: list[str]
    state: dict[str, Any]
    done: int


@pytest.fixture(scope="module")
def run(flat: Path) -> Run:
    """Each epoch has weights of its own. test_option_draws.py sets weights of all kinds of data."""
    lines: list[str] = []
    with loader_of(flat, fastpipe.Weighted(np.ones(37))) as loader:
        for epoch in range(EPOCHS):
            loader.set_weights(weights_of(epoch))
            batches = iter(loader)
            if epoch == STOPPED[0]:
                lines += lines_of(itertools.islice(batches, STOPPED[1]))
                state, done = json.loads(json.dumps(loader.state_dict())), len(lines)
            lines += lines_of(batches)
    return Run(lines, state, done)


@pytest.mark.parametrize("where", ["Weighted", "set_weights"])
def test_another_loader_goes_on_in_the_middle_of_an_epoch(run: Run, flat: Path, where: str) -> None:
    """With other threads."""
    weights = weights_of(STOPPED[0])
    with loader_of(
        flat,
        fastpipe.Weighted(weights if where == "Weighted" else np.ones(37)),
        num_workers=2,
        prefetch_factor=4,
    ) as loader:
        if where == "set_weights":
            loader.set_weights(weights)
        loader.load_state_dict(run.state)
        rest = lines_of(loader)
        loader.set_weights(weights_of(STOPPED[0] + 1))
        rest += lines_of(loader)
    assert rest == run.lines[run.done :]


def test_other_weights_than_those_of_the_state_are_refused(run: Run, flat: Path) -> None:
    state, weights = run.state, weights_of(STOPPED[0])
    mark = json.loads(state["order"])["weights"]
    what = r"\(a hash of them: pass those of that epoch, to fastpipe.Weighted or before to loader.set_weights\)"
    with loader_of(flat, fastpipe.Weighted(np.ones(37))) as loader:
        with pytest.raises(
            ConfigError, match=rf"^load_state_dict: .* weights was '{mark}' and is now '\w+' {what}"
        ):
            loader.load_state_dict(state)
        loader.set_weights(weights)
        loader.load_state_dict(state)
        loader.set_weights(np.ones(37))  # now those of no epoch
        with pytest.raises(ConfigError, match=rf"weights was '{mark}' and is now"):
            next(iter(loader))
        loader.set_weights(weights)
        assert lines_of(itertools.islice(loader, 1)) == [run.lines[run.done]]
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
    forms: list[Any] = [
        {"ant": 0, "cow": 0},
        {key: 0.0 for number, key in enumerate(data["key"][:]) if number not in bees},
        np.isin(np.arange(37), bees).astype(np.float32),
        [float(number in bees) for number in range(37)],
    ]
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
        ({"gnu": 1}, "no sample with the source path 'gnu', nor a class of this name"),
        (None, "got None"),
        (
            np.arange(37) > 30,
            "draws each sample once at most: expected epoch_size= of 1 to 6, got 30",
        ),
    ],
)
def test_wrong_weights_change_nothing(flat: Path, weights: Any, says: str) -> None:
    with (
        loader_of(
            flat, fastpipe.Weighted(np.arange(1, 38), replacement=False), epoch_size=30
        ) as loader,
        loader_of(
            flat, fastpipe.Weighted(np.arange(1, 38), replacement=False), epoch_size=30
        ) as other,
    ):
        with pytest.raises(ConfigError, match=says):
            loader.set_weights(weights)
        assert loader.state_dict() == other.state_dict()
        assert epoch_of(loader) == epoch_of(other)


@pytest.mark.parametrize(
    "sampler",
    [None, fastpipe.Repeated(2), fastpipe.Sequential(), fastpipe.PerClass(samples=2), range(36)],
)
def test_a_loader_that_draws_by_no_weights_says_so(flat: Path, sampler: Any) -> None:
    with (
        loader_of(flat, sampler) as loader,
        pytest.raises(
            ConfigError,
            match=r"^set_weights: .* no weights; pass sampler=fastpipe.Weighted\(\.\.\.\) to it",
        ),
    ):
        loader.set_weights(np.ones(37))
