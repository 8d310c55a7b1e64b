"""Tests of fastpipe.sheet: pictures stand where they should on a contact sheet, above their captions."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastpipe.errors import FastpipeError
from fastpipe.tools.show.drawing import name_of
from fastpipe.tools.show.sheet import contact_sheet, shortened, write_png
from fastpipe.tools.show.sheet_mark import may_replace

GAP, CAPTION, BACKGROUND = 6, 18, 250
WIDTH, HEIGHT = 40, 30


def images(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(1).integers(0, 200, (count, HEIGHT, WIDTH, 3), dtype=np.uint8)


@pytest.mark.parametrize(("count", "columns", "rows"), [(1, 8, 1), (8, 8, 1), (9, 8, 2), (7, 3, 3)])
def test_pictures_stand_in_rows(tmp_path: Path, count: int, columns: int, rows: int) -> None:
    shown = images(count)
    write_png(tmp_path / "sheet.png", contact_sheet(shown, [""] * count, columns=columns))
    sheet = np.array(Image.open(tmp_path / "sheet.png"))
    across = min(count, columns)
    assert sheet.shape == (rows * (HEIGHT + CAPTION + GAP) + GAP, across * (WIDTH + GAP) + GAP, 3)
    for number, image in enumerate(shown):
        top = GAP + number // columns * (HEIGHT + CAPTION + GAP)
        left = GAP + number % columns * (WIDTH + GAP)
        np.testing.assert_array_equal(sheet[top : top + HEIGHT, left : left + WIDTH], image)
        sheet[top : top + HEIGHT, left : left + WIDTH] = BACKGROUND
    assert (sheet == BACKGROUND).all(), "nothing but the pictures where no picture has a caption"


def test_a_caption_stands_below_its_picture_and_nowhere_else() -> None:
    shown = images(2)
    for caption in (
        "cat",
        "a caption that is much longer than its picture",
        "名前 ä",
        "caf\udce9",
        "gjpqy",
    ):
        sheet = contact_sheet(shown, [caption, ""])
        below = sheet[GAP + HEIGHT : GAP + HEIGHT + CAPTION, GAP : GAP + WIDTH]
        assert (below < 150).any(), "dark ink"
        below[:] = BACKGROUND
        np.testing.assert_array_equal(sheet, contact_sheet(shown, ["", ""]))


def test_a_png_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(
        FastpipeError, match=r"cannot write .*sheet\.png: No such file or directory"
    ):
        write_png(tmp_path / "nowhere" / "sheet.png", images(1)[0])
    (tmp_path / "sheet.png").mkdir()
    with pytest.raises(FastpipeError, match=r"cannot write .*sheet\.png: Is a directory"):
        write_png(tmp_path / "sheet.png", images(1)[0])
    assert os.listdir(tmp_path) == ["sheet.png"], "no partial file is left"


def test_an_older_png_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "sheet.png").write_bytes(b"old")
    write_png(tmp_path / "sheet.png", images(1)[0])
    np.testing.assert_array_equal(np.array(Image.open(tmp_path / "sheet.png")), images(1)[0])


def test_a_title_stands_above_the_pictures() -> None:
    plain = contact_sheet(images(2), ["", ""])
    titled = contact_sheet(images(2), ["", ""], title=["a dataset", "a legend" * 50])
    assert titled.shape == (plain.shape[0] + 2 * CAPTION, *plain.shape[1:])
    np.testing.assert_array_equal(titled[2 * CAPTION + GAP :], plain[GAP:])
    for line in range(2):
        assert (titled[line * CAPTION : (line + 1) * CAPTION] < 150).any(), "dark ink"


def test_a_long_name_keeps_its_start_and_its_end() -> None:
    name = "american_staffordshire_terrier_male"
    assert shortened(name, 1000) == name
    short = shortened(name, 100)
    start, end = short.split("..")
    assert 3 < len(start) - len(end) + 4 < 6
    assert name.startswith(start)
    assert name.endswith(end)
    assert shortened(name, 1) == ".."


def test_a_box_has_the_name_of_its_category() -> None:
    names = ("", "ring", "disc")
    assert [name_of(label, names) for label in (-1, 0, 1, 2, 3)] == ["-1", "0", "ring", "disc", "3"]


def test_only_a_sheet_may_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "sheet.png"
    assert may_replace(file)
    write_png(file, images(1)[0])
    assert may_replace(file)
    Image.fromarray(images(1)[0]).save(file)
    assert not may_replace(file)
    assert not may_replace(tmp_path)
