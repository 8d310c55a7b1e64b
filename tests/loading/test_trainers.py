"""What trainers ask of a loader: Accelerate skips batches of it as of a DataLoader, and samplers name its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fastpipe

pytestmark = [pytest.mark.usefixtures("one_thread")]


def loader_of(dataset: Path, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(dataset, **{"batch_size": 4, "size": 8, "num_workers": 1, **options})


def ids(batches: Any) -> list[list[int]]:
    return [batch.ids.tolist() for batch in batches]


@pytest.fixture(autouse=True)
def single_process() -> Iterator[None]:
    """Accelerate keeps what it knows of the process in class attributes."""
    yield
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize(
    "options", [{}, {"shuffle": False, "drop_last": False}, {"size": "bucket"}, {"views": 2}]
)
def test_skip_first_batches(flat: Path, options: dict[str, Any]) -> None:
    from accelerate import skip_first_batches

    with loader_of(flat, **options) as loader:
        epochs = [ids(loader) for _ in range(3)]
        for skipped in (0, 1, 5, len(loader)):
            loader.set_epoch(1)
            rest = skip_first_batches(loader, skipped)
            assert len(rest) == len(loader) - skipped
            assert ids(rest) == epochs[1][skipped:]
            assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (2, 0)
            assert ids(loader) == epochs[2]


def test_what_is_skipped_is_not_decoded(flat: Path) -> None:
    from accelerate import Accelerator

    with loader_of(flat, prefetch_factor=1) as loader:
        accelerator = Accelerator(cpu=True)
        batches = list(accelerator.skip_first_batches(accelerator.prepare(loader), len(loader) - 1))
        assert (len(batches), loader.stats().images_decoded) == (1, 4)


def test_a_loop_that_is_left_keeps_no_batches(flat: Path) -> None:
    from accelerate import skip_first_batches

    with loader_of(flat) as loader:
        first = iter(skip_first_batches(loader, 2))
        next(first)
        second = iter(skip_first_batches(loader, 3))
        next(second)
        del first
        assert len(ids(second)) == len(loader) - 4
        third = iter(skip_first_batches(loader, 1))
        next(third)
        assert loader.stats().batches_making + loader.stats().batches_ready > 0
        del third
        assert loader.stats().batches_making + loader.stats().batches_ready == 0


def test_skipping_after_a_state_skips_no_more_than_either(flat: Path) -> None:
    from accelerate import skip_first_batches

    with loader_of(flat) as loader:
        whole = ids(loader)
        for loaded, skipped in ((3, 0), (3, 3), (3, 5), (5, 3)):
            loader.load_state_dict({**loader.state_dict(), "epoch": 0, "batches": loaded})
            assert ids(skip_first_batches(loader, skipped)) == whole[max(loaded, skipped) :]


def test_a_loader_in_order_has_a_sampler_in_order(flat: Path) -> None:
    """Lightning's overfit_batches takes no other."""
    for options, in_order in (({}, False), ({"shuffle": False}, True), ({"train": False}, True)):
        with loader_of(flat, **options) as loader:
            assert isinstance(loader.sampler, torch.utils.data.SequentialSampler) == in_order


def test_samplers(flat: Path) -> None:
    for rank in range(2):
        for options in (
            {},
            {"train": False},
            {"sampler": fastpipe.Repeated(2)},
            {"sampler": fastpipe.PerClass(samples=4)},
            {"size": "bucket"},
        ):
            with loader_of(flat, rank=rank, world_size=2, **options) as loader:
                loader.sampler.set_epoch(3)
                assert loader.stats().images_decoded == 0
                expected = list(loader.sampler)
                assert len(expected) == len(loader.sampler)
                assert len(loader.batch_sampler) == len(loader)
                batches = list(loader)
                assert expected == [number for batch in ids(batches) for number in batch]
                assert batches[0].epoch == 3
