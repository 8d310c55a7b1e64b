"""Images and captions -> one contact sheet, as a PNG."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import FastpipeError

_GAP = 6
_CAPTION_HEIGHT = 18
_BACKGROUND = 250
_INK = (60, 60, 60)
_FIRST_BOX, _OTHER_BOX, _OUTLINE = (255, 210, 0), (255, 255, 255), (20, 20, 20)
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_FONT_SCALE = 0.4
_ENCODING = "utf-8" if int(cv2.__version__.partition(".")[0]) >= 5 else "ascii"  # of what its font has


def contact_sheet(
    images: NDArray[np.uint8], captions: Sequence[str], *, columns: int = 8, notes: Sequence[Sequence[str]] = ()
) -> NDArray[np.uint8]:
    """Lays pictures (n, h, w, 3) uint8 RGB out in rows, each with its caption below, cut to its width. Below each row
    stand its notes: the same number of lines for each, cut to the row's width.
    """
    count, height, width, _ = images.shape
    columns = min(columns, count)
    rows = -(-count // columns)
    lines = len(notes[0]) if notes else 0
    cell_h, cell_w = height + (1 + lines) * _CAPTION_HEIGHT + _GAP, width + _GAP
    sheet = np.full((rows * cell_h + _GAP, columns * cell_w + _GAP, 3), _BACKGROUND, dtype=np.uint8)
    for number, (image, caption) in enumerate(zip(images, captions, strict=True)):
        top, left = _GAP + number // columns * cell_h, _GAP + number % columns * cell_w
        sheet[top : top + height, left : left + width] = image
        _write(sheet, caption, left, top + height, width)
    for row, texts in enumerate(notes):
        top = _GAP + row * cell_h + height + _CAPTION_HEIGHT
        for number, text in enumerate(texts):
            _write(sheet, text, _GAP, top + number * _CAPTION_HEIGHT, columns * cell_w - _GAP)
    return sheet


def fitted(image: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """A picture (h, w, 3) no larger than side x side, put into the middle of a cell of that size."""
    cell = np.full((side, side, 3), _BACKGROUND, dtype=np.uint8)
    height, width, _ = image.shape
    top, left = (side - height) // 2, (side - width) // 2
    cell[top : top + height, left : left + width] = image
    return cell


def with_boxes(image: NDArray[np.uint8], boxes: NDArray[np.float64]) -> NDArray[np.uint8]:
    """A copy of a picture (h, w, 3) with boxes (n, 4), x, y, width, height, drawn into it: the first one thick."""
    drawn = image.copy()
    bottom_right = np.array([image.shape[1] - 1, image.shape[0] - 1])
    for number in range(len(boxes) - 1, -1, -1):
        first = np.clip(np.rint(boxes[number, :2]).astype(int), 0, bottom_right)
        last = np.clip(np.rint(boxes[number, :2] + boxes[number, 2:]).astype(int) - 1, 0, bottom_right)
        corners = tuple(map(int, first)), tuple(map(int, last))
        if number == 0:
            cv2.rectangle(drawn, *corners, _OUTLINE, 4)
        cv2.rectangle(drawn, *corners, _FIRST_BOX if number == 0 else _OTHER_BOX, 2 if number == 0 else 1)
    return drawn


def write_png(path: Path, image: NDArray[np.uint8]) -> None:
    """Writes (height, width, 3) uint8 RGB as a PNG, whole or not at all."""
    _, data = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(data.tobytes())
        os.replace(partial, path)
    except OSError as problem:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise FastpipeError(f"cannot write {path}: {problem.strerror}") from problem


def _write(sheet: NDArray[np.uint8], text: str, left: int, top: int, width: int) -> None:
    """A line of text, cut to a width in pixels."""
    place = (left, top + _CAPTION_HEIGHT - 5)
    cv2.putText(sheet, _fitting(text, width), place, _FONT, _FONT_SCALE, _INK, 1, cv2.LINE_AA)


def _fitting(caption: str, width: int) -> str:
    """As much of a text as a width in pixels has room for."""
    drawable = "".join(letter if letter.isprintable() else "?" for letter in caption)
    text = drawable.encode(_ENCODING, "replace").decode(_ENCODING)

    def length(letters: int) -> int:
        return cv2.getTextSize(text[:letters], _FONT, _FONT_SCALE, 1)[0][0]

    return text[: bisect_right(range(1, len(text) + 1), width, key=length)]
