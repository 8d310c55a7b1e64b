"""Loops over epochs and loaded states that are not what their writer means: named in the log."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from support.programs.habits import Training, loader_of, train

import fastpipe

pytestmark = pytest.mark.usefixtures("warned_anew")


def test_an_iterator_for_each_batch(flat: Path, log: pytest.LogCaptureFixture) -> None:
    with loader_of(flat) as loader:
        for _ in range(3):
            next(iter(loader))
        list(loader)
        assert log.text == ""
        for _ in range(20):
            next(iter(loader))
    assert log.text.count("epochs in a row ended with their first batch") == 1
    assert "batches = iter(loader), and next(batches) in the loop" in log.text


def test_an_iterator_that_is_used_for_several_epochs(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    """The second loop is over at once, and a program believes that it has trained an epoch."""
    loader = loader_of(flat)
    for _ in range(2):
        for _batch in loader:
            pass
    batches = iter(loader)
    assert len(list(batches)) == len(loader)
    assert log.text == ""
    for _ in range(2):
        assert not list(batches)
    assert log.text.count("a loop over iter(loader) gets no batch") == 1
    assert "For epoch 3 iterate over the loader itself" in log.text


def test_a_loader_that_is_cycled(flat: Path, log: pytest.LogCaptureFixture) -> None:
    """itertools.cycle gives the batches of the first epoch again."""
    for _ in loader_of(flat, train=False):
        pass
    loader = loader_of(flat)
    cycled = itertools.cycle(loader)
    first = [next(cycled).ids.tolist() for _ in range(len(loader))]
    assert log.text == ""
    assert next(cycled).ids.tolist() == first[0]
    assert "itertools.cycle(loader) keeps all batches" in log.text
    assert "while True: yield from loader" in log.text


def test_iterators_that_give_batches_in_turn_are_named(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    with loader_of(flat) as loader:
        list(zip(loader, loader, strict=False))
    assert (
        log.text.count("two iterators of one loader give batches in turn, of epochs 0 and 1") == 1
    )


def test_iterators_one_after_the_other_are_not_named(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    """Also where an epoch was left early and its iterator is kept, or a first batch is looked at."""
    with loader_of(flat) as loader:
        kept = iter(loader)
        next(kept)
        list(loader)
        for number, _ in enumerate(loader):
            if number == 1:
                next(iter(loader))
    assert "give batches in turn" not in log.text


def test_a_loop_in_a_loop_over_one_loader(flat: Path, log: pytest.LogCaptureFixture) -> None:
    words = (
        "the loop over epoch 0 goes on after a newer loop over the same loader has begun epoch 1"
    )
    with loader_of(flat) as loader:
        for step, _ in enumerate(loader):
            if step == 1:
                list(loader)
            if step == 2:
                assert loader.state_dict()["epoch"] == 2
    assert log.text.count(words) == 1
    assert "make another loader: fastpipe.loader(...)" in log.text


def test_a_loop_that_ends_after_a_newer_one(flat: Path, log: pytest.LogCaptureFixture) -> None:
    with loader_of(flat) as loader:
        older = iter(loader)
        for _ in range(len(loader)):
            next(older)
        list(loader)
        assert "goes on after a newer loop" not in log.text
        assert next(older, None) is None
    assert log.text.count("goes on after a newer loop") == 1


def test_loops_that_are_not_one_in_another(flat: Path, log: pytest.LogCaptureFixture) -> None:
    with loader_of(flat) as loader:
        next(iter(loader))
        loader.set_epoch(0)
        for _ in range(2):
            for step, _ in enumerate(loader):
                if step == 1:
                    break
        list(loader)
    with loader_of(flat, train=False) as loader:
        for _ in loader:
            list(loader)
    assert "goes on after a newer loop" not in log.text


def test_loaders_that_are_made_anew_for_each_epoch(
    flat: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        with fastpipe.loader(flat, 8, size=16, num_workers=1) as loader:
            next(iter(loader))
    (message,) = [r.message for r in caplog.records if "Make the loader once" in r.message]
    assert "has made 8 loaders" in message
    caplog.clear()
    # Loaders that come to a second epoch, other seeds, and evaluation are as they should be.
    for seed in range(10):
        with fastpipe.loader(flat, 8, size=16, num_workers=1, seed=seed) as loader:
            next(iter(loader))
    for _ in range(10):
        with fastpipe.loader(flat, 8, size=16, num_workers=1) as loader:
            for _ in range(2):
                list(loader)
    for _ in range(10):
        with fastpipe.loader(flat, 8, size=16, num_workers=1, train=False) as loader:
            list(loader)
    assert not [r.message for r in caplog.records if "Make the loader once" in r.message]


def test_a_state_that_is_loaded_in_a_running_loop(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    with loader_of(flat) as loader:
        for number, _ in enumerate(loader):
            if number == 2:
                state = loader.state_dict()
                loader.load_state_dict(state)
        kept = iter(loader)
        next(kept)
        loader.load_state_dict(state)
        list(loader)
        assert log.text == ""
        for number, _ in enumerate(loader):
            if number in (4, 6):
                loader.load_state_dict(state)
    words = "this loop goes on at batch 5 of epoch 1, and the loaded position, batch 3 of epoch 0"
    assert log.text.count(words) == 1


def test_one_epoch_again_and_again(flat: Path, log: pytest.LogCaptureFixture) -> None:
    training_data, validation_data = fastpipe.open(flat).fold(0, of=4)
    with (
        loader_of(training_data) as loader,
        loader_of(validation_data, train=False) as evaluation,
    ):
        for epoch in range(6):
            loader.set_epoch(epoch // 2)
            evaluation.set_epoch(0)
            list(loader)
            list(evaluation)
        assert log.text == ""
        for _ in range(6):
            loader.set_epoch(1)
            list(loader)
    assert log.text.count("epoch 1 was gone through 3 times in a row") == 1


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (1, "begins epoch 1, which the training before has read"),
        (2, ""),
        (3, "begins epoch 3, so epochs are left out"),
    ],
)
def test_a_loop_over_epochs_that_begins_elsewhere_than_a_state(
    flat: Path, log: pytest.LogCaptureFixture, first: int, words: str
) -> None:
    with loader_of(flat) as loader:
        train(loader, epochs=2)
        at_the_end = loader.state_dict()
    with loader_of(flat) as loader:
        loader.load_state_dict(at_the_end)
        for epoch in range(first, first + 2):
            loader.set_epoch(epoch)
            train(loader)
    assert ("the loaded state is at the beginning of epoch 2" in log.text) == bool(words)
    assert words in log.text


def test_a_state_of_the_last_batch(flat: Path, log: pytest.LogCaptureFixture) -> None:
    with loader_of(flat) as loader:
        for _ in loader:
            at_the_last_batch = loader.state_dict()
    with loader_of(flat) as loader:
        loader.load_state_dict(at_the_last_batch)
        assert len([*loader]) == 0
        assert len([*loader]) == len(loader)
    count = len(loader)
    words = f"at the end of epoch 0: its {count} batches were handed out, so this loop gets none"
    assert log.text.count(words) == 1
    assert "loader.set_epoch(1) after load_state_dict" in log.text


def state_after_two_batches(data: Path) -> dict[str, Any]:
    with loader_of(data) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        return loader.state_dict()


@pytest.mark.parametrize(
    ("num_skipped", "is_named"), [(0, False), (1, False), (2, True), (3, False)]
)
def test_batches_that_a_state_has_left_out_are_skipped_again(
    flat: Path, log: pytest.LogCaptureFixture, num_skipped: int, is_named: bool
) -> None:
    training = Training()
    state = state_after_two_batches(flat)
    with loader_of(flat) as loader:
        loader.load_state_dict(state)
        for step, _batch in enumerate(loader):
            if step >= num_skipped:
                training.step()
    assert ("2 batches went by without a step of the optimizer" in log.text) == is_named


def test_gradients_that_are_accumulated_after_a_state(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    training = Training()
    state = state_after_two_batches(flat)
    with loader_of(flat) as loader:
        loader.load_state_dict(state)
        for step, _batch in enumerate(loader, 1):
            training.weight.square().sum().backward()
            if step % 2 == 0:
                training.optimizer.step()
                training.optimizer.zero_grad()
    assert log.text == ""


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    ("options", "has_new_optimizer", "is_named"),
    [({}, False, True), ({"seed": 1}, False, False), ({}, True, False)],
)
def test_a_second_loader_begins_with_the_first_epoch(
    flat: Path,
    log: pytest.LogCaptureFixture,
    options: dict[str, int],
    has_new_optimizer: bool,
    is_named: bool,
    momentum: float,
) -> None:
    training = Training(momentum)
    with loader_of(flat) as loader:
        for _ in range(2):
            for _batch in loader:
                training.step()
    if has_new_optimizer:
        training = Training(momentum)
    with loader_of(flat, **options) as second:
        for _batch in second:
            training.step()
    words = f"SGD has trained on {flat} before, with an earlier loader of seed=0"
    assert (words in log.text) == is_named
