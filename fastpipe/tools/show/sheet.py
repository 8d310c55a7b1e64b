"""Images and captions -> one contact sheet, as a PNG."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np

from fastpipe.arrays import Float64s, Int64s, Uint8s
from fastpipe.errors import FastpipeError
from fastpipe.tools.show.sheet_mark import with_mark

_GAP = 6
_CAPTION_HEIGHT = 18
BACKGROUND = 250
_INK = (60, 60, 60)
_FIRST_BOX = (255, 210, 0)
_OTHER_BOX = (255, 255, 255)
_OUTLINE = (20, 20, 20)
FONT = cv2.FONT_HERSHEY_SIMPLEX
FONT_SCALE = 0.4
# The font of OpenCV 4 has ASCII alone.
_CV2_MAJOR = int(cv2.__version__.partition(".")[0])
_ELLIPSIS = ".."  # narrower than three dots
_ENCODING = "utf-8" if _CV2_MAJOR >= 5 else "ascii"

Pixels = Uint8s
"""(height, width, 3) RGB."""


def contact_sheet(
    images: Pixels,
    captions: Sequence[str],
    *,
    columns: int = 8,
    notes: Sequence[Sequence[str]] = (),
    title: Sequence[str] = (),
) -> Pixels:
    """Lays pictures out in rows, each with its caption below.

    Args:
        images: (n, height, width, 3).
        captions: (n,) shortened to the width of a picture.
        columns: pictures in a row.
        notes: for each row the lines below it, as many for each row, cut to the row's width.
        title: lines above all pictures: what they are of, and what the colours say.

    Returns:
        The sheet.
    """
    count, height, width, _ = images.shape
    columns = min(columns, count)
    rows = -(-count // columns)
    text_lines = 1  # below a picture: its caption, and the notes of its row
    if notes:
        notes_of_row = notes[0]
        text_lines += len(notes_of_row)
    text_height = text_lines * _CAPTION_HEIGHT
    cell_height = height + text_height + _GAP
    cell_width = width + _GAP
    title_height = len(title) * _CAPTION_HEIGHT
    rows_height = rows * cell_height
    columns_width = columns * cell_width
    sheet_height = title_height + rows_height + _GAP
    sheet_width = columns_width + _GAP
    sheet_shape = (sheet_height, sheet_width, 3)
    sheet = np.full(sheet_shape, BACKGROUND, dtype=np.uint8)

    text_width = sheet_width - 2 * _GAP
    first_top = title_height + _GAP
    for number, line in enumerate(title):
        text = _cut_end(line, text_width)
        top = number * _CAPTION_HEIGHT
        _write(sheet, text, _GAP, top)
    cells = zip(images, captions, strict=True)
    for number, (image, caption) in enumerate(cells):
        row, column = divmod(number, columns)
        top = first_top + row * cell_height
        start = _GAP + column * cell_width
        bottom = top + height
        end = start + width
        sheet[top:bottom, start:end] = image
        text = shortened(caption, width)
        _write(sheet, text, start, bottom)
    for row, texts in enumerate(notes):
        top_of_row = first_top + row * cell_height
        top = top_of_row + height + _CAPTION_HEIGHT
        for line in texts:
            text = _cut_end(line, text_width)
            _write(sheet, text, _GAP, top)
            top += _CAPTION_HEIGHT
    return sheet


def fitted(image: Pixels, side: int) -> Pixels:
    """A picture no larger than side x side, in the middle of a cell of that size."""
    cell_shape = (side, side, 3)
    cell = np.full(cell_shape, BACKGROUND, dtype=np.uint8)
    height, width, _ = image.shape
    top = (side - height) // 2
    start = (side - width) // 2
    bottom = top + height
    end = start + width
    cell[top:bottom, start:end] = image
    return cell


def with_boxes(image: Pixels, boxes: Float64s) -> Pixels:
    """A copy of a picture with boxes drawn into it.

    Args:
        image: the picture.
        boxes: (n, 4) x, y, width, height. The first one is drawn thick, and above the others.
    """
    drawn = image.copy()
    height, width, _ = image.shape
    width_and_height = np.array([width, height])
    last_pixel = width_and_height - 1
    # From the last to the first, which then lies above.
    for number in reversed(range(len(boxes))):
        box_xywh = boxes[number]
        top_left = box_xywh[:2]
        sides = box_xywh[2:]
        bottom_right = top_left + sides
        rounded_first = np.rint(top_left)
        rounded_end = np.rint(bottom_right)
        first_of_box = rounded_first.astype(int)
        end_of_box = rounded_end.astype(int)
        last_of_box = end_of_box - 1
        corner = _clipped(first_of_box, last_pixel)
        opposite = _clipped(last_of_box, last_pixel)
        if number == 0:
            cv2.rectangle(drawn, corner, opposite, _OUTLINE, thickness=4)
            cv2.rectangle(drawn, corner, opposite, _FIRST_BOX, thickness=2)
        else:
            cv2.rectangle(drawn, corner, opposite, _OTHER_BOX, thickness=1)
    return drawn


def _clipped(point: Int64s, last_pixel: Int64s) -> tuple[int, int]:
    clipped = np.clip(point, 0, last_pixel)
    x, y = clipped.tolist()
    return x, y


def write_png(path: Path, image: Pixels) -> None:
    """Writes a picture as a PNG, whole or not at all."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    _, data = cv2.imencode(".png", bgr)
    # A program that is killed must not leave half a picture under the name that it shows.
    partial = path.with_name(path.name + ".partial")
    marked_png = with_mark(data.tobytes())
    try:
        partial.write_bytes(marked_png)
        os.replace(partial, path)
    except OSError as problem:
        if partial.exists():
            partial.unlink()
        raise FastpipeError(f"cannot write {path}: {problem.strerror}") from problem


