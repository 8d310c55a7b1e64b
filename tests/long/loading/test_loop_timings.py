"""Loops in real time: none waits for a quick prepare=, one that waits is told, and a look of the monitor is cheap."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from support.running.patience import in_time

import fastpipe


@pytest.mark.serial
def test_the_loop_does_not_wait_for_a_tokenizer(fielded: Path) -> None:
    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.003)
        return {"length": torch.tensor([len(caption) for caption in batch["caption"]])}

    fields = ("image", "label", "caption")
    with fastpipe.loader(fielded, 8, size=16, num_workers=2, fields=fields, prepare=slow) as loader:
        for _ in loader:  # the first batch of all has nothing to be ahead of
            time.sleep(0.010)
        before = loader.stats()
        for _ in range(12):
            for _ in loader:
                time.sleep(0.010)
        spent = loader.stats().since(before)
    assert spent.prepare_s > 0.003 * spent.batches
    assert in_time(spent.prepare_wait_s / spent.batches, 0.0002), spent


@pytest.mark.serial
def test_a_real_loop_is_told(caplog: pytest.LogCaptureFixture, large: Path) -> None:
    with fastpipe.loader(
        large, 2, size=512, num_workers=1, prefetch_factor=1, exact=True
    ) as loader:
        for _ in range(30):
            for _ in loader:
                time.sleep(0.002)
        stats = loader.stats()
    assert stats.load_ratio > 0.1
    assert stats.step_s >= 60 * 0.002  # the first batch of an epoch has no step before it
    parts = stats.plan_s + stats.wait_s + stats.transfer_s + stats.augment_s
    assert 0.8 * stats.load_s < parts <= stats.load_s
    assert len(caplog.records) == 1


@pytest.mark.serial
@pytest.mark.skipif(
    not hasattr(time, "pthread_getcpuclockid"),
    reason="this system does not tell a thread's CPU time",
)
def test_a_look_takes_less_than_a_hundredth_of_a_cpu(flat: Path) -> None:
    """CPU time of the monitor's thread, which other programs do not stretch, of looks in a terminal, one a second."""
    out = io.StringIO()
    with (
        fastpipe.loader(flat, 8, size=16, num_workers=1) as loader,
        fastpipe.monitor(
            loader, every=0.01, console=Console(file=out, force_terminal=True, width=80)
        ),
    ):
        (thread,) = [each for each in threading.enumerate() if each.name == "fastpipe-monitor"]
        assert thread.ident is not None
        clock = time.pthread_getcpuclockid(thread.ident)

        def look_until(looks: int) -> float:
            deadline = time.monotonic() + 60
            while out.getvalue().count("images/s") < looks:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            return time.clock_gettime(clock)

        first = look_until(3)  # has imported what it needs
        seconds_a_look = (look_until(53) - first) / 50
    assert in_time(seconds_a_look, 0.01)
