"""Tests of the numbers that a loader gives about itself; more of what they count is in test_loader_life.py."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.datasets.packed import damage
from support.devices.fake_stream import FakeStream
from support.sources.pack_sources import saved

import fastpipe
from fastpipe.engine.stats import LEVELS, Stats
from fastpipe.loading.advice import LoadWatch
from fastpipe.sources.scan.index import UnpackedIndex


def test_a_new_loader_has_done_nothing() -> None:
    stats = Stats()
    assert stats.epoch == -1
    assert all(value == 0 for name, value in stats.as_dict().items() if name != "epoch")


def test_as_dict_is_ready_for_json() -> None:
    stats = Stats(epoch=3, batches=2, samples=64, wait_s=0.25)
    assert json.loads(json.dumps(stats.as_dict())) == {
        **dataclasses.asdict(stats),
        "load_ratio": 0.0,
    }


def test_every_field_is_described() -> None:
    described = (Stats.__doc__ or "").partition("Attributes:")[2]
    for field in dataclasses.fields(Stats):
        assert field.name in described


def test_differences_are_of_all_but_the_levels() -> None:
    before = Stats(epoch=1, batches=2, samples=64, wait_s=0.25, rows_waiting=9, batches_ready=1)
    after = Stats(
        epoch=3, batches=5, samples=160, wait_s=1.0, step_s=2.0, rows_waiting=4, batches_ready=2
    )
    assert after.since(before) == Stats(
        epoch=3, batches=3, samples=96, wait_s=0.75, step_s=2.0, rows_waiting=4, batches_ready=2
    )
    assert set(LEVELS) < {field.name for field in dataclasses.fields(Stats)}


def settled(loader: fastpipe.Loader) -> Stats:
    """Once the engine has nothing to do any more."""
    deadline = time.monotonic() + 300
    while (stats := loader.stats()).batches_making or stats.threads_busy:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return stats


def test_a_loop_that_is_slow_has_batches_ready(flat: Path) -> None:
    """37 samples, 9 batches of 4; 3 are made ahead."""
    with fastpipe.loader(flat, 4, size=8, num_workers=2, prefetch_factor=3) as loader:
        assert (loader.stats().batches_ready, loader.stats().slots_lent) == (0, 0)
        batches = iter(loader)
        kept = [next(batches)]
        full = settled(loader)
        assert (full.threads, full.threads_busy, full.rows_waiting) == (2, 0, 0)
        assert (full.batches_making, full.batches_ready, full.slots_lent) == (0, 3, 4)
        assert full.images_read == full.images_decoded == 16
        assert (
            1 <= full.shards_opened <= 3
        )  # threads that find it closed at the same time each open it
        kept.append(next(batches))
        assert settled(loader).slots_lent == 5
        kept.clear()
        assert settled(loader).slots_lent == 3
        assert loader.stats().slots_idle == 2
        list(batches)
        assert settled(loader).batches_ready == 0
        batches = iter(loader)
        next(batches)
        assert settled(loader).batches_ready == 3
        del batches  # an epoch that nobody goes on with
        assert settled(loader).batches_ready == 0
    assert loader.stats().threads == 2


def test_batches_with_masks_are_counted_once(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "data", fields={"one": "mask", "two": "mask"}) as writer:
        for _ in range(16):
            mask = np.ones((9, 9), np.uint8)
            writer.add(np.zeros((9, 9, 3), np.uint8), label=0, one=mask, two=mask)
    fields = ("image", "one", "two")
    with fastpipe.loader(
        tmp_path / "data", 2, size=8, num_workers=1, prefetch_factor=3, fields=fields
    ) as loader:
        next(batches := iter(loader))
        full = settled(loader)
        assert (full.batches_making, full.batches_ready) == (0, 3)
        del batches


def test_rows_that_wait_for_a_conversion_are_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    real = UnpackedIndex.convert

    def slow(self: UnpackedIndex, sample: int) -> bytes:
        if sample >= 2:
            go_on.wait(300)
        return real(self, sample)

    monkeypatch.setattr(UnpackedIndex, "convert", slow)
    (tmp_path / "photos").mkdir()
    for number in range(8):
        (tmp_path / "photos" / f"{number}.bmp").write_bytes(saved("BMP"))
    with fastpipe.loader(
        tmp_path / "photos",
        2,
        train=False,
        size=8,
        num_workers=1,
        prefetch_factor=2,
        drop_last=True,
    ) as loader:
        next(batches := iter(loader))
        stats = loader.stats()
        assert (stats.batches_making, stats.batches_ready, stats.threads) == (2, 0, 2)
        deadline = time.monotonic() + 300
        while loader.stats().threads_busy < 1:  # the thread that converts
            assert time.monotonic() < deadline
        go_on.set()
        assert settled(loader).batches_ready == 2
        del batches


@pytest.mark.parametrize(("damaged", "read"), [("pixels", 37), ("shard", 0)])
def test_rows_that_fail_are_counted_where_they_failed(
    flat: Path, copied: Callable[[Path], Path], damaged: str, read: int
) -> None:
    dataset = copied(flat)
    if damaged == "pixels":
        damage(dataset, 3)
    with fastpipe.loader(dataset, 37, size=8, train=False, num_workers=2) as loader:
        if damaged == "shard":
            (shard,) = loader.dataset.index.shards
            shard.path.unlink()
        with pytest.raises(fastpipe.SampleError):
            next(iter(loader))
        stats = loader.stats()
        assert stats.images_read == read
        assert stats.images_failed == (1 if read else 37)
        assert stats.images_decoded == 37 - stats.images_failed
        assert stats.replaced == 0


def test_batches_on_the_way_to_the_device(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeStream(at_once=False)
    monkeypatch.setattr(sys.modules["fastpipe.loading.factory"], "stream_of", lambda device: stream)
    with fastpipe.loader(flat, 4, size=8, num_workers=1) as loader:
        batches = iter(loader)
        next(batches)
        assert loader.stats().batches_copying == 2  # the one that was handed out, and the next
        for mark in stream.marks[:3]:  # begin, copied, augmented
            mark.is_done = True
        assert loader.stats().batches_copying == 2  # as of when the loop last asked
        next(batches)
        assert loader.stats().batches_copying == 2  # one is done, another queued
        assert loader.stats().pinned_bytes == stream.pinned_bytes > 0


def test_on_the_cpu_nothing_waits_for_a_device(flat: Path) -> None:
    with fastpipe.loader(flat, 4, size=8, num_workers=1) as loader:
        for _ in loader:
            assert loader.stats().batches_copying == 0
        assert loader.stats().batches > 4
        assert loader.stats().held_s == 0


def test_a_monitors_thread_never_asks_the_device(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To query an event while the training loop captures a CUDA graph would break the capture."""
    stream = FakeStream()
    monkeypatch.setattr(sys.modules["fastpipe.loading.factory"], "stream_of", lambda device: stream)
    with fastpipe.loader(flat, 4, size=8, num_workers=1) as loader:
        for _ in loader:
            stream.asked.clear()
            seen: list[fastpipe.Stats] = []
            monitor = threading.Thread(target=lambda: seen.append(loader.stats()))  # noqa: B023
            monitor.start()
            monitor.join()
            assert (len(seen), stream.asked) == (1, [])
        assert stream.marks


