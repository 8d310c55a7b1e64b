"""Batches on their way to a device: in order, ahead of the loop, and no memory is used again too early."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any
from unittest import mock

import kornia.augmentation
import numpy as np
import pytest
import torch
from support.datasets.packed import damage
from support.devices.fake_stream import FakeMark, FakeStream
from support.pictures.drawn import FLAT_IMAGES

import fastpipe
from fastpipe.device.streams import Stream
from fastpipe.errors import EngineError, SampleError
from fastpipe.loading import factory
from fastpipe.loading.prefetcher import Prefetcher

BATCH = 5
Batches = list[tuple[torch.Tensor, torch.Tensor]]
BATCHES = FLAT_IMAGES // BATCH


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> FakeStream:
    """The stream that every loader of the test gets."""
    fake = FakeStream()
    monkeypatch.setattr(factory, "stream_of", lambda device: fake)
    return fake


def loader_of(dataset: Path, **options: object) -> fastpipe.Loader:
    return fastpipe.loader(dataset, BATCH, size=8, num_workers=2, prefetch_factor=2, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def on_the_cpu(flat: Path) -> Batches:
    """The batches that a loader gives without a stream."""
    with fastpipe.loader(flat, BATCH, size=8, num_workers=1) as loader:
        return list(loader)


def test_the_next_batch_is_queued_before_one_is_handed_out(
    on_the_cpu: Batches, flat: Path, stream: FakeStream
) -> None:
    """While a training step has its batch, the pixels of the one after it are on the device already."""
    queued: list[torch.Tensor] = []
    copy = stream.copy

    def copy_and_keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim == 4:  # else labels and the like
            queued.append(copy(tensor).permute(0, 3, 1, 2))
        return copy(tensor)

    stream.copy = copy_and_keep  # type: ignore[method-assign]
    with (
        loader_of(flat) as loader,
        mock.patch.object(Prefetcher, "has_ready_batch", return_value=True),
    ):
        for number, (images, labels) in enumerate(loader, start=1):
            assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
            assert images.is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(images, on_the_cpu[number - 1][0])
            assert torch.equal(labels, on_the_cpu[number - 1][1])
            assert len(queued) == min(number + 1, BATCHES)
            assert torch.equal(queued[-1], on_the_cpu[len(queued) - 1][0])
    assert stream.log.count("begin") == stream.log.count("hand over") == BATCHES


@pytest.mark.parametrize(("channels", "dtype"), [("gray", torch.uint16), ("rgba", torch.float32)])
def test_batches_of_other_forms_are_those_of_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channels: str, dtype: torch.dtype
) -> None:
    """The second pictures, too, which are copied with the small arrays."""
    with fastpipe.Writer(tmp_path / "packed", fields={"depth": "image"}) as writer:
        for number in range(9):
            deep = np.random.default_rng(number).integers(0, 2**16, (2, 12, 12), dtype=np.uint16)
            writer.add(deep[0], depth=deep[1])
    options: dict[str, Any] = {"size": 8, "num_workers": 1, "channels": channels, "dtype": dtype}
    options["fields"] = ["image", "depth", "id"]
    found = []
    for streams in (Stream, FakeStream):
        monkeypatch.setattr(factory, "stream_of", lambda device, streams=streams: streams())
        with fastpipe.loader(tmp_path / "packed", 4, **options) as loader:
            found.append([batch for _ in range(3) for batch in loader])
    for batch, expected in zip(*found, strict=True):
        assert batch.keys() == expected.keys()
        assert (batch["image"].dtype, batch["depth"].dtype) == (dtype, torch.uint16)
        assert all(torch.equal(batch[key], expected[key]) for key in batch)


def test_a_slot_is_not_lent_again_before_it_has_been_copied(
    on_the_cpu: Batches, flat: Path, stream: FakeStream
) -> None:
    """A device that is late: the copy is made only when the mark after it is done."""
    late: list[tuple[int, torch.Tensor]] = []

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        late.append(
            (tensor.data_ptr(), torch.empty_like(tensor))
        )  # an address keeps no memory, as on a device
        return late[-1][1]

    def catch_up() -> None:
        for address, target in late:
            ctypes.memmove(target.data_ptr(), address, target.nbytes)
        late.clear()
        for mark in stream.marks:
            mark.is_done = True

    stream.at_once = False
    stream.copy = copy  # type: ignore[method-assign]
    with loader_of(flat) as loader:
        batches = list(loader)
        catch_up()
        for (images, labels), (expected, numbers) in zip(batches, on_the_cpu, strict=True):
            assert torch.equal(images, expected)
            assert torch.equal(labels, numbers)


@pytest.mark.parametrize("moved", [False, True])
def test_all_memory_of_a_batch_is_handed_over_once(
    tmp_path: Path, stream: FakeStream, moved: bool
) -> None:
    """Else the device could use it again while the training loop still reads it: masks moved by kornia, too."""
    with fastpipe.Writer(tmp_path / "data", fields={"seg": "mask", "box": "boxes"}) as writer:
        for _ in range(BATCH):
            writer.add(
                np.zeros((9, 9, 3), np.uint8),
                label=0,
                seg=np.ones((9, 9), np.uint8),
                box=[[0, 0, 9, 9]],
            )
    keys = ["input", "mask", "bbox_xyxy"]
    flip = kornia.augmentation.RandomHorizontalFlip(p=1.0)
    augment = kornia.augmentation.AugmentationSequential(flip, data_keys=keys) if moved else None
    fields = ("image", "label", "id", "valid", "seg", "box")
    with loader_of(tmp_path / "data", fields=fields, augment=augment) as loader:
        batch = next(iter(loader))
    tensors = [*(batch[name] for name in fields[:-1]), *batch["box"]]
    (handed,) = stream.handed
    assert {tensor.untyped_storage().data_ptr() for tensor in tensors} == set(handed)
    assert len(handed) == len(set(handed))


def test_slots_come_back_once_they_have_been_copied(flat: Path, stream: FakeStream) -> None:
    with loader_of(flat) as loader:
        for _ in range(6):
            for _ in loader:
                pass
    assert stream.slots <= 2 + 2 + stream.lookahead + 2, "and two for the small arrays"


def test_a_loop_that_runs_ahead_of_its_device_is_held_back(flat: Path, stream: FakeStream) -> None:
    with loader_of(flat) as loader:
        for number, _ in enumerate(loader):
            assert stream.log.count("wait user") == max(0, number - 3)


def test_the_host_never_waits_for_the_side_stream(flat: Path, stream: FakeStream) -> None:
    stream.at_once = False
    with loader_of(flat) as loader:
        assert len(list(loader)) == BATCHES
    assert stream.marks
    assert not any(mark.done() for mark in stream.marks), "the device has done nothing yet"
    assert not [entry for entry in stream.log if entry.startswith("wait mark")]


def test_device_time_is_counted_when_it_is_known(flat: Path, stream: FakeStream) -> None:
    with (
        loader_of(flat) as loader,
        mock.patch.object(Prefetcher, "has_ready_batch", return_value=True),
    ):
        batches = iter(loader)
        next(batches)
        assert loader.stats().device_s == 0
        list(batches)
        assert loader.stats().device_s == 2 * 0.25 * BATCHES  # copies and augmentation
        assert loader.stats().transfer_s > 0


def test_a_loop_that_evaluates_and_then_trains(flat: Path, stream: FakeStream) -> None:
    """The batch to train on was queued in inference mode, whose tensors cannot be saved for backward."""
    model = torch.nn.Conv2d(3, 2, 3)
    with (
        loader_of(flat, augment=fastpipe.Augment.imagenet()) as loader,
        mock.patch.object(Prefetcher, "has_ready_batch", return_value=True),
    ):
        batches = iter(loader)
        with torch.inference_mode():
            next(batches)
        images, _ = next(batches)
        model(images).sum().backward()
    assert model.weight.grad is not None
    assert not images.requires_grad


def test_a_bad_sample_ahead_does_not_take_the_batch_before_it(
    flat: Path, stream: FakeStream, copied: object
) -> None:
    dataset = copied(flat)  # type: ignore[operator]
    damage(dataset, 12)
    with loader_of(dataset, train=False) as loader:
        batches = iter(loader)
        good = [next(batches), next(batches)]
        assert [len(labels) for _, labels in good] == [BATCH, BATCH]
        assert len(batches) == loader.__len__() - 2  # type: ignore[arg-type]
        with pytest.raises(SampleError, match="sample 12"):
            next(batches)
        with pytest.raises(EngineError, match="an error ended this epoch"):
            next(batches)


def test_pauses_for_the_host_are_no_time_of_the_device(
    flat: Path, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where copies were done before all kernels were queued, the device may have paused between two kernels."""
    durations = {"in time": 0.25, "too late": 60.0}

    def since(later: FakeMark, earlier: FakeMark) -> float:
        return durations[now[0]] if later.what != earlier.what else 0.0

    monkeypatch.setattr(FakeMark, "since", since)
    now = ["in time"]
    stream.at_once = False
    # The batch ahead is queued with the first one, however late its workers are.
    with (
        loader_of(flat, augment=fastpipe.Augment.imagenet()) as loader,
        mock.patch.object(Prefetcher, "has_ready_batch", return_value=True),
    ):
        batches = iter(loader)
        next(batches)
        for mark in stream.marks:
            mark.is_done = True
        stream.at_once = (
            True  # from here on all copies are done before the augmentation has been queued
        )
        next(batches)
        assert loader.stats().device_s == 2 * (0.25 + 0.25)
        now[0] = "too late"
        next(batches)
        assert loader.stats().device_s == 2 * (0.25 + 0.25) + 60 + 0.25


