"""Tests of a loader's life: memory is never shared, threads and files are given back, every end is quick and clean."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.pictures.drawn import FLAT_IMAGES, flat_number
from support.running.soak import Tried, times

import fastpipe
from fastpipe import EngineError
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.loading.epoch_sequence import EpochSequence
from fastpipe.loading.prefetcher import Prefetcher


@pytest.fixture
def loader(textured: Path) -> Iterator[fastpipe.Loader]:
    with fastpipe.loader(textured, 4, size=24, num_workers=2) as made:
        yield made


@pytest.mark.parametrize("augment", [None, fastpipe.Augment.imagenet()], ids=["plain", "augmented"])
def test_batches_that_are_kept_keep_their_content(
    textured: Path, augment: fastpipe.Augment | None
) -> None:
    """Whatever the program does with others, and after their loader; a view holds its batch."""
    loader = fastpipe.loader(textured, 4, size=24, num_workers=2, augment=augment)
    kept = [[*batch, batch.images[1], batch.images.numpy()[2]] for batch in loader]
    content = [
        [part.copy() if isinstance(part, np.ndarray) else part.clone() for part in parts]
        for parts in kept
    ]
    rows = [images[1] for images, _ in loader]
    row_content = [row.clone() for row in rows]
    for _ in range(5):
        for images, _labels in loader:
            images.fill_(0)
    loader.close()
    del loader
    gc.collect()
    for parts, copies in zip([*kept, rows], [*content, row_content], strict=True):
        assert all((part == copy).all() for part, copy in zip(parts, copies, strict=True))
    for number, (images, labels, *_) in enumerate(kept):  # and each has memory of its own
        images.fill_(number)
        labels.fill_(-number)
    assert [int(images.max()) for images, *_ in kept] == list(range(len(kept)))
    assert [int(labels.min()) for _, labels, *_ in kept] == [-number for number in range(len(kept))]


def test_memory_is_used_again(loader: fastpipe.Loader) -> None:
    addresses = {images.data_ptr() for _ in range(20) for images, _ in loader}
    assert len(addresses) <= 8


def test_an_iterator_outlives_the_name_of_its_loader(textured: Path) -> None:
    """`for batch in fastpipe.loader(...)` holds the iterator alone."""
    assert len([1 for _ in fastpipe.loader(textured, 4, size=24, num_workers=2)]) == 5


def test_nothing_that_python_runs_is_called_when_a_loader_dies(textured: Path) -> None:
    """An exception of Ctrl-C would be lost there; see Note [callbacks] in slots.py."""
    loader = fastpipe.loader(textured, 4, size=24, num_workers=2)
    batches = iter(loader)
    images, labels = next(batches)
    called: list[str] = []
    sys.setprofile(
        lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None
    )
    del images, labels
    del batches, loader
    sys.setprofile(None)
    assert called == []


def test_two_loaders_at_once(textured: Path, flat: Path, tried: Tried) -> None:
    options: dict[str, Any] = {"batch_size": 4, "size": 24, "num_workers": 2}
    with fastpipe.loader(textured, **options) as one, fastpipe.loader(flat, **options) as other:
        pairs = list(zip(one, other, strict=False))
        for loader, batches in zip((one, other), zip(*pairs, strict=True), strict=True):
            loader.set_epoch(0)
            for (images, _), (alone, _) in zip(batches, loader, strict=False):
                assert torch.equal(images, alone)
    tried("two loaders at once", 1, "each gives what it gives alone, byte for byte")


def test_two_iterators_of_one_loader_at_once(loader: fastpipe.Loader) -> None:
    expected = [[images.clone() for images, _ in loader] for _ in range(2)]
    loader.set_epoch(0)
    first, second = iter(loader), iter(loader)
    for number in range(len(loader)):  # who asks first has epoch 0
        assert torch.equal(next(first)[0], expected[0][number])
        assert torch.equal(next(second)[0], expected[1][number])
    assert next(first, None) is next(second, None) is None


def test_made_in_one_thread_and_used_in_others(textured: Path, tried: Tried) -> None:
    """While the main thread is busy with Python of its own: made by one, iterated by the next, closed by the last."""
    with fastpipe.loader(textured, 4, size=24, num_workers=2) as loader:
        expected = [images.clone() for _ in range(3) for images, _ in loader]
    made: list[fastpipe.Loader] = []
    got: list[torch.Tensor] = []

    def done_by_another(work: Callable[[], None]) -> None:
        worker = threading.Thread(target=work)
        worker.start()
        deadline = time.monotonic() + 300
        while worker.is_alive() and time.monotonic() < deadline:
            sum(range(1000))
        assert not worker.is_alive()

    for _ in range(times(3, 30)):
        done_by_another(lambda: made.append(fastpipe.loader(textured, 4, size=24, num_workers=2)))
        got.clear()
        for _ in range(3):
            done_by_another(lambda: got.extend(images for images, _ in made[-1]))
        assert len(got) == len(expected)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
        done_by_another(made.pop().close)
    tried(
        "a loader made in one thread, used in another",
        times(3, 30),
        "batches as ever, byte for byte",
    )


def iterate_for_ever(loader: fastpipe.Loader, ended: list[BaseException]) -> None:
    try:
        while True:
            list(loader)
    except BaseException as problem:
        ended.append(problem)


def test_closing_in_another_thread_ends_the_iteration(large: Path) -> None:
    """With EngineError, whatever the iterating thread is at: no sample is to blame."""
    for attempt in range(5):
        loader = fastpipe.loader(large, 6, size=512, num_workers=1, prefetch_factor=8, exact=True)
        ended: list[BaseException] = []
        worker = threading.Thread(target=iterate_for_ever, args=(loader, ended))
        worker.start()
        time.sleep(0.02 + 0.006 * attempt)
        loader.close()
        worker.join(300)
        assert not worker.is_alive()
        assert [type(problem) for problem in ended] == [EngineError], ended


def test_stats_add_up(flat: Path) -> None:
    jpeg_bytes = PackedIndex(flat).jpeg_bytes
    with fastpipe.loader(flat, 10, size=16, drop_last=False, num_workers=2) as loader:
        assert loader.stats() == fastpipe.Stats(threads=2)
        for epoch in range(3):
            list(loader)
            stats = loader.stats()
            assert stats.epoch == epoch
            assert stats.batches == 4 * (epoch + 1)
            assert stats.samples == FLAT_IMAGES * (epoch + 1)
            early = 0 if epoch == 0 else 2 * 10  # from the second epoch on, the next one is begun
            assert stats.samples <= stats.images_decoded <= stats.samples + early
            assert stats.bytes_read >= jpeg_bytes * (epoch + 1)
            assert early or stats.bytes_read == jpeg_bytes
            assert stats.replaced == 0
        assert min(stats.plan_s, stats.read_s, stats.decode_s, stats.resize_s) > 0
        assert stats.wait_s >= 0
        next(iter(loader))
        assert stats.batches == 12  # a snapshot
        assert loader.stats().batches == 13
    assert loader.stats().samples == 3 * FLAT_IMAGES + 10  # also after the end


def test_the_folder_of_the_program_may_change(
    flat: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(flat.parent)
    with fastpipe.loader(flat.name, 4, size=16) as loader:
        monkeypatch.chdir(tmp_path)
        assert sum(1 for _ in loader) == len(loader)


def test_an_iterator_that_has_ended_stays_ended(flat: Path) -> None:
    with fastpipe.loader(flat, 8, size=16) as loader:
        iterator = iter(loader)
        assert len(list(iterator)) == len(loader)
    assert list(iterator) == []


def test_a_loader_is_not_copied(loader: fastpipe.Loader) -> None:
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        words = r"cannot be copied or pickled\. In a checkpoint save loader\.state_dict\(\)"
        with pytest.raises(EngineError, match=words):
            duplicate(loader)
        with pytest.raises(
            EngineError, match=r"in another process, call fastpipe\.loader\(\.\.\.\)"
        ):
            duplicate(iter(loader))


def test_threads_may_share_an_iterator(flat: Path) -> None:
    """Each batch goes to one of them: none twice, none lost."""
    with fastpipe.loader(flat, 1, size=8, num_workers=2, train=False, prefetch_factor=1) as loader:
        for _ in range(10):
            batches, seen = iter(loader), list[int]()

            def take(batches: Iterator[Any] = batches, seen: list[int] = seen) -> None:
                for images, _ in batches:
                    seen.append(flat_number(images[0, :, 2, 2].numpy()))

            threads = [threading.Thread(target=take) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(300)
            assert sorted(seen) == list(range(FLAT_IMAGES))


def test_iterators_of_two_threads_take_turns(
    textured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share the count of epochs: none is given twice, however long it takes to begin one."""
    take = EpochSequence._next_prefetcher

    def slow(epochs: EpochSequence) -> Prefetcher:
        time.sleep(0.05)
        return take(epochs)

    monkeypatch.setattr(EpochSequence, "_next_prefetcher", slow)
    with fastpipe.loader(textured, 4, size=24, num_workers=2) as loader:
        epochs: list[list[torch.Tensor]] = []
        workers = [
            threading.Thread(target=lambda: epochs.append([images for images, _ in loader]))
            for _ in range(3)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(300)
        loader.set_epoch(0)
        expected = [[images for images, _ in loader] for _ in range(3)]
    sums = sorted(tuple(int(images.sum()) for images in epoch) for epoch in epochs)
    assert sums == sorted(tuple(int(images.sum()) for images in epoch) for epoch in expected)
