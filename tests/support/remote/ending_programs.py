"""Programs that load by URL, to be ended in some way, and the checks of their end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.programs.forked import outcomes_of
from support.remote.range_server import RangeServer
from support.running.patience import in_time

MOST_S = 5
_LATENCY_S = 0.05

_BEGIN = """
import os, signal, sys, time
import torch
import fastpipe

class Late:
    '''Holds up the end of the interpreter, while answers come.'''
    def __del__(self, sleep=time.sleep):
        sleep(HELD_UP_S)

def prepared(batch):
    time.sleep(0.002)
    return {"made": batch["id"] * 2}

def train(epochs, on_batch=lambda batch: None, **options):
    loader = fastpipe.loader(data, 16, size=64, num_workers=2, **options)
    with fastpipe.monitor(loader, every=0.05):
        for epoch in range(epochs):
            for batch in loader:
                on_batch(batch)
                say('trains')
    return loader

late = Late()
"""
_OPENED = {
    "by URL": "fastpipe.open(DATA, cache_dir={cache!r}, cache_limit=0)",
    "by URL, with a cache": "fastpipe.open(DATA, cache_dir={cache!r})",
    "a folder": "fastpipe.open({folder!r})",
}
_OPTIONS = {"": "", " and prepare=": ", prepare=prepared, fields=('image', 'label', 'id')"}


def programs_that_end(
    code: str, rounds: int, folder: Path, caches: Path, end: dict[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Programs that open a dataset in each way and then run `code`, with and without prepare=, some rounds of all.

    Args:
        code: "{options}" in it are the options of `train`, "{number}" is the number of the program.
        rounds: how often each.
        folder: the packed dataset.
        caches: where each program has a folder for its cache.
        end: the signal that a program gets when it trains; see forked_programs.py.
    """
    number = 0
    for repeat in range(rounds):
        begin = _BEGIN.replace("HELD_UP_S", str(0.3 * (repeat % 2)))
        for opened in _OPENED.values():
            data = opened.format(cache=str(caches / f"cache-{number}"), folder=str(folder))
            for options in _OPTIONS.values():
                rest = code.replace("{options}", options).replace("{number}", str(number))
                program: dict[str, Any] = {"code": f"{begin}\ndata = {data}\n{rest}\nsay('end')"}
                if end is not None:
                    program |= {"after": "trains", "delay_s": 0.02 * number % 0.5, **end}
                yield program
                number += 1


def check_ends(
    programs: Iterator[dict[str, Any]],
    folder: Path,
    code: int,
    tracebacks: int,
    last: str = "",
    lost_in: str = "",
    crashes_before: str = "",
) -> list[dict[str, Any]]:
    """Runs the programs and checks that each ends with the exit code, in time, leaves no process, and prints no error
    but so many tracebacks, or with `last`, as many as there are before these last words.

    Python drops a Ctrl-C that comes in a `__del__`. Programs in which that is the test's own `lost_in` do not count.
    Neither do programs that a segmentation fault ends before they say `crashes_before`: a library of others may crash
    when it starts. Of both kinds there may be one, and one more in 50 programs.
    """
    with RangeServer(folder, latency_s=_LATENCY_S) as server:
        outcomes = outcomes_of(list(programs), server.url, "fastpipe.loading.factory")
    num_programs = len(outcomes)
    if lost_in:
        lost = f"Exception ignored in: <function {lost_in}"
        outcomes = [outcome for outcome in outcomes if lost not in outcome["stderr"]]
    if crashes_before:
        outcomes = [
            outcome
            for outcome in outcomes
            if outcome["code"] != -signal.SIGSEGV or crashes_before in outcome["said"]
        ]
    assert num_programs - len(outcomes) <= 1 + num_programs // 50
    for outcome in outcomes:
        assert outcome["code"] == code, outcome
        assert in_time(outcome["seconds"], MOST_S), outcome
        assert not outcome["left"], "a process of its was left"
        if last:
            assert outcome["stderr"].endswith(last), outcome
        else:
            assert outcome["stderr"].count("Traceback") == tracebacks, outcome
        assert "Exception" not in outcome["stderr"].replace("KeyError", ""), outcome
    return outcomes
