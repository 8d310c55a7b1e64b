"""The preview draws boxes, masks and points where the objects are, on photos and on crops, and writes texts below."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from support.programs.cli_run import failed, fp, succeeded

import fastpipe
from fastpipe.tools.show import sheet
from fastpipe.tools.show.drawing import BoxMarks, Marks, colour_of, with_marks
from fastpipe.tools.show.preview import SIZE, VARIANTS, preview_samples

pytestmark = pytest.mark.usefixtures("one_thread")

GAP, CAPTION, COUNT = 6, 18, 5  # of fastpipe/tools/show/sheet.py; photos
TOP = 2 * CAPTION + GAP  # below the title and the legend
COLUMNS = 2 + VARIANTS
DRAWN_ON = [0, *range(2, COLUMNS)]  # the photo and the crops; column 1 has the crops' frames
KINDS = {
    "boxes": "boxes",
    "seg": "mask",
    "corners": "keypoints",
    "caption": "text",
    "tags": "classes",
    "raw": "bytes",
}
LABEL, ID = 4, 7

Sheet = NDArray[np.uint8]


def write(path: Path, fields: dict[str, str]) -> Path:
    """Gray photos, each with a white rectangle, which is the object."""
    rng = np.random.default_rng(1)
    with fastpipe.Writer(path, fields=fields, workers=1) as writer:
        for number in range(COUNT):
            height, width = (int(side) for side in rng.integers(200, 400, 2))
            x, y = int(rng.integers(20, width - 120)), int(rng.integers(20, height - 120))
            right, bottom = x + int(rng.integers(60, 100)), y + int(rng.integers(60, 100))
            pixels = np.full((height, width, 3), 90, dtype=np.uint8)
            pixels[y:bottom, x:right] = 255
            seg = np.zeros((height, width), dtype=np.uint8)
            seg[y:bottom, x:right] = ID
            values: dict[str, Any] = {
                "boxes": {"boxes": [[x, y, right, bottom]], "labels": [LABEL]},
                "seg": seg,
                "corners": [[[x, y, 2], [right - 1, bottom - 1, 1], [x + 20, y + 20, 0]]],
                "caption": f"photo {number},\nwith a white rectangle"
                + " and more" * 100 * (number == 0),
                "tags": ["white", "flat"],
                "raw": b"1",
            }
            writer.add(pixels, label=number % 2, **{name: values[name] for name in fields})
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("fields") / "data", KINDS)


def cell(sheet: Sheet, row: int, column: int, lines: int = 0) -> NDArray[np.int64]:
    top, left = TOP + row * (SIZE + GAP + CAPTION * (1 + lines)), GAP + column * (SIZE + GAP)
    return sheet[top : top + SIZE, left : left + SIZE].astype(int)


def drawn(data: Path, out: Path, fields: str | None, *options: object) -> Sheet:
    named = [] if fields is None else ["--fields", fields]
    succeeded("preview", data, "--out", out, "--overwrite", "--rows", COUNT, *named, *options)
    picture = cv2.imread(str(out))
    assert picture is not None
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), dtype=np.uint8)


@pytest.fixture(scope="module")
def plain(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Sheet:
    """The sheet without fields."""
    return drawn(data, tmp_path_factory.mktemp("plain") / "a.png", "none")


def extent(there: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The first and last rows and columns."""
    rows, columns = np.flatnonzero(there.any(axis=1)), np.flatnonzero(there.any(axis=0))
    return np.array([rows[0], rows[-1], columns[0], columns[-1]])


def pairs(
    plain: Sheet, marked: Sheet
) -> list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    """Each picture of the sheet without and with fields, and where its object is."""
    found = []
    for row in range(COUNT):
        for column in DRAWN_ON:
            bare = cell(plain, row, column)
            inside = (bare != 250).any(axis=2)  # of a cell that the picture does not fill
            found.append((bare, cell(marked, row, column), (bare.min(axis=2) > 170) & inside))
    assert sum(bool(there.any()) for _, _, there in found) > 3 * COUNT, (
        "most crops show some of the object"
    )
    return found


def test_boxes_are_drawn_around_the_objects(data: Path, plain: Sheet, tmp_path: Path) -> None:
    for bare, marked, there in pairs(plain, drawn(data, tmp_path / "b.png", "boxes")):
        frame = (marked == colour_of(LABEL)).all(axis=2)
        if there.sum() < 50:
            continue
        rows = np.flatnonzero(frame.sum(axis=1) > 0.6 * np.ptp(extent(there)[2:]))
        columns = np.flatnonzero(frame.sum(axis=0) > 0.6 * np.ptp(extent(there)[:2]))
        sides = np.array([rows[0], rows[-1], columns[0], columns[-1]])
        assert np.abs(sides - extent(there)).max() <= 2
        inside = cv2.erode(there.astype(np.uint8), np.ones((40, 40)), borderValue=0) > 0
        assert np.array_equal(bare[inside], marked[inside]), "a box is a frame"


