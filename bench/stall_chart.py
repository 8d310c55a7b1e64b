"""Waits of a training's steps -> a PNG with one timeline for each way of feeding it, all on one scale."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

_WIDTH, _LEFT, _RIGHT = 1100, 64, 20
_HEAD, _PANEL, _GAP, _FOOT = 34, 84, 30, 44
_INK, _PALE, _THEIRS = "#2b2d42", "#c9ced9", "#5c6b8a"
_OURS = {"fastpipe": "#d1495b", "dataset": "#c98b3a"}


def draw(path: Path, title: str, runs: Sequence[Mapping[str, Any]]) -> None:
    """Draws runs that have `name`, `label`, `caption` and `steps` of (asked at, waited, begins an epoch), in seconds.

    Each wait is a tooth: it rises, as the step waits longer and longer, and falls when the batch is there. Teeth that
    are too long for the scale are cut, and their length is written beside them.
    """
    seconds = max(math.ceil(sum(run["steps"][-1][:2])) for run in runs)
    longest_ms = [1000 * max(waited for _, waited, _ in run["steps"][1:]) for run in runs]
    top_ms = _round_up(statistics.median_high(longest_ms))
    image = Image.new("RGB", (_WIDTH, _HEAD + len(runs) * (_PANEL + _GAP) + _FOOT), "white")
    pen = ImageDraw.Draw(image)
    small, large = ImageFont.load_default(12), ImageFont.load_default(15)
    pen.text((_LEFT, 8), title, _INK, large)
    across = (_WIDTH - _LEFT - _RIGHT) / seconds  # pixels a second
    for number, run in enumerate(runs):
        bottom = _HEAD + (number + 1) * (_PANEL + _GAP) - 6
        _axis(pen, bottom, top_ms, small)
        pen.text((_LEFT, bottom - _PANEL - 18), f"{run['label']}   {run['caption']}", _INK, small)
        for at, waited, begins in run["steps"]:
            _tooth(
                pen,
                run["name"],
                _LEFT + at * across,
                bottom,
                waited,
                (across, _PANEL * 1000 / top_ms),
                small,
            )
            if begins:
                pen.line((_LEFT + at * across, bottom + 2, _LEFT + at * across, bottom + 6), _INK)
    bottom = image.height - _FOOT - 6
    every = next(each for each in (1, 2, 5, 10, 20, 60, 600) if seconds / each <= 20)
    for second in range(0, seconds + 1, every):
        pen.text((_LEFT + second * across, bottom + 8), str(second), _INK, small, anchor="ma")
    legend = (
        "seconds since the start; a tooth: how long a step has waited for its batch so far; "
        "a tick: an epoch begins"
    )
    pen.text((_WIDTH / 2, bottom + 26), legend, _INK, small, anchor="ma")
    image.save(path, optimize=True)


def _tooth(
    pen: ImageDraw.ImageDraw,
    name: str,
    x: float,
    bottom: float,
    waited: float,
    scale: tuple[float, float],
    font: Any,
) -> None:
    across, up = scale
    end, high = x + max(1.0, waited * across), waited * up
    colour = _OURS.get(name, _THEIRS)
    if high <= _PANEL:
        pen.polygon([(x, bottom), (end, bottom - high), (end, bottom)], colour)
        return
    cut = x + (end - x) * _PANEL / high
    top = bottom - _PANEL
    pen.polygon([(x, bottom), (cut, top), (end, top), (end, bottom)], colour)
    pen.text((end + 3, top + 2), f"{waited:.1f} s", _INK, font)


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
