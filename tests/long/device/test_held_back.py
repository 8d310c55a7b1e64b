"""A device that is slower than its host, measured: the loop is held back for the device's time, and told nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.devices.fake_stream import FakeStream
from support.pictures.drawn import FLAT_IMAGES
from support.running.patience import in_time

import fastpipe
from fastpipe.loading import factory


@pytest.mark.serial
def test_a_device_of_20_ms_a_step_and_a_host_of_2_get_no_advice(
    flat: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The usual case on a GPU: the host queues a step in 2 ms, and the loader holds it back until the GPU is there."""
    stream = FakeStream()
    stream.step_s = 0.02
    monkeypatch.setattr(factory, "stream_of", lambda device: stream)
    with fastpipe.loader(flat, 1, size=8, num_workers=2, prefetch_factor=4) as loader:
        started = time.monotonic()
        host_s = 0.0
        for _ in range(3):
            for _ in loader:
                began = time.monotonic()
                time.sleep(0.002)
                host_s += time.monotonic() - began  # more than that on a busy machine
        took = time.monotonic() - started
        stats = loader.stats()
    steps = 3 * FLAT_IMAGES
    assert took >= 0.02 * (steps - 5), "the device was busy all the time"
    assert in_time(0.7 * (took - host_s - stats.load_s), stats.held_s)
    assert in_time(0.8 * took, stats.step_s)
    assert in_time(stats.load_ratio, 0.1)
    assert not [record for record in caplog.records if "waited for data" in record.message]
