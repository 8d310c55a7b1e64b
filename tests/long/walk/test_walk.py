"""Random options of fastpipe over data of all kinds: what the docs say comes, or an error that says why not."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.remote.range_server import RangeServer
from support.running.process_state import open_shards
from support.running.soak import Tried, times
from support.walk.deeds import walked
from support.walk.drawing import Draw, draw
from support.walk.walked_data import make

COUNT = times(800, 20_000)
SEED = times(90, 0)

pytestmark = [pytest.mark.usefixtures("one_thread")]


def test_random_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried) -> None:
    """A failure prints a program that does the draw again; if the process dies, doing.txt has it."""
    monkeypatch.setenv("FASTPIPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    known = make(tmp_path)

    def draws() -> Iterator[Draw]:
        for number in range(COUNT):
            made = draw(SEED, number, known, urls=True)
            (tmp_path / "doing.txt").write_text(
                f"{made.call()}  # draw {number}: {made.deed} {made.how}"
            )
            yield made

    with RangeServer(tmp_path) as server:
        ends = walked(SEED, draws(), tmp_path, server.url)
    gc.collect()
    assert open_shards(tmp_path) == 0
    assert ends.total() == COUNT
    assert ends["done"] > COUNT / 3, ends
    tried(
        "options and data at random",
        COUNT,
        "batches as documented, or an error that names the option",
    )