def test_rows_that_wait_for_a_thread(many_shards: Path) -> None:
    """Of 4 batches of 6 rows, all are asked for when the first is handed out."""
    stats = Stats()
    for _ in range(100):
        if stats.rows_waiting and stats.threads_busy:
            break
        # Again, if a busy machine came back here when all was done.
        with fastpipe.loader(many_shards, 6, size=256, num_workers=1, prefetch_factor=3) as loader:
            batches = iter(loader)
            next(batches)
            stats = loader.stats()
    assert (stats.threads, stats.threads_busy) == (1, 1)
    assert stats.rows_waiting + stats.images_decoded in (4 * 6 - 1, 4 * 6 - 2), (
        "one row is with the thread"
    )
    assert 1 <= stats.batches_making == 3 - stats.batches_ready


def test_loads_and_steps_add_up(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float, float]] = []
    monkeypatch.setattr(
        LoadWatch, "add", lambda self, load_s, step_s: told.append((load_s, step_s))
    )
    begun = time.perf_counter()
    with fastpipe.loader(flat, 4, size=8, num_workers=1) as loader:
        next(iter(loader))
        first = loader.stats()
        assert (first.step_s, first.load_ratio, told) == (0, 0, []), (
            "no step before the first batch"
        )
        assert first.load_s > 0
        for _ in range(2):
            list(loader)
        stats = loader.stats()
    assert stats.load_s + stats.step_s < time.perf_counter() - begun
    assert len(told) == 2 * 8, "the first batch of an epoch has no step before it"
    assert min(min(pair) for pair in told) > 0
    loads_s, steps_s = map(sum, zip(*told, strict=True))
    assert stats.step_s == pytest.approx(steps_s)
    assert loads_s < stats.load_s - first.load_s
    assert stats.load_ratio == stats.load_s / stats.step_s
    parts_s = stats.plan_s + stats.wait_s + stats.transfer_s + stats.augment_s
    assert 0 < parts_s <= stats.load_s
