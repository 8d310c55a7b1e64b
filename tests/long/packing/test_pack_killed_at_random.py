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


@pytest.mark.parametrize("how", ["threads", "steps"])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_pack_killed_at_random_moments_goes_on(
    programs: Forks, tmp_path: Path, tried: Tried, kind: str, how: str
) -> None:
    source, packed, draw = MAKERS[kind](tmp_path / "source", images=120), tmp_path / "packed", random.Random(5)

    def start(*options: object) -> int:
        return programs.start("pack", source, packed, *SHARD_SIZE, *options, setting=SETTING)

    def ways() -> list[tuple[object, ...]]:
        workers = "--workers", draw.choice((1, 2, 8))
        steps = [("--step", step, *workers) for step in ("list", "convert", "make", "publish")]
        return [workers] if how == "threads" else steps  # type: ignore[list-item]

    began = time.monotonic()
    assert programs.wait(start("--workers", 2)).code == 0
    took_s, whole = time.monotonic() - began, digests(packed)
    shutil.rmtree(packed)
    killed, wanted = 0, times(2, 200)
    while killed < wanted:
        for options in ways():
            while True:
                program = start(*options)
                if killed < wanted:
                    time.sleep(draw.uniform(0, took_s / 2))
                    os.kill(program, signal.SIGKILL)
                ended = programs.wait(program)
                assert ended.code in (0, -signal.SIGKILL), ended.err
                killed += ended.code != 0
                if ended.code == 0:
                    break
                if how == "threads":
                    options = ways()[0]
        assert digests(packed) == whole
        shutil.rmtree(packed)
    said = "pack of a folder, tar, list or Parquet, in threads or in steps, ended by SIGKILL at a random moment"
    tried(said, killed, "more or fewer threads, or the same step again, go on; same bytes")
