"""On a CUDA device: the same batches as on the CPU, beside the training step, without waiting and without growing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fastpipe

pytestmark = pytest.mark.gpu

BATCH = 4


@pytest.fixture
def no_synchronising() -> Iterator[None]:
    """Whatever makes the host wait for the device raises."""
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def loader_of(dataset: Path, device: str, **options: object) -> fastpipe.Loader:
    return fastpipe.loader(dataset, BATCH, size=64, device=device, num_workers=2, **options)  # type: ignore[arg-type]


def test_batches_are_those_of_the_cpu(textured: Path) -> None:
    with loader_of(textured, "cuda") as there, loader_of(textured, "cpu") as here:
        for _ in range(3):
            for (images, labels), (expected, numbers) in zip(there, here, strict=True):
                assert images.device.type == labels.device.type == "cuda"
                assert images.is_contiguous(memory_format=torch.channels_last)
                assert torch.equal(images.cpu(), expected)
                assert torch.equal(labels.cpu(), numbers)


@pytest.mark.parametrize("preset", ["imagenet", "simclr", "randaugment", "trivial_augment"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_augmentation_is_that_of_the_cpu(textured: Path, preset: str, dtype: torch.dtype) -> None:
    options = {"dtype": dtype, "erasing": 0.5, "mixup": 0.2, "cutmix": 1.0, "label_smoothing": 0.1}
    ours, theirs = (getattr(fastpipe.Augment, preset)(**options) for _ in range(2))
    with loader_of(textured, "cuda", augment=ours) as there, loader_of(textured, "cpu", augment=theirs) as here:
        for (images, labels), (expected, numbers) in zip(there, here, strict=True):
            assert images.dtype == dtype
            # Warped pixels that fall on an edge between two may go to either.
            close = (images.cpu().float() - expected.float()).abs() < 0.05
            assert close.float().mean() > 0.995
            torch.testing.assert_close(labels.cpu(), numbers)


@pytest.mark.parametrize("preset", [None, "imagenet", "simclr", "randaugment", "trivial_augment"])
def test_the_host_never_waits_for_the_device(
    textured: Path, preset: str | None, request: pytest.FixtureRequest
) -> None:
    options = {"mixup": 0.2, "cutmix": 1.0, "erasing": 0.5}
    augment = getattr(fastpipe.Augment, preset)(**options) if preset else None
    with loader_of(textured, "cuda", augment=augment) as loader:
        list(loader)  # what is allocated and compiled once
        request.getfixturevalue("no_synchronising")
        assert len(list(loader)) == len(loader)


def test_slow_steps_see_their_own_batch(textured: Path) -> None:
    """Steps that are queued for long must not find the next batch in their memory."""
    with loader_of(textured, "cpu") as here:
        expected = [images.double().sum().item() for images, _ in here]
    work = torch.randn(2048, 2048, device="cuda")
    with loader_of(textured, "cuda") as there:
        sums = []
        for images, _ in there:
            for _ in range(20):
                work = torch.tanh(work @ work)
            sums.append(images.double().sum())
        assert [value.item() for value in sums] == expected


def test_another_stream_of_the_users_gets_whole_batches(textured: Path) -> None:
    users = torch.cuda.Stream()
    with loader_of(textured, "cpu") as here, loader_of(textured, "cuda") as there, torch.cuda.stream(users):
        for (images, _), (expected, _) in zip(there, here, strict=True):
            assert torch.equal(images.clone().cpu(), expected)


def test_memory_does_not_grow_over_1000_batches(textured: Path) -> None:
    with loader_of(textured, "cuda", augment=fastpipe.Augment.simclr()) as loader:
        peaks = []
        for _ in range(4):
            torch.cuda.reset_peak_memory_stats()
            for _ in range(-(-250 // len(loader))):
                for images, _ in loader:
                    images.mean()
            peaks.append(torch.cuda.max_memory_reserved())
        assert peaks[1:] == peaks[:1] * 3


def test_device_time_is_measured(textured: Path) -> None:
    with loader_of(textured, "cuda", augment=fastpipe.Augment.simclr()) as loader:
        for _ in range(3):
            list(loader)
            torch.cuda.synchronize()
        assert loader.stats().device_s > 0
