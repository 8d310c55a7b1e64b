"""At an epoch's end the first batch of the next epoch is on its way to the device; nothing else changes by that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from support.batches.same_batches import assert_same
from support.datasets.packed import damage
from support.devices.fake_stream import FakeStream
from support.pictures.drawn import FLAT_IMAGES

import fastpipe
from fastpipe.device.transfer import Transfer
from fastpipe.errors import SampleError
from fastpipe.loading.prefetcher import Prefetcher
from fastpipe.plan.host_batch import HostBatch

BATCH = 5
BATCHES = FLAT_IMAGES // BATCH
Batches = list[tuple[torch.Tensor, torch.Tensor]]


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStream]:
    """The stream that every loader of the test gets; batches are made whenever one looks."""
    fake = FakeStream()
    monkeypatch.setattr(sys.modules["fastpipe.loading.factory"], "stream_of", lambda device: fake)
    with mock.patch.object(Prefetcher, "has_ready_batch", made):
        yield fake


def made(prefetcher: Prefetcher) -> bool:
    prefetcher.fill(prefetcher.capacity)
    return True


def loader_of(dataset: Path, **options: object) -> fastpipe.Loader:
    return fastpipe.loader(dataset, BATCH, size=8, num_workers=2, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def epochs(flat: Path) -> list[Batches]:
    """Four epochs, each by a loader on the CPU that never saw another."""
    found = []
    for epoch in range(4):
        with loader_of(flat) as loader:
            loader.set_epoch(epoch)
            found.append(list(loader))
    return found


def test_the_next_epochs_first_batch_is_queued_with_the_last_of_this_one(
    flat: Path, stream: FakeStream, epochs: list[Batches]
) -> None:
    with loader_of(flat) as loader:
        assert_same(list(loader), epochs[0])
        assert stream.log.count("begin") == BATCHES, "who iterates once gets nothing beyond"
        for epoch in (1, 2, 3):
            got = []
            for number, batch in enumerate(loader, start=1):
                got.append(batch)
                assert stream.log.count("begin") == epoch * BATCHES + number + 1, "always one ahead"
            assert_same(got, epochs[epoch])


def test_on_the_cpu_nothing_is_queued_ahead(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    begin = Transfer.begin
    monkeypatch.setattr(
        Transfer, "begin", lambda self, batch: begun.append(batch.number) or begin(self, batch)
    )
    with loader_of(flat) as loader:
        for _ in range(3):
            list(loader)
    assert begun == 3 * list(range(BATCHES))


@pytest.mark.parametrize("other", [0, 2, 3])
def test_another_epoch_than_the_one_queued(
    flat: Path, stream: FakeStream, epochs: list[Batches], other: int
) -> None:
    with loader_of(flat) as loader:
        list(loader)
        list(loader)  # a batch of epoch 2 is queued
        loader.set_epoch(other)
        assert_same(list(loader), epochs[other])


def test_states_are_those_of_a_loader_on_the_cpu_and_are_gone_on_from(
    flat: Path, stream: FakeStream, epochs: list[Batches]
) -> None:
    with loader_of(flat) as loader:
        states = [loader.state_dict() for _ in range(3) for _ in loader]
        assert [(state["epoch"], state["batches"]) for state in states] == [
            (epoch, number) for epoch in range(3) for number in range(1, BATCHES + 1)
        ]
        for state in states:  # in this loader, whatever it has queued
            loader.load_state_dict(state)
            expected = epochs[state["epoch"]][state["batches"] :] + epochs[state["epoch"] + 1]
            assert_same([*loader, *loader], expected)


def test_an_older_iterator_queues_nothing_behind_a_newer_one(
    flat: Path, stream: FakeStream, epochs: list[Batches]
) -> None:
    with loader_of(flat) as loader:
        list(loader)
        older = iter(loader)
        first = next(older)
        newer = iter(loader)
        also_first = next(newer)
        assert_same([first, *older], epochs[1])
        assert_same([also_first, *newer], epochs[2])
        assert_same(list(loader), epochs[3])


def test_a_bad_sample_of_the_next_epoch_is_told_in_its_turn(
    flat: Path, stream: FakeStream, copied: Callable[[Path], Path]
) -> None:
    dataset = copied(flat)
    with loader_of(dataset, train=False) as loader:
        list(loader)
        this_epoch = iter(loader)
        next(this_epoch)
        damage(dataset, 0)
        assert len(list(this_epoch)) == len(loader) - 1
        with pytest.raises(SampleError):
            next(iter(loader))


def test_an_interrupt_while_the_next_epochs_batch_is_queued_loses_no_batch(
    flat: Path, stream: FakeStream, epochs: list[Batches]
) -> None:
    with loader_of(flat) as loader:
        list(loader)
        this_epoch = iter(loader)
        for _ in range(BATCHES - 1):
            next(this_epoch)
        with (
            mock.patch.object(Transfer, "begin", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            next(this_epoch)  # its own batch is queued already
        assert_same(list(loader), epochs[2])


@pytest.mark.parametrize("number", [0, BATCHES // 2, BATCHES - 1])
def test_a_batch_that_cannot_be_queued_is_told_in_its_turn(
    flat: Path, stream: FakeStream, number: int
) -> None:
    """Also the last one, which the end of the epoch must not hide."""
    begin = Transfer.begin

    def failing(transfer: Transfer, batch: HostBatch) -> object:
        if batch.number == number:
            raise ValueError("the augmentation failed")
        return begin(transfer, batch)

    with loader_of(flat) as loader, mock.patch.object(Transfer, "begin", failing):
        batches = iter(loader)
        for _ in range(number):
            next(batches)
        with pytest.raises(ValueError, match="the augmentation failed"):
            next(batches)