def shortened(text: str, width: int) -> str:
    """A text that fits into a width in pixels; of a longer one the start and the end.

    Names of classes often differ at their ends only.
    """

    def without_middle(text: str, num_letters: int) -> str:
        # Of an odd number one letter more at the start.
        num_at_end = num_letters // 2
        num_at_start = num_letters - num_at_end
        end_position = len(text) - num_at_end
        start = text[:num_at_start]
        end = text[end_position:]
        return start + _ELLIPSIS + end

    return _fit(text, width, without_middle)


def _cut_end(text: str, width: int) -> str:
    """A text that fits into a width in pixels; of a longer one the start."""

    def without_end(text: str, num_letters: int) -> str:
        start = text[:num_letters]
        return start + _ELLIPSIS

    return _fit(text, width, without_end)


def _fit(text: str, width: int, shorten: Callable[[str, int], str]) -> str:
    """A text that fits into a width in pixels: itself, or shortened to as many letters as fit."""
    text = _drawable(text)
    if _width_of(text) <= width:
        return text

    def width_of(num_letters: int) -> int:
        shorter_text = shorten(text, num_letters)
        return _width_of(shorter_text)

    # The most letters that fit; the dots alone are written if not even they do.
    letter_counts = range(len(text))
    num_fitting = bisect_right(letter_counts, width, key=width_of)
    num_letters = max(0, num_fitting - 1)
    return shorten(text, num_letters)


def _drawable(text: str) -> str:
    """A text of letters that the font has."""
    # Line breaks and control characters have no glyph.
    letters = [letter if letter.isprintable() else "?" for letter in text]
    printable = "".join(letters)
    encoded = printable.encode(_ENCODING, "replace")
    return encoded.decode(_ENCODING)


def _width_of(text: str) -> int:
    size, _ = cv2.getTextSize(text, FONT, FONT_SCALE, thickness=1)
    width, _ = size
    return width


def _write(sheet: Pixels, text: str, start: int, top: int) -> None:
    """Writes a line of text into a sheet."""
    bottom = top + _CAPTION_HEIGHT
    baseline = (start, bottom - 5)
    cv2.putText(
        sheet,
        text,
        baseline,
        FONT,
        FONT_SCALE,
        _INK,
        thickness=1,
        lineType=cv2.LINE_AA,
    )
