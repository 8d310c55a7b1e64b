"""A Ctrl-C while the loader hands out a batch: no batch is lost without an error.

tests/long/loading/test_signals_at_any_moment.py sends signals to whole programs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from unittest import mock

import pytest
import torch

import fastpipe
from fastpipe import EngineError
from fastpipe.loading.advice import LoadWatch


def interrupted_at(
    loader: fastpipe.Loader, line: int
) -> tuple[bool, Iterator[tuple[torch.Tensor, torch.Tensor]]]:
    """Raises KeyboardInterrupt at the n-th line that handing out the second batch runs; says whether it came so far."""
    lines = 0
    came = False

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal lines, came
        if not frame.f_code.co_filename.endswith(("epoch.py", "engine.py")):
            return None
        lines += event == "line"
        if lines == line and not came:
            came = True
            raise KeyboardInterrupt
        return trace

    iterator = iter(loader)
    next(iterator)
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        next(iterator)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return came, iterator


def test_an_interrupt_anywhere_never_leaves_a_silent_gap(flat: Path) -> None:
    with fastpipe.loader(flat, 8, size=16, train=False, num_workers=1) as loader:
        second = [labels.tolist() for _, labels in loader][1]
        for line in range(1, 1000):
            came, iterator = interrupted_at(loader, line)
            if not came:
                break
            with contextlib.suppress(EngineError):  # "an error ended this epoch"
                assert next(iterator)[1].tolist() == second, "or it goes on as if nothing had been"
        assert line > 10


def test_an_interrupt_behind_a_batch_that_is_made_leaves_no_gap(flat: Path) -> None:
    with fastpipe.loader(flat, 8, size=16, num_workers=1) as loader:
        with mock.patch.object(LoadWatch, "add", side_effect=KeyboardInterrupt):
            batches = iter(loader)
            next(batches)
            with pytest.raises(KeyboardInterrupt):
                next(batches)
        assert loader.state_dict()["batches"] == 1
        with pytest.raises(EngineError, match="an error ended this epoch"):
            next(batches)
