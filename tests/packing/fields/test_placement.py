"""Boxes, points, masks and second images move with the picture when it is turned upright or shrunk."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from support.datasets.field_values import column, opened, rows, stored_files
from support.pictures.pngs import GRAY, PALETTE, png
from support.sources.pack_sources import exif, pixels, saved

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.packing.fields.placement import Placement, turned_size
from fastpipe.packing.fields.stored import shortest_floats
from fastpipe.sources.picture.jpeg import turn_upright

W, H = 70, 45
BOX = (10, 5, 30, 20)
FIELDS = {"boxes": "boxes", "pose": "keypoints", "seg": "mask", "second": "image"}


def mask() -> np.ndarray[Any, Any]:
    """7 in the box, else the number of the pixel's column."""
    found = np.tile(np.arange(W, dtype=np.uint8) + 100, (H, 1))
    found[BOX[1] : BOX[3], BOX[0] : BOX[2]] = 7
    return found


def pack(destination: Path, orientation: int, **options: Any) -> PackedIndex:
    with fastpipe.Writer(destination, FIELDS, **options) as writer:
        writer.add(
            saved(exif=exif(orientation)),
            boxes=[BOX],
            pose=[[[BOX[0], BOX[1], 2]]],
            seg=mask(),
            second=saved("PNG"),
        )
    return PackedIndex(destination)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_fields_turn_with_the_picture(tmp_path: Path, orientation: int) -> None:
    index = pack(tmp_path / "packed", orientation, exif="apply")
    image = Image.new("L", (W, H))
    image.putdata(mask().ravel())
    image.getexif()[274] = orientation
    upright = np.asarray(ImageOps.exif_transpose(image))
    seg = opened(stored_files(tmp_path / "packed", "seg")[0] or b"")
    np.testing.assert_array_equal(seg, upright)
    assert seg.shape == (index.records["height"][0], index.records["width"][0])
    (box,) = rows(tmp_path / "packed", "boxes", "boxes.offsets")[0]
    ys, xs = np.nonzero(seg == 7)
    assert box.tolist() == [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
    (x, y, visible) = column(tmp_path / "packed", "pose")[0, 0]
    marked = np.zeros((H, W), np.uint8)
    marked[BOX[1], BOX[0]] = 1
    assert turn_upright(marked, orientation)[int(y), int(x)] == 1
    assert visible == 2
    second = opened(stored_files(tmp_path / "packed", "second")[0] or b"")
    assert second.shape[:2] == seg.shape
    turned = turn_upright(pixels(), orientation).astype(int)
    assert np.abs(second - turned).mean() < 3


@pytest.mark.parametrize("orientation", range(1, 9))
def test_points_that_are_not_labelled_keep_their_zeros(orientation: int) -> None:
    size = (W, H)
    placement = Placement(size, orientation, turned_size(size, orientation))
    points = np.array([[[0, 0, 0], [0, 0, 2], [3, 4, 0]]], np.float32)
    moved = placement.points(points)
    assert moved[0, 0].tolist() == [0, 0, 0]
    # The first pixel is labelled, and a hidden place is one.
    marked = np.zeros((H, W), np.uint8)
    marked[0, 0] = 1
    marked[4, 3] = 2
    upright = turn_upright(marked, orientation)
    assert [upright[int(y), int(x)] for x, y, _ in moved[0, 1:]] == [1, 2]


def test_without_apply_nothing_turns(tmp_path: Path) -> None:
    pack(tmp_path / "packed", 6)
    np.testing.assert_array_equal(
        opened(stored_files(tmp_path / "packed", "seg")[0] or b""), mask()
    )
    assert column(tmp_path / "packed", "boxes").tolist() == [list(BOX)]


@pytest.mark.parametrize("orientation", [1, 6])
def test_fields_shrink_with_the_picture(tmp_path: Path, orientation: int) -> None:
    index = pack(tmp_path / "packed", orientation, exif="apply", max_size=35)
    size = (35, 23) if orientation == 1 else (23, 35)  # 22.5 is rounded up
    assert (index.records["width"][0], index.records["height"][0]) == size
    whole = pack(tmp_path / "whole", orientation, exif="apply")
    scale = np.array(size) / (whole.records["width"][0], whole.records["height"][0])
    box, before = (column(tmp_path / name, "boxes")[0] for name in ("packed", "whole"))
    np.testing.assert_array_equal(box, np.float32(before * np.tile(scale, 2)))
    seg = opened(stored_files(tmp_path / "packed", "seg")[0] or b"")
    assert seg.shape == size[::-1]
    full = opened(stored_files(tmp_path / "whole", "seg")[0] or b"")
    ys, xs = (
        [int(Fraction(2 * at + 1, 2 * new) * old) for at in range(new)]
        for new, old in zip(seg.shape, full.shape, strict=True)
    )
    np.testing.assert_array_equal(seg, full[np.ix_(ys, xs)])  # the pixel under the middle of each


@given(
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(1, 8),
    st.lists(st.tuples(*[st.floats(0, 1, width=32)] * 4), max_size=4),
)
def test_a_box_holds_the_same_pixels_after_the_turn(
    width: int, height: int, turn: int, parts: list[tuple[float, ...]]
) -> None:
    """Turning twice, forth and back, gives the same boxes; and they never leave the picture."""
    sides = (height, width) if turn >= 5 else (width, height)
    back = {6: 8, 8: 6}.get(turn, turn)
    corners = np.floor(np.array(parts).reshape(-1, 2, 2) * (width, height))
    boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1).astype(np.float32)
    there = Placement((width, height), turn, sides).boxes(boxes)
    assert (there[:, 0::2] <= sides[0]).all()
    assert (there[:, 1::2] <= sides[1]).all()
    np.testing.assert_array_equal(Placement(sides, back, (width, height)).boxes(there), boxes)
    points = boxes.reshape(-1, 2, 2)
    points = np.concatenate([points, np.ones_like(points[..., :1])], axis=-1)
    moved = Placement((width, height), turn, sides).points(points)
    np.testing.assert_array_equal(Placement(sides, back, (width, height)).points(moved), points)


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=50)
)
def test_numbers_in_notes_are_short_and_exact(numbers: list[float]) -> None:
    given_numbers = np.float32(numbers)
    found = shortest_floats(given_numbers)
    assert np.float32(found).tobytes() == given_numbers.tobytes()
    assert all(len(repr(each)) <= 24 for each in found)


def test_ids_of_all_png_masks_are_kept(tmp_path: Path) -> None:
    """The values that stand in the file: also of 2 and 4 bits, which Pillow scales."""
    palette = bytes(range(256)) * 3
    forms = [(bits, GRAY) for bits in (1, 2, 4, 8, 16)] + [(bits, PALETTE) for bits in (1, 2, 4, 8)]
    given_values = []
    with fastpipe.Writer(tmp_path / "packed", {"seg": "mask"}) as writer:
        for bits, color in forms:
            values = np.random.default_rng(bits).integers(0, 2**bits, (H, W))
            given_values.append(values)
            colours = palette[: 3 << bits] if color == PALETTE else None
            writer.add(saved(), seg=png(values, bits=bits, color=color, palette=colours))
    for form, values, stored in zip(
        forms, given_values, stored_files(tmp_path / "packed", "seg"), strict=True
    ):
        np.testing.assert_array_equal(opened(stored or b""), values, err_msg=str(form))