def test_an_error_of_the_program_on_the_device_is_raised_as_it_is(
    flat: Path, stream: FakeStream
) -> None:
    """And at once, not with the batch after the one at hand."""
    with loader_of(flat) as loader:
        batches = iter(loader)
        next(batches)
        stream.error = theirs = RuntimeError("CUDA error: device-side assert triggered")
        with pytest.raises(RuntimeError) as caught:
            next(batches)
        assert caught.value is theirs
        assert loader.stats().batches == 1
        with pytest.raises(EngineError, match="an error ended this epoch"):
            next(batches)


def test_a_closed_loader_hands_out_nothing_more(flat: Path, stream: FakeStream) -> None:
    loader = loader_of(flat)
    batches = iter(loader)
    next(batches)
    loader.close()
    with pytest.raises(EngineError, match="closed"):
        next(batches)


def test_breaking_off_leaves_nothing_behind(flat: Path, stream: FakeStream) -> None:
    with loader_of(flat) as loader:
        for epoch in range(3):
            loader.set_epoch(epoch)
            for _ in loader:
                break
        assert loader.stats().batches == 3
        assert len(list(loader)) == BATCHES


def test_a_training_step_that_does_not_end_is_told_and_waited_for(
    flat: Path, stream: FakeStream, caplog: pytest.LogCaptureFixture
) -> None:
    """Twenty times the time that the loader's own stages are given: it is told once, and no error."""
    with loader_of(flat, stall_timeout=0.01) as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        stream.late, stream.pause_s = 20, 0.01
        next(batches)
        (record,) = [
            each
            for each in caplog.records
            if "has not finished the training step of 4 batches ago" in each.message
        ]
        assert re.match(r"no batch for \d+ s: cpu has not finished", record.message)
        assert "machine: " in record.message
        assert len(list(batches)) == BATCHES - 5


def test_a_loop_that_its_device_holds_back_does_not_wait_for_data(
    flat: Path, stream: FakeStream, caplog: pytest.LogCaptureFixture
) -> None:
    """A device that takes 20 ms a step: this time belongs to the steps, and nobody advises more workers."""
    with loader_of(flat) as loader:
        for _ in range(3):
            for _ in loader:
                stream.late, stream.pause_s = 1, 0.01
        stats = loader.stats()
    assert stats.held_s >= 0.02 * (3 * BATCHES - 4 - 3)
    assert stats.step_s >= 0.02 * (
        2 * BATCHES - 4 - 3
    )  # the wait before an epoch's first batch is of no step in it
    assert not [record for record in caplog.records if "waited for data" in record.message]


def test_a_batch_that_is_ready_does_not_wait_for_the_next_one(
    flat: Path, stream: FakeStream
) -> None:
    """Where the next batch is not made yet, it is queued when it is asked for."""
    with (
        loader_of(flat) as loader,
        mock.patch.object(Prefetcher, "has_ready_batch", return_value=False),
    ):
        batches = iter(loader)
        next(batches)
        assert stream.log == ["begin", "queued", "hand over"]
        assert len(list(batches)) == BATCHES - 1
