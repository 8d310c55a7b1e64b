"""The monitor prints what a loader does while training runs, and costs it nothing."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.monitoring import line
from fastpipe.stats import Stats

BUSY = Stats(
    epoch=2,
    batches=50,
    samples=6400,
    load_s=1.0,
    step_s=4.0,
    wait_s=0.8,
    plan_s=0.1,
    bytes_read=400_000_000,
    read_s=0.5,
    decode_s=8.0,
    resize_s=1.5,
    replaced=3,
)


def test_a_line_says_what_was_done_between_two_looks() -> None:
    assert line(Stats(), BUSY, 2.0, 1000) == (
        "fastpipe: epoch 2 (1,000 batches); 3,200 images/s; 200 MB/s read; waited 25% of the steps' time, "
        "most of it for decoding threads; threads: read 5%, decode 80%, resize 15%; 3 samples replaced"
    )
    assert line(BUSY, BUSY, 1.0, 10) == ("fastpipe: epoch 2 (10 batches); 0 images/s; 0 MB/s read; 3 samples replaced")
    assert line(Stats(), Stats(), 1.0, 10).startswith("fastpipe: not begun; 0 images/s")


def test_a_short_wait_is_not_blamed_on_anything() -> None:
    text = line(Stats(), Stats(epoch=0, load_s=0.1, step_s=4.0, wait_s=0.1), 1.0, 10)
    assert "waited 2% of the steps' time" in text
    assert "most of it" not in text


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_are_printed_while_a_loop_runs(flat: Path, terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=300)
    with (
        fastpipe.loader(flat, 8, size=16, num_workers=1) as loader,
        fastpipe.monitor(loader, every=0.05, console=console),
    ):
        while out.getvalue().count("images/s") < 3:
            for _ in loader:
                time.sleep(0.002)
    assert "fastpipe: epoch " in out.getvalue()
    assert "(4 batches)" in out.getvalue()
    assert not [thread for thread in threading.enumerate() if thread.name == "fastpipe-monitor"]


def test_it_ends_at_once_also_after_an_error(flat: Path) -> None:
    console = Console(file=io.StringIO())
    started = time.monotonic()
    with (
        fastpipe.loader(flat, 8, size=16, num_workers=1) as loader,
        pytest.raises(KeyError),
        fastpipe.monitor(loader, every=30, console=console),
    ):
        raise KeyError
    assert time.monotonic() - started < 10
    with fastpipe.monitor(loader, every=0.01, console=console):
        time.sleep(0.05)  # a closed loader still has figures


@pytest.mark.parametrize("every", [0, -1, "1"])
def test_times_that_make_no_sense(flat: Path, every: object) -> None:
    with (
        fastpipe.loader(flat, 8, size=16) as loader,
        pytest.raises(ConfigError, match="every: expected a number above 0"),
    ):
        fastpipe.monitor(loader, every=every)  # type: ignore[arg-type]
