"""Tests of wrong arguments to fastpipe.loader and of samples that cannot be decoded."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.batches.epochs import epoch_of, numbers_of, same
from support.datasets.packed import damage
from support.pictures.drawn import FLAT_IMAGES

import fastpipe
from fastpipe import ConfigError, EngineError, SampleError
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.loading.batch_maker import BatchMaker
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.epoch import EpochPlan

Copy = Callable[[Path], Path]
WRONG: dict[str, tuple[Any, ...]] = {
    "batch_size": (0, 2.0),
    "size": ("224", (1, 2, 3)),
    "train": ("yes", 1),
    "crop": ("center",),
    "hflip": (2, "no"),
    "shuffle": (1,),
    "seed": (-1, 2**64, None),
    "drop_last": ("no",),
    "num_workers": (-1, 1.5, 5000),
    "prefetch_factor": (0,),
    "exact": ("yes",),
    "partition": (True, "", "shard"),  # True == 1
    "on_error": ("ignore",),
    "stall_timeout": (0,),
    "verify": (1,),
}


def test_a_wrong_argument_is_named_before_the_dataset_is_opened() -> None:
    """A scan, or a dataset behind a URL, may take minutes."""
    for name, values in WRONG.items():
        for value in values:
            with pytest.raises(
                ConfigError, match=f"^{name}: expected .*got {re.escape(repr(value))}"
            ):
                fastpipe.loader("nowhere", **{name: value})
    with pytest.raises(ConfigError, match="images are shown whole"):
        fastpipe.loader("nowhere", size="bucket", crop=fastpipe.Resize())


def test_a_wrong_sampler_is_named(flat: Path) -> None:
    for sampler in (3, fastpipe.Weighted):
        with pytest.raises(
            ConfigError, match=rf"^sampler: expected .*got {re.escape(repr(sampler))}"
        ):
            fastpipe.loader(flat, sampler=sampler)


def test_arguments_of_the_dataloader_name_the_alternative(flat: Path) -> None:
    alternatives = {
        "collate_fn": "fields= says what a batch has",
        "worker_init_fn": "seed=",
        "persistent_workers": "leave it out",
        "pin_memory": "leave it out",
        "batch_sampler": "sampler=",
        "generator": "pass seed=",
        "multiprocessing_context": "no worker processes",
        "timeout": "stall_timeout",
        "transform": "crop=",
    }
    for name, alternative in alternatives.items():
        with pytest.raises(
            ConfigError, match=rf"has no argument {name}: .*{re.escape(alternative)}"
        ):
            fastpipe.loader(flat, **{name: None})


def test_a_batch_larger_than_the_dataset(flat: Path) -> None:
    message = rf"batch_size=38 with drop_last=True gives no full batch: .*{FLAT_IMAGES} samples.*drop_last=False"
    with pytest.raises(ConfigError, match=message):
        fastpipe.loader(flat, 38)


def test_a_bad_sample_raises_with_its_place_and_ends_the_epoch(flat: Path, copied: Copy) -> None:
    dataset = copied(flat)
    damage(dataset, 20)
    shard, member, offset = PackedIndex(dataset).where(20)
    key = fastpipe.open(flat)["key"][20]
    with fastpipe.loader(dataset, 8, size=16, train=False, num_workers=2) as loader:
        batches = iter(loader)
        next(batches)
        next(batches)  # the batches before it come
        with pytest.raises(SampleError) as caught:
            next(batches)
        error = caught.value
        assert (error.key, error.sample) == (key, 20)
        assert (error.shard, error.member, error.offset) == (shard, member, offset)
        assert error.reason.startswith("the bytes are not a JPEG")
        for part in (
            f"sample 20 ({key}) cannot be decoded",
            f"shard {shard}, member {member}, byte {offset}",
            error.reason,
            "on_error='replace'",
            "pack",
        ):
            assert part in str(error)
        for _ in range(2):  # and never passes for one that ended well
            with pytest.raises(EngineError, match="an error ended this epoch; start a new one"):
                next(batches)
        with pytest.raises(SampleError):  # the loader itself is not broken
            epoch_of(loader)


def test_the_first_bad_sample_of_a_batch_is_named(flat: Path, copied: Copy) -> None:
    dataset = copied(flat)
    for sample in (30, 12, 25):
        damage(dataset, sample)
    for workers in (1, 3):
        with (
            fastpipe.loader(dataset, 37, size=16, train=False, num_workers=workers) as loader,
            pytest.raises(SampleError) as caught,
        ):
            next(iter(loader))
        assert caught.value.sample == 12


@pytest.mark.parametrize("train", [True, False])
def test_replace_keeps_batches_labels_and_counts(flat: Path, copied: Copy, train: bool) -> None:
    dataset = copied(flat)
    with fastpipe.loader(dataset, 37, size=16, train=False, num_workers=1) as loader:
        numbers = numbers_of(epoch_of(loader)[0])
    bad = [0, 9, 10, 36]
    for sample in bad:
        damage(dataset, sample)
    with fastpipe.loader(
        dataset, 5, size=16, train=train, drop_last=False, on_error="replace", num_workers=2
    ) as loader:
        for epoch in range(2):
            images, labels = epoch_of(loader)
            got = numbers_of(images)
            assert len(got) == FLAT_IMAGES
            assert labels.tolist() == [number % 3 for number in got]
            assert set(got) == {
                number for sample, number in enumerate(numbers) if sample not in bad
            }
            assert loader.stats().replaced == len(bad) * (epoch + 1)
            assert loader.stats().samples == FLAT_IMAGES * (epoch + 1)


def test_replacing_does_not_depend_on_threads_or_batches(flat: Path, copied: Copy) -> None:
    dataset = copied(flat)
    for sample in range(0, 37, 3):
        damage(dataset, sample)
    results = []
    for workers, prefetch, batch_size in ((1, 1, 5), (3, 2, 5), (8, 8, 5), (2, 2, 37)):
        options: dict[str, Any] = {
            "num_workers": workers,
            "prefetch_factor": prefetch,
            "on_error": "replace",
        }
        with fastpipe.loader(dataset, batch_size, size=16, drop_last=False, **options) as loader:
            results.append((*epoch_of(loader), *epoch_of(loader)))
    for other in results[1:]:
        assert same(other, results[0])


def test_no_sample_is_good(flat: Path, copied: Copy) -> None:
    dataset = copied(flat)
    for sample in range(FLAT_IMAGES):
        damage(dataset, sample)
    with (
        fastpipe.loader(dataset, 8, size=16, on_error="replace", num_workers=2) as loader,
        pytest.raises(
            SampleError, match="16 other samples that could replace it failed too"
        ) as caught,
    ):
        next(iter(loader))
    assert "on_error='replace' found no other sample for its place" in str(caught.value)
    assert "to train without it" not in str(caught.value), "the loader does that already"
    assert loader.stats().replaced == 0


def test_a_single_sample_has_no_replacement(flat: Path, copied: Copy) -> None:
    dataset = copied(flat)
    damage(dataset, 0)
    single = fastpipe.open(dataset).select([0])
    words = r"not a JPEG.*\(and there is no other sample that could replace it\)"
    with (
        fastpipe.loader(single, 1, size=16, on_error="replace", num_workers=1) as loader,
        pytest.raises(SampleError, match=words),
    ):
        next(iter(loader))


def test_no_memory_for_a_batch_ends_the_epoch_behind_the_batches_before(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = BatchMaker.begin

    def failing(maker: BatchMaker, plan: BatchPlan, of: EpochPlan, number: int) -> object:
        if number == 2:
            raise MemoryError("none left")
        return begin(maker, plan, of, number)

    monkeypatch.setattr(BatchMaker, "begin", failing)
    with fastpipe.loader(flat, 8, size=16, num_workers=1) as loader:
        batches = iter(loader)
        next(batches)
        next(batches)
        words = "not enough memory for batch 2 of epoch 0: none left. Pass a smaller batch_size, size or "
        with pytest.raises(EngineError, match=words):
            next(batches)


def test_a_sample_that_memory_does_not_suffice_for_is_not_replaced(
    flat: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = copied(flat)
    damage(dataset, 2)
    monkeypatch.setattr("fastpipe.loading.batch_maker.lacks_memory", lambda reason: True)
    shard, _, offset = PackedIndex(dataset).where(2)
    place = re.escape(f"(sample 2, at byte {offset} of {shard}). Pass a smaller num_workers")
    with (
        fastpipe.loader(
            dataset, 8, size=16, train=False, on_error="replace", num_workers=1
        ) as loader,
        pytest.raises(EngineError, match=place),
    ):
        next(iter(loader))
    assert loader.stats().replaced == 0


def test_a_closed_loader_says_so(flat: Path) -> None:
    loader = fastpipe.loader(flat, 8, size=16, num_workers=2)
    iterator = iter(loader)
    images, _ = next(iterator)
    before = images.clone()
    loader.close()
    loader.close()
    for use in (lambda: next(iterator), lambda: iter(loader)):
        with pytest.raises(EngineError, match="closed; create a new loader"):
            use()
    assert torch.equal(images, before)
    assert loader.stats().batches == 1
    assert len(loader) == 4
