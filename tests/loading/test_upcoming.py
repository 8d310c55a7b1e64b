"""Tests of beginning the next epoch early: it is the same epoch, and it costs the one at hand nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.datasets.packed import damage
from support.pictures.drawn import FLAT_IMAGES
from support.running.process_state import threads, threads_at_rest

import fastpipe
from fastpipe.engine.engine import Engine
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.epoch import EpochPlan


def epoch_of(dataset: Path, epoch: int) -> list[torch.Tensor]:
    """An epoch, by a loader that never saw another."""
    with fastpipe.loader(dataset, 10, size=16, drop_last=False, num_workers=1) as loader:
        loader.set_epoch(epoch)
        return [images for images, _ in loader]


def assert_same(got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)


def test_epochs_that_were_begun_early_are_the_same(flat: Path) -> None:
    with fastpipe.loader(flat, 10, size=16, drop_last=False, num_workers=2) as loader:
        for epoch in range(4):
            assert_same([images for images, _ in loader], epoch_of(flat, epoch))
        assert loader.stats().images_decoded > loader.stats().samples  # epoch 4 has begun
        assert_same([images for images, _ in loader], epoch_of(flat, 4))


@pytest.mark.parametrize("other", [0, 2, 9])
def test_another_epoch_than_the_one_begun_can_be_asked_for(flat: Path, other: int) -> None:
    with fastpipe.loader(flat, 10, size=16, drop_last=False, num_workers=2) as loader:
        list(loader)
        list(loader)
        loader.set_epoch(other)
        assert_same([images for images, _ in loader], epoch_of(flat, other))
        assert_same([images for images, _ in loader], epoch_of(flat, other + 1))


def test_who_iterates_once_decodes_nothing_beyond(flat: Path) -> None:
    with fastpipe.loader(flat, 10, size=16, drop_last=False, num_workers=2) as loader:
        list(loader)
        assert loader.stats().images_decoded == FLAT_IMAGES


def test_an_older_iterator_begins_nothing_behind_a_newer_one(flat: Path) -> None:
    with fastpipe.loader(flat, 10, size=16, drop_last=False, num_workers=2) as loader:
        list(loader)
        older = iter(loader)
        next(older)
        newer = iter(loader)
        rest = list(older)
        assert len(rest) == 3
        assert_same([images for images, _ in newer], epoch_of(flat, 2))
        assert_same([images for images, _ in loader], epoch_of(flat, 3))


def test_a_bad_sample_of_the_next_epoch_does_not_end_this_one(flat: Path, copied: Callable[[Path], Path]) -> None:
    dataset = copied(flat)
    with fastpipe.loader(dataset, 10, size=16, shuffle=False, drop_last=False, num_workers=2) as loader:
        list(loader)
        this_epoch = iter(loader)
        next(this_epoch)
        next(this_epoch)
        damage(dataset, 0)  # its batch is out, and the next epoch has not begun
        assert len(list(this_epoch)) == 2
        assert loader.stats().images_decoded > 2 * FLAT_IMAGES  # now it has
        with pytest.raises(fastpipe.SampleError):
            next(iter(loader))


def test_an_interrupt_while_the_next_epoch_begins_loses_no_batch(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fastpipe.loader(flat, 10, size=16, drop_last=False, num_workers=2) as loader:
        list(loader)
        this_epoch = iter(loader)
        next(this_epoch)
        next(this_epoch)
        submit = Engine.submit

        def interrupted(*args: object, **kwargs: object) -> object:
            submit(*args, **kwargs)  # type: ignore[arg-type]
            raise KeyboardInterrupt

        monkeypatch.setattr(Engine, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(this_epoch)
        monkeypatch.undo()
        assert_same([images for images, _ in loader], epoch_of(flat, 2))


def test_no_memory_for_the_next_epoch_is_not_this_ones_concern(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fastpipe.loader(flat, 10, size=16, drop_last=False, num_workers=2) as loader:
        list(loader)
        this_epoch = iter(loader)
        first = [next(this_epoch)[0], next(this_epoch)[0]]

        def refuse(*_: object, **__: object) -> object:
            raise MemoryError

        monkeypatch.setattr(Engine, "submit", refuse)
        rest = [images for images, _ in this_epoch]
        monkeypatch.undo()
        assert_same(first + rest, epoch_of(flat, 1))
        assert_same([images for images, _ in loader], epoch_of(flat, 2))


def test_dropping_the_loader_ends_the_threads_of_what_was_begun(flat: Path) -> None:
    before = threads_at_rest()
    loader = fastpipe.loader(flat, 10, size=16, drop_last=False, num_workers=3)
    for _ in range(3):
        list(loader)
    assert threads() > before
    del loader
    assert threads_at_rest() == before


def test_a_batch_that_cannot_be_planned_is_told_in_its_turn(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = EpochPlan.batch

    def fails(plan: EpochPlan, number: int) -> BatchPlan:
        if number == 2:
            raise fastpipe.DatasetError("no third batch")
        return batch(plan, number)

    with fastpipe.loader(flat, 10, size=16, drop_last=False, num_workers=2) as loader:
        monkeypatch.setattr(EpochPlan, "batch", fails)
        batches = iter(loader)
        got = [next(batches)[0], next(batches)[0]]
        with pytest.raises(fastpipe.DatasetError, match="no third batch"):
            next(batches)
        with pytest.raises(fastpipe.EngineError, match="an error ended this epoch"):
            next(batches)
        monkeypatch.undo()
        assert_same(got, epoch_of(flat, 0)[:2])
        assert_same([images for images, _ in loader], epoch_of(flat, 1))
