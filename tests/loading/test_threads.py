"""Loops in four threads at once: each gives the batches that it gives alone, whether Python has a GIL or none."""

from __future__ import annotations

import functools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.batches.same_batches import assert_same
from support.running.soak import times

import fastpipe

THREADS, EPOCHS = 4, 2
Batches = list[list[torch.Tensor]]


class Draws(torch.nn.Module):
    """Draws from the global generators of torch, numpy and Python, as other people's augmentations do."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        shift = torch.rand(3).sum()
        for _ in range(5):
            shift = shift + torch.rand(3).sum() + float(np.random.random()) + random.random()
        return images * shift


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(works: list[Callable[[], None]]) -> None:
    """Does each in a thread of its own, all from one moment on; an error of one is raised here."""
    start, failed = threading.Barrier(len(works)), list[BaseException]()

    def run(work: Callable[[], None]) -> None:
        try:
            start.wait(300)
            work()
        except BaseException as problem:
            failed.append(problem)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


def batches_of(data: Any, seed: int, **options: Any) -> Batches:
    """The images and labels of some epochs."""
    with fastpipe.loader(data, 4, size=24, num_workers=2, seed=seed, **options) as loader:
        return [
            [images.clone(), labels.clone()] for _ in range(EPOCHS) for images, labels in loader
        ]


OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "augmented": lambda: {"augment": fastpipe.Augment.imagenet(mixup=0.2)},
    "global generators": lambda: {"augment": fastpipe.Augment([Draws()])},
    "a sampler": lambda: {"sampler": torch.utils.data.RandomSampler(range(20))},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_each_gives_what_it_gives_alone(textured: Path, name: str) -> None:
    expected = [batches_of(textured, seed, **OPTIONS[name]()) for seed in range(THREADS)]
    for data in (textured, fastpipe.open(textured)):  # each opens it, and all share one
        for _ in range(times(1, 40)):
            got: list[Batches] = [[]] * THREADS

            def loop(seed: int, data: Any = data, got: list[Batches] = got) -> None:
                got[seed] = batches_of(data, seed, **OPTIONS[name]())

            at_once([functools.partial(loop, seed) for seed in range(THREADS)])
            for one, other in zip(got, expected, strict=True):
                assert_same(one, other)


def test_others_look_at_a_loader_while_it_is_iterated(textured: Path) -> None:
    """As monitors do: figures, lengths and states, from the first batch on."""
    expected = batches_of(textured, 0)
    for _ in range(times(1, 60)):
        with fastpipe.loader(textured, 4, size=24, num_workers=2, seed=0) as loader:
            got: Batches = []
            ended = threading.Event()

            def loop(
                loader: fastpipe.Loader = loader, got: Batches = got, ended: threading.Event = ended
            ) -> None:
                try:
                    got += [
                        [images.clone(), labels.clone()]
                        for _ in range(EPOCHS)
                        for images, labels in loader
                    ]
                finally:
                    ended.set()

            def look(loader: fastpipe.Loader = loader, ended: threading.Event = ended) -> None:
                batches = 0
                while not ended.is_set():
                    seen = loader.stats().batches
                    assert batches <= seen <= len(expected)
                    assert len(loader) == len(expected) // EPOCHS
                    loader.state_dict()
                    batches = seen

            at_once([loop, look, look, look])
            assert_same(got, expected)


def test_samples_of_one_dataset_are_read_in_all_threads(textured: Path) -> None:
    expected = [np.asarray(image) for image, _ in fastpipe.open(textured)]
    data = fastpipe.open(textured)

    def read() -> None:
        for number, wanted in enumerate(expected):
            assert np.array_equal(np.asarray(data[number][0]), wanted)

    at_once([read] * THREADS)
