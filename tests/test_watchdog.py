"""A loader from which no batch comes says which thread is stuck at what; first it warns, then it raises."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fastpipe
from fastpipe.errors import ConfigError, EngineError
from fastpipe.pack.job import PackOptions, pack
from fastpipe.watchdog import Activity, Watchdog


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pictures that take a good part of a second each."""
    source = tmp_path_factory.mktemp("slow") / "source"
    (source / "only").mkdir(parents=True)
    noise = np.random.default_rng(1).integers(0, 256, (3000, 4000, 3), dtype=np.uint8)
    for number in range(2):
        Image.fromarray(noise).save(source / "only" / f"{number}.jpg", quality=98, subsampling=0)
    pack(source, source.with_name("packed"), PackOptions(workers=1))
    return source.with_name("packed")


def test_a_slow_batch_is_told_once_and_comes(slow: Path, caplog: pytest.LogCaptureFixture) -> None:
    with fastpipe.loader(slow, 2, size=2000, train=False, num_workers=1) as loader:
        started = time.monotonic()
        list(loader)
        took_s = time.monotonic() - started
    timeout_s = round(took_s / 5, 3)  # so that twice as long as before is no error yet
    with fastpipe.loader(slow, 2, size=2000, train=False, num_workers=1, stall_timeout=timeout_s) as loader:
        ((images, _),) = loader
    assert images.shape[0] == 2
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("fastpipe", logging.WARNING)
    assert re.match(r"no batch for \d+ s: stuck ", record.message)
    for words in (
        "sample ",
        "key ",
        "at byte ",
        str(slow),
        "thread 0: ",
        "machine: ",
        "CPUs granted",
        f"after {10 * timeout_s:g} s",
    ):
        assert words in record.message


def test_ten_times_as_long_is_an_error(slow: Path, caplog: pytest.LogCaptureFixture) -> None:
    with fastpipe.loader(slow, 2, size=2000, train=False, num_workers=1, stall_timeout=0.004) as loader:
        batches = iter(loader)
        with pytest.raises(EngineError, match=r"no batch for 0 s: stuck (opening|reading|decoding) sample 0 "):
            next(batches)
        with pytest.raises(EngineError, match="ended by an error"):
            next(batches)
    assert len(caplog.records) == 1


def test_a_loader_that_keeps_up_says_nothing(textured: Path, caplog: pytest.LogCaptureFixture) -> None:
    with fastpipe.loader(textured, 4, size=16, num_workers=1) as loader:
        list(loader)
    assert not caplog.records


def test_every_stage_has_its_words(flat: Path) -> None:
    index = fastpipe.open(flat)
    offset = int(index.records[3]["offset"])
    for stage, says in (
        ("opening", "the file system does not answer"),
        ("reading", "the disk or the network does not answer"),
        ("decoding", "slow to decode"),
        ("resizing", "the output is very large"),
    ):
        activities = [Activity("idle", 0, 0, 0.0), Activity(stage, 0, offset, 61.0), Activity("reading", 0, 7, 3.0)]
        dog = Watchdog(60, index, lambda activities=activities: activities)  # type: ignore[misc]
        with pytest.raises(EngineError) as caught:
            dog.look(600)
        lines = str(caught.value).splitlines()
        assert lines[0].startswith(f"no batch for 600 s: stuck {stage} sample 3 (key 0000000003) at byte {offset} of ")
        assert says in lines[0]
        assert [line.split(":")[0].strip() for line in lines[1:]] == ["thread 0", "thread 1", "thread 2", "machine"]
        assert lines[1].endswith("idle")
        assert "byte 7 of" in lines[3]


def test_threads_without_work_are_not_blamed(flat: Path) -> None:
    dog = Watchdog(1, fastpipe.open(flat), lambda: [Activity("idle", 0, 0, 0.0)])
    with pytest.raises(EngineError, match="the threads have nothing to do"):
        dog.look(10)


@pytest.mark.parametrize("value", [0, -1, "60", None, float("nan"), float("inf"), True])
def test_timeouts_that_make_no_sense(flat: Path, value: object) -> None:
    with pytest.raises(ConfigError, match="stall_timeout: expected a number above 0, got"):
        fastpipe.loader(flat, 4, size=8, stall_timeout=value)  # type: ignore[arg-type]


def test_activities_are_those_of_the_moment(slow: Path) -> None:
    from fastpipe.engine import Engine

    index = fastpipe.open(slow)
    with fastpipe.loader(slow, 1, size=2000, train=False, num_workers=2) as loader:
        engine: Engine = loader._engine
        assert [each.stage for each in engine.activities()] == ["idle", "idle"]
        batches = iter(loader)
        next(batches)
        time.sleep(0.05)
        busy = [each for each in engine.activities() if each.stage != "idle"]
        assert all(each.offset in index.records["offset"] and each.seconds > 0 for each in busy)
        list(batches)
        assert [each.stage for each in engine.activities()] == ["idle", "idle"]
