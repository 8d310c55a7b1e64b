"""Packs of every kind of source, ended by SIGKILL at random moments: more or fewer threads go on, to the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from support.faults.forks import Forks
from support.ray.sources import MAKERS
from support.running.soak import Tried, times
from support.sources.pack_sources import digests

SETTING = {
    "fastpipe.packing.pipeline.exchange._SPOOLED_BYTES": 300_000,
    "fastpipe.packing.pipeline.ahead.RUN_TASKS": 2,
}
SHARD_SIZE = "--shard-size", "400000"


@pytest.mark.parametrize("kind", MAKERS)
def test_a_pack_killed_at_random_moments_goes_on(
    programs: Forks, tmp_path: Path, tried: Tried, kind: str
) -> None:
    source = MAKERS[kind](tmp_path / "source", images=120)
    packed = tmp_path / "packed"
    draw = random.Random(5)

    def start(workers: int) -> int:
        return programs.start(
            "pack", source, packed, *SHARD_SIZE, "--workers", workers, setting=SETTING
        )

    began = time.monotonic()
    assert programs.wait(start(2)).code == 0
    took_s = time.monotonic() - began
    whole = digests(packed)
    shutil.rmtree(packed)
    killed, wanted = 0, times(2, 200)
    while killed < wanted:
        while True:
            program = start(draw.choice((1, 2, 8)))
            if killed < wanted:
                time.sleep(draw.uniform(0, took_s / 2))
                os.kill(program, signal.SIGKILL)
            ended = programs.wait(program)
            assert ended.code in (0, -signal.SIGKILL), ended.err
            killed += ended.code != 0
            if ended.code == 0:
                break
        assert digests(packed) == whole
        shutil.rmtree(packed)
    text = "pack of a folder, tar, list or Parquet, ended by SIGKILL at a random moment"
    tried(text, killed, "more or fewer threads go on; same bytes")
