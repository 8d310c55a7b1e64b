"""A loader from which no batch comes says which thread is stuck at what; first it warns, then it raises."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.batches.engine_jobs import images_for, plan_all, wait_done
from support.datasets.members import member_of

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.engine import watchdog
from fastpipe.engine.engine import Engine
from fastpipe.engine.watchdog import Activity, Watchdog
from fastpipe.errors import ConfigError, EngineError

AT_ONCE_S = 1e-5  # shorter than any batch of large outputs takes
# A busy machine may hold the loop's thread up for a tenth of a second. These batches take longer.
LARGE_OUTPUT = {"batch_size": 6, "size": 4000, "train": False, "num_workers": 1}


def test_a_slow_batch_is_told_once_and_comes(
    large: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_ERROR_FACTOR", 10**9)
    with fastpipe.loader(large, stall_timeout=AT_ONCE_S, **LARGE_OUTPUT) as loader:
        ((images, _),) = loader
    assert images.shape[0] == 6
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("fastpipe", logging.WARNING)
    assert re.match(r"no batch for \d+ s: stuck ", record.message)
    for words in (
        "sample ",
        "member ",
        "at byte ",
        str(large),
        "thread 0: ",
        "machine: ",
        "CPUs granted",
        "after 10000 s",
    ):
        assert words in record.message


class Clock:
    """Time that passes only while something waits for as long as it says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, comes_after_s: float) -> None:
        self.now_s = 100.0
        self.waits: list[float] = []
        self._comes_s = self.now_s + comes_after_s
        monkeypatch.setattr(watchdog, "time", SimpleNamespace(perf_counter=lambda: self.now_s))

    def ended(self, timeout_s: float) -> bool:
        if timeout_s:  # else it only looks
            self.waits.append(timeout_s)
        self.now_s = min(self.now_s + timeout_s, self._comes_s)
        return self.now_s >= self._comes_s


def test_a_wait_is_watched_to_the_second(
    flat: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Warned after `timeout_s`, once in each wait, ended after ten times as long, and never before."""
    dog = Watchdog(0.25, fastpipe.open(flat).index, lambda: [Activity("reading", 0, 0, 1.0)])
    checks: list[float] = []

    def wait(comes_after_s: float, stuck: str = "") -> tuple[float, int]:
        """Seconds that it took, and warnings."""
        caplog.clear()
        clock = Clock(monkeypatch, comes_after_s)
        took_s = dog.wait(clock.ended, stuck, lambda: checks.append(clock.now_s))
        assert max(clock.waits) <= 0.1
        assert min(clock.waits) >= 0.01
        return took_s, len(caplog.records)

    assert wait(0) == (0, 0)
    assert checks == []
    assert wait(0.24) == (pytest.approx(0.24), 0)
    assert len(checks) == 2
    assert wait(0.3) == (pytest.approx(0.3), 1)
    assert "; after 2.5 s (10 times stall_timeout) there is an error" in caplog.text
    assert wait(2.4) == (pytest.approx(2.4), 1)
    with pytest.raises(EngineError, match="no batch for 2 s: stuck reading"):
        wait(2.7)
    assert wait(40, "for the program") == (pytest.approx(40), 1)
    assert "no batch for 0 s: for the program" in caplog.text
    assert "there is an error" not in caplog.text


def test_every_stage_has_its_words(flat: Path) -> None:
    index = fastpipe.open(flat).index
    offset = int(index.records[3]["offset"])
    for stage, says in (
        ("opening", "the file system does not answer"),
        ("reading", "the disk or the network does not answer"),
        ("decoding", "slow to decode"),
        ("resizing", "the output is very large"),
    ):
        activities = [
            Activity("idle", 0, 0, 0.0),
            Activity(stage, 0, offset, 61.0),
            Activity("reading", 0, 7, 3.0),
        ]
        dog = Watchdog(60, index, lambda activities=activities: activities)  # type: ignore[misc]
        with pytest.raises(EngineError) as caught:
            dog.look(600)
        lines = str(caught.value).splitlines()
        assert lines[0].startswith(
            f"no batch for 600 s: stuck {stage} sample 3 (member {member_of(index, 3)}) at byte {offset} of "
        )
        assert says in lines[0]
        assert [line.split(":")[0].strip() for line in lines[1:]] == [
            "thread 0",
            "thread 1",
            "thread 2",
            "machine",
        ]
        assert lines[1].endswith("idle")
        assert "byte 7 of" in lines[3]


def test_threads_without_work_are_not_blamed(flat: Path) -> None:
    dog = Watchdog(1, fastpipe.open(flat).index, lambda: [Activity("idle", 0, 0, 0.0)])
    with pytest.raises(
        EngineError, match="no thread is at work on it, which is a fault of fastpipe"
    ):
        dog.look(10)


def test_timeouts_that_make_no_sense(flat: Path) -> None:
    for value in (0, -1, "60", None, float("nan"), float("inf"), True):
        with pytest.raises(ConfigError, match="stall_timeout: expected a number above 0, got"):
            fastpipe.loader(flat, 4, size=8, stall_timeout=value)  # type: ignore[arg-type]


def test_activities_are_those_of_the_moment(large: Path) -> None:
    index = PackedIndex(large)
    engine = Engine(index, 2)
    assert [each.stage for each in engine.activities()] == ["idle", "idle"]
    plan = plan_all(index)
    jobs = [engine.submit(plan, (images_for(plan), True)) for _ in range(20)]
    busy: list[Activity] = []
    deadline = time.monotonic() + 300
    while not busy:
        assert time.monotonic() < deadline
        busy = [each for each in engine.activities() if each.stage != "idle"]
    for each in busy:
        assert each.stage in ("opening", "reading", "decoding", "resizing")
        assert each.shard == 0
        assert np.isin(each.offset, index.records["offset"])
        assert 0 <= each.seconds < 300
    for job in jobs:
        assert wait_done(job) == []
    assert [each.stage for each in engine.activities()] == ["idle", "idle"]
    engine.close()