def test_masks_cover_the_objects_and_let_them_shine_through(
    data: Path, plain: Sheet, tmp_path: Path
) -> None:
    for bare, marked, there in pairs(plain, drawn(data, tmp_path / "b.png", "seg")):
        changed = (bare != marked).any(axis=2)
        edge = cv2.dilate(there.astype(np.uint8), np.ones((5, 5), np.uint8)).astype(bool)
        core = cv2.erode(there.astype(np.uint8), np.ones((5, 5), np.uint8), borderValue=1).astype(
            bool
        )
        assert not (changed & ~edge).any()
        assert changed[core].all()
        assert np.abs(marked[core] - (bare[core] + colour_of(ID)) / 2).max(initial=0) <= 1


def test_points_are_drawn_where_they_are(data: Path, plain: Sheet, tmp_path: Path) -> None:
    """The corners of the object on each photo: the first is full, the second is hollow, the third is not labelled."""
    marked = drawn(data, tmp_path / "b.png", "corners")
    for row in range(COUNT):
        bare, points = cell(plain, row, 0), cell(marked, row, 0)
        first, last_row, left, last_column = extent(
            (bare.min(axis=2) > 170) & (bare != 250).any(axis=2)
        )
        places = [np.argwhere((points == colour_of(number)).all(axis=2)) for number in range(3)]
        assert np.abs(places[0].mean(axis=0) - [first, left]).max() <= 2
        assert len(places[0]) > 15
        assert (points[last_row, last_column] == 255).all()
        assert not len(places[2])


def test_each_point_is_where_the_loader_says(data: Path, tmp_path: Path) -> None:
    with fastpipe.loader(
        data,
        COUNT,
        size=SIZE,
        fields=("image", fastpipe.Points("corners", flip_pairs=[(0, 1)])),
        exact=True,
    ) as loader:
        fastpipe.preview(loader, tmp_path / "a.png", rows=COUNT)
        (seen,) = preview_samples(loader, np.arange(COUNT), 3)
    picture = cv2.cvtColor(cv2.imread(str(tmp_path / "a.png")), cv2.COLOR_BGR2RGB)  # type: ignore[arg-type]
    near = 0
    for row in range(COUNT):
        pixels = cell(np.asarray(picture, dtype=np.uint8), row, 5)
        x, y, visibility = seen.fields["corners"][row][0, 0].tolist()
        if visibility == 2 and 4 < x < SIZE - 4 and 4 < y < SIZE - 4:
            assert (pixels[int(y), int(x)] == colour_of(0)).all()
            near += 1
    assert near


def test_the_layout_of_boxes_does_not_matter(data: Path, tmp_path: Path) -> None:
    for form in ("list", "flat", "pad"):
        fields = ("image", fastpipe.Boxes("boxes", form=form))
        with fastpipe.loader(data, COUNT, size=SIZE, fields=fields) as loader:
            fastpipe.preview(loader, tmp_path / f"{form}.png", rows=2)
    sheets = {(tmp_path / f"{form}.png").read_bytes() for form in ("list", "flat", "pad")}
    assert len(sheets) == 1


def test_without_fields_nothing_changes(plain: Sheet, tmp_path: Path) -> None:
    without = write(tmp_path / "without", {})
    # The title has the path, which differs.
    assert np.array_equal(drawn(without, tmp_path / "a.png", None)[TOP:], plain[TOP:])


def test_texts_stand_below_and_are_cut(data: Path, plain: Sheet, tmp_path: Path) -> None:
    marked = drawn(data, tmp_path / "b.png", "caption,tags")
    assert marked.shape[1] == plain.shape[1] == GAP + COLUMNS * (SIZE + GAP)
    assert marked.shape[0] == plain.shape[0] + COUNT * 2 * CAPTION
    for row in range(COUNT):
        for column in range(COLUMNS):
            assert np.array_equal(cell(plain, row, column), cell(marked, row, column, lines=2))
        top = TOP + row * (SIZE + GAP + CAPTION * 3) + SIZE + CAPTION
        inks = [
            (marked[top + line * CAPTION : top + (line + 1) * CAPTION] < 128).any(axis=(0, 2))
            for line in (0, 1)
        ]
        assert all(ink.any() for ink in inks)
        assert not any(ink[-GAP:].any() for ink in inks)
        assert inks[0][SIZE * 2 :].any() == inks[0][-SIZE:].any() == (row == 0), (
            "the first text fills the row"
        )


def test_all_that_can_be_drawn_is_the_default(data: Path, tmp_path: Path) -> None:
    named = drawn(data, tmp_path / "a.png", "boxes,seg,corners, caption,tags")
    assert np.array_equal(drawn(data, tmp_path / "b.png", None), named)


