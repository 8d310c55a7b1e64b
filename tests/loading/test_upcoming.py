"""Tests of beginning the next epoch early: it is the same epoch, and it costs the one at hand nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.batches.same_batches import assert_same
from support.pictures.drawn import FLAT_IMAGES

import fastpipe
from fastpipe.engine.engine import Engine
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.epoch import EpochPlan


def epoch_of(dataset: Path, epoch: int) -> list[torch.Tensor]:
    """An epoch, by a loader that never saw another."""
    with fastpipe.loader(dataset, 10, size=16, drop_last=False, num_workers=1) as loader:
        loader.set_epoch(epoch)
        return [images for images, _ in loader]


def test_epochs_that_were_begun_early_are_the_same(flat: Path) -> None:
    with fastpipe.loader(flat, 10, size=16, drop_last=False, num_workers=2) as loader:
        for epoch in range(4):
            assert_same([images for images, _ in loader], epoch_of(flat, epoch))
        assert loader.stats().images_decoded > loader.stats().samples  # epoch 4 has begun
        assert_same([images for images, _ in loader], epoch_of(flat, 4))


def test_who_iterates_once_decodes_nothing_beyond(flat: Path) -> None:
    with fastpipe.loader(flat, 10, size=16, drop_last=False, num_workers=2) as loader:
        list(loader)
        assert loader.stats().images_decoded == FLAT_IMAGES


def test_an_interrupt_while_the_next_epoch_begins_loses_no_batch(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_no_memory_for_the_next_epoch_is_not_this_ones_concern(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_batch_that_cannot_be_planned_is_told_in_its_turn(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
