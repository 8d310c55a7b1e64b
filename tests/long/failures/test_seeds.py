"""Failure 8: random numbers that are the same in every worker, or that depend on how many workers there are."""

from __future__ import annotations

from pathlib import Path

import torch
from support.programs.children import run

import fastpipe

_LOADER = """
    import json, random
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Draws(Dataset):
        def __init__(self):
            self.own = np.random.default_rng(7)  # made once, copied into every worker

        def __len__(self):
            return 8

        def __getitem__(self, number):
            return (
                self.own.integers(2**31),
                np.random.randint(2**31),
                random.getrandbits(31),
                int(torch.randint(2**31, ())),
            )

    def drawn(workers):
        torch.manual_seed(0)
        loader = DataLoader(Draws(), batch_size=None, num_workers=workers, multiprocessing_context="fork")
        epochs = [[[int(value) for value in sample] for sample in loader] for _ in range(2)]
        return [[list(kind) for kind in zip(*epoch)] for epoch in epochs]  # [epoch][kind][sample]

    print(json.dumps([drawn(2), drawn(4)]))
"""


def test_workers_with_the_same_numbers() -> None:
    two, four = run(_LOADER).figures()
    first, second = two
    own, *seeded = first
    assert own[0::2] == own[1::2], "a generator of the data set's own: both workers draw the same"
    assert second[0] == own, "and the same again in the next epoch"
    for kind in seeded:  # NumPy's global generator only since torch 1.9
        assert len(set(kind)) == 8
    assert first[1:] != four[0][1:], "another number of workers, other numbers from the same seed"


def test_fastpipe_draws_by_seed_epoch_and_sample(textured: Path) -> None:
    def epochs(workers: int) -> list[torch.Tensor]:
        with fastpipe.loader(textured, 4, size=16, drop_last=False, num_workers=workers) as loader:
            return [torch.cat([images for images, _ in loader]) for _ in range(2)]

    one, four = epochs(1), epochs(4)
    assert torch.equal(one[0], four[0])
    assert torch.equal(one[1], four[1])
    assert not torch.equal(one[0], one[1])