def test_fields_that_an_augmentation_would_make_wrong_are_left_out(
    data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a.png"
    result = fp("preview", data, "--augment", "randaugment", "--out", out, "--rows", COUNT)
    assert result.exit_code == 0
    assert "without boxes, seg, corners: the augmentation may move pixels" in result.stderr
    drawn(data, tmp_path / "b.png", "caption,tags", "--augment", "randaugment")
    assert out.read_bytes() == (tmp_path / "b.png").read_bytes()
    said = failed(
        2,
        "preview",
        data,
        "--augment",
        "randaugment",
        "--fields",
        "boxes",
        "--out",
        tmp_path / "c.png",
    )
    assert re.search(
        r"may move pixels does not go with boxes, .*; boxes\): they would stay in place", said
    )
    assert (
        fp("preview", data, "--augment", "simclr", "--rows", 1, "--out", tmp_path / "d.png").stderr
        == ""
    )


def test_of_mixed_images_only_what_stays_is_shown(data: Path, tmp_path: Path) -> None:
    program = tmp_path / "mine.py"
    program.write_text(
        "import kornia.augmentation as K\ndef build():\n    return [K.RandomMixUpV2(p=1.0)]\n"
    )
    result = fp(
        "preview", data, "--augment", f"{program}:build", "--rows", 1, "--out", tmp_path / "a.png"
    )
    assert result.exit_code == 0
    assert "without boxes, seg, corners: " in result.stderr
    program.write_text("import fastpipe\ndef build():\n    return fastpipe.Augment(cutmix=1.0)\n")
    result = fp(
        "preview", data, "--augment", f"{program}:build", "--rows", 1, "--out", tmp_path / "b.png"
    )
    assert "without boxes, corners: " in result.stderr


def test_fields_that_cannot_be_shown_are_named(data: Path, tmp_path: Path) -> None:
    for asked, got in (
        ("box", "got 'box': there is no field of this name"),
        ("seg,raw", "got 'raw': it is of kind bytes"),
    ):
        said = failed(2, "preview", data, "--fields", asked, "--out", tmp_path / "a.png")
        assert got in said
        assert "Pass --fields boxes,seg,corners,caption,tags" in said
    assert not (tmp_path / "a.png").exists()


def test_a_mark_at_the_border_is_cut_off_there() -> None:
    """Boxes as large as the picture, beyond it, and without width; a point outside."""
    image = np.full((40, 60, 3), 128, dtype=np.uint8)
    boxes = np.array([[0, 0, 120, 80], [118, 78, 140, 90], [10, 10, 10, 30]], dtype=np.float32)
    points = np.array([[[-1, 5, 2], [121, 5, 2]]], dtype=np.float32)
    result = with_marks(image, Marks((120, 80), boxes=[BoxMarks(boxes)], points=[points]))
    assert (result[0, 5:55] == colour_of(0)).all()
    assert (result[-1, 5:50] == colour_of(0)).all()
    assert (result[-1, -1] == colour_of(1)).all()
    assert (result[10, 5] == colour_of(2)).all()
    assert (image == 128).all(), "the picture that was given stays as it is"


def test_a_text_is_cut_where_the_next_letter_would_not_fit() -> None:
    text = "größer 日本 a\tb\x00 \udcff, a cat on a chair"
    whole = sheet._cut_end(text, 100_000)
    assert len(whole) == len(text)
    assert whole.isprintable()

    def length(part: str) -> int:
        return cv2.getTextSize(part, cv2.FONT_HERSHEY_SIMPLEX, 0.4, 1)[0][0]

    for width in (0, 3, 57, 160, 10_000):
        shown = sheet._cut_end(text, width)
        if shown == whole:
            assert length(shown) <= width
            continue
        start = shown.removesuffix("..")
        assert whole.startswith(start)
        assert not start or length(shown) <= width
        assert length(whole[: len(start) + 1] + "..") > width


def test_maps_stand_below_the_photo_and_each_crop(tmp_path: Path) -> None:
    """A map from left to right: its colours are those of the columns that a crop shows; NaN is gray."""
    height, width = 200, 300
    place = np.broadcast_to(np.arange(width, dtype=np.float32), (height, width)).copy()
    place[:40] = np.nan
    pixels = np.full((height, width, 3), 90, np.uint8)
    with fastpipe.Writer(tmp_path / "data", fields={"place": "map", "flow": "map"}) as writer:
        flow = np.zeros((height, width, 2), np.float16)
        flow[..., 0] = 1
        writer.add(pixels, key="one", place=place, flow=flow)
    out = tmp_path / "sheet.png"
    succeeded("preview", tmp_path / "data", "--out", out, "--rows", 1)
    picture = cv2.imread(str(out))
    assert picture is not None
    rows = np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), dtype=np.uint8)
    lines = 2  # below each row: the texts of both fields
    whole = cell(rows, 1, 0, lines)
    middle = SIZE // 2
    row = whole[middle + 20]
    inner = row[(row != sheet.BACKGROUND).any(axis=1)]
    assert inner[2, 2] > inner[2, 0]  # blue at the left
    assert inner[-3, 0] > inner[-3, 2]  # yellow at the right
    assert (whole == 128).all(axis=2).sum() > 500
    directions = cell(rows, 2, 0, lines)
    red = (directions == (255, 0, 0)).all(axis=2)
    assert red.sum() > 5000
