"""Programs that load by URL and end, in each way: with their exit code, in time, and no word of their own threads."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from support.programs.forked import outcomes_of
from support.remote.range_server import RangeServer
from support.running.patience import in_time
from support.running.soak import Tried, times

BEGIN = """
import signal, sys, time
import torch
import fastpipe

class Late:
    '''Holds up the end of the interpreter, while answers come.'''
    def __del__(self, sleep=time.sleep):
        sleep(HELD_UP_S)

def prepared(batch):
    time.sleep(0.002)
    return {"made": batch["id"] * 2}

def train(epochs, **options):
    loader = fastpipe.loader(data, 16, size=64, num_workers=2, **options)
    with fastpipe.monitor(loader, every=0.05):
        for epoch in range(epochs):
            for batch in loader:
                say('trains')
    return loader

late = Late()
"""
OPENED = {
    "by URL": "fastpipe.open(DATA, cache_dir={cache!r}, cache_limit=0)",
    "by URL, with a cache": "fastpipe.open(DATA, cache_dir={cache!r})",
    "a folder": "fastpipe.open({folder!r})",
}
OPTIONS = {"": "", " and prepare=": ", prepare=prepared, fields=('image', 'label', 'id')"}
# What follows, the signal that comes while it trains, and the exit code.
ENDS: dict[str, tuple[str, int, int]] = {
    "the main module ends": ("loader = train(2{options})", 0, 0),
    "sys.exit": ("loader = train(2{options}); sys.exit(3)", 0, 3),
    "an error": ("loader = train(1{options}); raise KeyError('mine')", 0, 1),
    "Ctrl-C": ("loader = train(1000{options})", signal.SIGINT, -signal.SIGINT),
    "SIGTERM with a handler": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\nloader = train(1000{options})",
        signal.SIGTERM,
        143,
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends(remote_packed: Path, tmp_path: Path, tried: Tried, end: str) -> None:
    code, number, expected = ENDS[end]
    programs: list[dict[str, Any]] = []
    for repeat in range(times(2, 50)):
        for opened in OPENED.values():
            for options in OPTIONS.values():
                data = opened.format(cache=str(tmp_path / f"cache-{len(programs)}"), folder=str(remote_packed))
                begin = BEGIN.replace("HELD_UP_S", str(0.3 * (repeat % 2)))
                program = {"code": f"{begin}\ndata = {data}\n{code.format(options=options)}\nsay('end')"}
                if number:
                    program |= {"signal": number, "after": "trains", "delay_s": 0.02 * len(programs) % 0.5}
                programs.append(program)
    with RangeServer(remote_packed, latency_s=0.05) as server:
        outcomes = outcomes_of(programs, server.url, "fastpipe.loading.factory")
    for ended in outcomes:
        assert ended["code"] == expected, ended
        assert in_time(ended["seconds"], 5), ended
        assert not ended["left"], "a process of its was left"
        if end == "Ctrl-C":  # which may come while another exception is handled: then both are shown
            assert ended["stderr"].endswith("KeyboardInterrupt\n"), ended
        else:
            assert ended["stderr"].count("Traceback") == (end == "an error"), ended
        assert "Exception" not in ended["stderr"].replace("KeyError", ""), ended
    tried(f"a program with a loader by URL, or of a folder, that ends: {end}", len(outcomes), "the exit code it meant")
