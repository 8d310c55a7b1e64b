"""Epochs for training that are shorter than is meant: of mixtures, and by epoch_size=."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from support.pictures.drawn import FLAT_IMAGES

import fastpipe
from fastpipe import warnings_once
from fastpipe.errors import ConfigError


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    warnings_once.forget_all()
    caplog.set_level(logging.WARNING, "fastpipe")
    return caplog


def open_loader(data: Any, batch_size: int = 4, **options: Any) -> None:
    fastpipe.loader(data, batch_size, size=12, num_workers=1, **options).close()


def test_a_mixture_that_ends_with_a_tiny_dataset_is_named(
    flat: Path, textured: Path, log: pytest.LogCaptureFixture
) -> None:
    small = fastpipe.open(textured).select(range(3))
    data = fastpipe.mix({flat: 0.7, small: 0.3})
    for epoch_size in ("smallest", "largest", 20):
        open_loader(data, epoch_size=epoch_size)
    open_loader(fastpipe.mix({flat: 0.8, small: 0.08}))
    assert "ends with" not in log.text
    open_loader(data)
    open_loader(data)
    words = (
        f"an epoch of the mixture ends with {textured} (3 samples): it has 10 rows, and {flat} has "
        f"{FLAT_IMAGES} samples"
    )
    assert log.text.count(words) == 1


def test_an_epoch_size_of_few_batches_is_named(flat: Path, log: pytest.LogCaptureFixture) -> None:
    for epoch_size in (4, 8, 17, FLAT_IMAGES, 100):
        open_loader(flat, epoch_size=epoch_size)
    assert "epoch_size" not in log.text
    open_loader(flat, epoch_size=11)
    open_loader(flat, epoch_size=11)
    words = (
        "epoch_size=11 counts samples, not batches: an epoch has 2 batches of 4. For 11 batches: "
        "epoch_size=44"
    )
    assert log.text.count(words) == 1


@pytest.mark.parametrize("batch_size", [3, 4])
def test_the_number_of_batches_is_no_epoch_size(
    flat: Path, log: pytest.LogCaptureFixture, batch_size: int
) -> None:
    """Trainers ask for steps an epoch: len(data) // batch_size of them."""
    steps = FLAT_IMAGES // batch_size
    open_loader(flat, batch_size, epoch_size=steps)
    assert f"epoch_size={steps} counts samples, and {flat} has so many batches of" in log.text
    assert "For an epoch of all samples leave epoch_size out" in log.text


def test_an_epoch_size_of_no_batch_is_explained(flat: Path) -> None:
    words = "epoch_size=10 counts samples, not batches: so many batches are epoch_size=160"
    with pytest.raises(ConfigError, match=words):
        open_loader(flat, 16, epoch_size=10)


def test_the_last_batch_is_much_of_the_dataset(flat: Path, log: pytest.LogCaptureFixture) -> None:
    num_samples = len(fastpipe.open(flat))
    options: dict[str, int] = {"size": 8, "num_workers": 1}
    fastpipe.loader(flat, num_samples // 2, **options).close()
    fastpipe.loader(flat, 20, drop_last=False, **options).close()
    fastpipe.loader(flat, 20, epoch_size=20, **options).close()
    assert log.text == ""
    fastpipe.loader(flat, 10, rank=0, world_size=2, **options).close()
    words = "has 1 full batch of 20 (10 on each of 2 ranks: batch_size= is that of a rank)"
    assert words in log.text
    assert f"leaves out {num_samples - 20} of {num_samples} samples" in log.text


def test_steps_of_a_large_dataset(thousand: Path, log: pytest.LogCaptureFixture) -> None:
    with fastpipe.loader(thousand, 8, size=8, num_workers=1, epoch_size=45):
        assert "epoch_size=45 counts samples, not batches" in log.text


@pytest.mark.usefixtures("warned_anew")
def test_short_epochs_of_samples_that_are_shared_out_twice(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    """One message says why."""
    data = fastpipe.open(flat)
    share = data.select(range(1, len(data), 2))
    fastpipe.loader(share, 6, size=8, num_workers=1, rank=1, world_size=2).close()
    assert "are already the share of rank 1 of 2" in log.text
    assert "leaves out" not in log.text
