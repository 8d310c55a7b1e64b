"""Tests of fastpipe.wds in DataLoader workers that are told of epochs, and of its copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from support.pictures.drawn import smooth_noise
from support.sources.wds_tars import SIDE, image_bytes
from torch.utils.data import DataLoader, Dataset

import fastpipe
from fastpipe.wds.stages import SampleCrop

SAMPLES = [
    {"__key__": f"k{number}", "jpg": image_bytes(smooth_noise(80 + 9 * number, 120, seed=number))}
    for number in range(6)
]


MAKERS = (fastpipe.wds.crop, fastpipe.wds.batch_crop)


def cropped(function: Any, number: int) -> torch.Tensor:
    """The crop of a sample by either stage."""
    sample = dict(SAMPLES[number])
    if isinstance(function, SampleCrop):
        image: torch.Tensor = function(sample)["jpg"]
        return image
    (row,) = function([sample])["jpg"]
    return row


class Cropped(Dataset[torch.Tensor]):
    """The crops of SAMPLES, as a worker makes them."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __len__(self) -> int:
        return len(SAMPLES)

    def __getitem__(self, number: int) -> torch.Tensor:
        return cropped(self.function, number)


@pytest.mark.parametrize("make", MAKERS)
def test_workers_that_stay_are_told_of_epochs(make: Any) -> None:
    """Draws go by seed, epoch and key; without an epoch, each worker's torch draws them."""
    function = make(SIDE, seed=1)
    cropped(function, 0)  # used here, before the workers begin
    loader = DataLoader(
        Cropped(function),
        None,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
        timeout=300,
    )
    untold, again = list(loader), list(loader)
    assert not any(map(torch.equal, untold, again))
    epochs = []
    for epoch in (0, 1, 0):
        function.set_epoch(epoch)
        epochs.append(list(loader))
    here = fastpipe.wds.crop(SIDE, seed=1)
    here.set_epoch(0)
    expected = [cropped(here, number) for number in range(len(SAMPLES))]
    assert all(map(torch.equal, epochs[0], expected))
    assert all(map(torch.equal, epochs[2], expected))
    assert not any(map(torch.equal, epochs[1], expected))


@pytest.mark.parametrize("make", MAKERS)
def test_copies_do_the_same(make: type) -> None:
    original = make(SIDE, seed=3)
    original.set_epoch(4)
    for twin in (pickle.loads(pickle.dumps(original)), copy.deepcopy(original)):  # noqa: S301
        assert torch.equal(cropped(twin, 0), cropped(original, 0))
