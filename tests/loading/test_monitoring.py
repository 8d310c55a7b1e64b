"""The monitor prints what a loader does while training runs, and costs it nothing."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console
from support.running.patience import in_time

import fastpipe
from fastpipe.engine.stats import Stats
from fastpipe.errors import ConfigError
from fastpipe.loading.monitor import describe, format_line

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
    threads=8,
    threads_busy=7,
    rows_waiting=1500,
    batches_making=2,
    batches_ready=1,
    batches_copying=1,
)


def test_a_line_says_what_was_done_between_two_looks() -> None:
    assert format_line(describe(Stats(), BUSY, 2.0, 1000)) == (
        "fastpipe: epoch 2 (1,000 batches); 3,200 images/s; 200 MB/s read; 3 samples replaced; "
        "waited 25% of the steps' time, most of it for decoding threads; "
        "threads: 7 of 8 busy, read 5%, decode 80%, resize 15%; "
        "queues: 1 of 3 batches ready, 1,500 rows waiting, 1 being copied to the device"
    )
    assert format_line(describe(Stats(), Stats(threads=2), 1.0, 10)) == (
        "fastpipe: not begun; 0 images/s; 0 MB/s read; threads: 0 of 2 busy; "
        "queues: 0 of 0 batches ready, 0 rows waiting"
    )
    assert "loop" not in describe(BUSY, BUSY, 1.0, 10)  # nothing was done between the looks


def test_a_short_wait_is_not_blamed_on_anything() -> None:
    words = describe(Stats(), Stats(epoch=0, load_s=0.1, step_s=4.0, wait_s=0.1), 1.0, 10)
    assert words["loop"] == "waited 2% of the steps' time"
    words = describe(Stats(), Stats(epoch=0, load_s=40, step_s=2, wait_s=40), 1.0, 10)
    assert (
        words["loop"]
        == "waited 20.0 times as long as the steps took, most of it for decoding threads"
    )


def test_a_wait_for_the_device_is_told() -> None:
    words = describe(Stats(), Stats(epoch=0, load_s=0.1, step_s=4.0, held_s=1.0), 1.0, 10)
    assert words["loop"] == "waited 2% of the steps' time; 25% of it waiting for its device"
    words = describe(Stats(), Stats(epoch=0, load_s=0.1, step_s=4.0, held_s=0.4), 1.0, 10)
    assert words["loop"] == "waited 2% of the steps' time"


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
    assert re.search(r"fastpipe:? +epoch \d+ \(4 batches\); ", out.getvalue())
    assert re.search(r"batches ready, \d+ rows waiting", out.getvalue())
    assert not [thread for thread in threading.enumerate() if thread.name == "fastpipe-monitor"]


def test_what_the_program_prints_stays_where_it_goes(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python train.py > log` in a terminal: the display is on standard error, the program's words in the file."""
    out = io.StringIO()
    with (
        fastpipe.loader(flat, 8, size=16) as loader,
        fastpipe.monitor(loader, console=Console(file=out, force_terminal=True)),
    ):
        deadline = time.monotonic() + 300
        while "fastpipe" not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        sys.stdout.write("epoch 1: loss 0.5\n")
    assert capsys.readouterr().out == "epoch 1: loss 0.5\n"
    assert "loss" not in out.getvalue()


def test_it_ends_at_once_also_after_an_error(flat: Path) -> None:
    console = Console(file=io.StringIO())
    started = time.monotonic()
    with (
        fastpipe.loader(flat, 8, size=16, num_workers=1) as loader,
        pytest.raises(KeyError),
        fastpipe.monitor(loader, every=30, console=console),
    ):
        raise KeyError
    assert in_time(time.monotonic() - started, 10)
    with fastpipe.monitor(loader, every=0.01, console=console):
        time.sleep(0.05)  # a closed loader still has figures


@pytest.mark.parametrize("every", [0, -1, "1"])
def test_times_that_make_no_sense(flat: Path, every: object) -> None:
    with (
        fastpipe.loader(flat, 8, size=16) as loader,
        pytest.raises(ConfigError, match="every: expected a number above 0"),
    ):
        fastpipe.monitor(loader, every=every)  # type: ignore[arg-type]


def test_what_is_no_loader_and_no_console(flat: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"loader: expected a loader that fastpipe.loader made, got DataLoader"
    ):
        fastpipe.monitor(torch.utils.data.DataLoader([1]))  # type: ignore[arg-type]
    with (
        fastpipe.loader(flat, 8, size=16) as loader,
        pytest.raises(
            ConfigError,
            match=r"expected a rich.console.Console, got StringIO; for a file, write rich",
        ),
    ):
        fastpipe.monitor(loader, console=io.StringIO())  # type: ignore[arg-type]


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_time_longer_than_any_wait(flat: Path) -> None:
    with fastpipe.loader(flat, 8, size=16) as loader, fastpipe.monitor(loader, every=1e12):
        time.sleep(0.05)
