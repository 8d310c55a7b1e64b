"""Waits of a training's steps -> a PNG with one timeline for each way of feeding it, all on one scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

_WIDTH, _LEFT, _RIGHT = 1100, 64, 20
_HEAD, _PANEL, _GAP, _FOOT = 34, 84, 30, 44
_INK, _PALE, _OURS, _THEIRS = "#2b2d42", "#c9ced9", "#d1495b", "#5c6b8a"


def draw(path: Path, title: str, runs: Sequence[Mapping[str, Any]]) -> None:
    """Draws runs that have `label`, `caption` and `steps` of (asked at, waited, begins an epoch), in seconds.

    A bar stands where a step asked for its batch and is as high as it waited; a tick below is an epoch's start.
    """
    seconds = max(math.ceil(max(at for at, *_ in run["steps"])) for run in runs)
    top_ms = _round_up(1000 * max(waited for run in runs for _, waited, _ in run["steps"][1:]))
    height = _HEAD + len(runs) * (_PANEL + _GAP) + _FOOT
    image = Image.new("RGB", (_WIDTH, height), "white")
    pen = ImageDraw.Draw(image)
    small, large = ImageFont.load_default(12), ImageFont.load_default(15)
    pen.text((_LEFT, 8), title, _INK, large)
    across = (_WIDTH - _LEFT - _RIGHT) / seconds
    for number, run in enumerate(runs):
        bottom = _HEAD + (number + 1) * (_PANEL + _GAP) - 6
        _axis(pen, bottom, top_ms, small)
        pen.text((_LEFT, bottom - _PANEL - 17), f"{run['label']}   {run['caption']}", _INK, small)
        colour = _OURS if run["name"] == "fastpipe" else _THEIRS
        for at, waited, begins in run["steps"]:
            x = _LEFT + at * across
            high = min(_PANEL, _PANEL * 1000 * waited / top_ms)
            pen.rectangle((x, bottom - high, x + 1, bottom), colour)
            if begins:
                pen.line((x, bottom + 2, x, bottom + 6), _INK)
    bottom = height - _FOOT - 6
    every = next(each for each in (1, 2, 5, 10, 20, 60, 600) if seconds / each <= 20)
    for second in range(0, seconds + 1, every):
        pen.text((_LEFT + second * across, bottom + 8), str(second), _INK, small, anchor="ma")
    legend = "seconds since the start; bars: ms that a step waited for its batch; ticks: epochs begin"
    pen.text((_WIDTH / 2, bottom + 26), legend, _INK, small, anchor="ma")
    image.quantize(32).save(path, optimize=True)


def _axis(pen: ImageDraw.ImageDraw, bottom: float, top_ms: int, font: Any) -> None:
    for share in (0, 0.5, 1):
        y = bottom - share * _PANEL
        pen.line((_LEFT, y, _WIDTH - _RIGHT, y), _PALE if share else _INK)
        pen.text((_LEFT - 6, y), f"{share * top_ms:.0f} ms", _INK, font, anchor="rm")


def _round_up(value: float) -> int:
    """To 2, 4, 10, 20, 40, 100, ..."""
    power = 1
    while True:
        for step in (2, 4, 10):
            if value <= step * power:
                return step * power
        power *= 10
