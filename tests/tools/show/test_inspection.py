"""Tests of fastpipe.inspection: the figures of a dataset are right, and its contact sheet shows its pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.datasets.packed import damage
from support.pictures.drawn import FLAT_CLASSES, flat_colour

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.tools.show import inspection, sheet
from fastpipe.tools.show.inspection import Histogram, inspect, write_contact_sheet

SIZE, GAP, CAPTION, BACKGROUND = 160, 6, 18, 250


def test_counts(flat: Path) -> None:
    index = PackedIndex(flat)
    found = inspect(index)
    assert (found.path, found.samples, found.shards) == (str(flat), 37, 1)
    assert found.class_counts == {"ant": 13, "bee": 12, "cow": 12}
    assert found.size_bytes == (flat / "shard-000000.tar").stat().st_size
    assert found.fingerprint == index.fingerprint
    assert found.counts["rejected"] == 0


def test_dimensions(flat: Path) -> None:
    """Picture n of 37 is (24 + n) x (60 - n) pixels."""
    found = inspect(PackedIndex(flat))
    assert (found.width.percentiles[0], found.width.percentiles[100]) == (24, 60)
    assert (found.width.percentiles[50], found.width.mean) == (42, 42)
    assert (found.height.percentiles[0], found.height.percentiles[100]) == (24, 60)
    areas = [(24 + n) * (60 - n) / 1e6 for n in range(37)]
    assert found.megapixels.mean == pytest.approx(np.mean(areas))
    assert found.megapixels.percentiles[100] == pytest.approx(max(areas))
    sizes = PackedIndex(flat).records["size"]
    assert found.bytes.mean == pytest.approx(sizes.mean())


def assert_holds(spread: Histogram, values: list[float]) -> None:
    assert sum(spread.counts) == len(values)
    assert len(spread.edges) == len(spread.counts) + 1
    assert spread.edges == sorted(spread.edges)
    assert spread.edges[0] == min(values)
    assert spread.edges[-1] == pytest.approx(max(values), rel=1e-6)
    for left, right, count in zip(
        spread.edges[:-2], spread.edges[1:-1], spread.counts[:-1], strict=True
    ):
        assert count == sum(left <= value < right for value in values)


def test_histograms_hold_every_value_once() -> None:
    cases: list[list[float]] = [
        [1.0],
        [7.0] * 50,
        [0.0, 1.0],
        list(map(float, range(100))),
        [*map(float, range(1, 400)), 1e6],
        [65500.0] * 9,
    ]
    for values in cases:
        assert_holds(inspection._histogram(np.array(values)), values)


def test_sizes_that_are_all_alike_are_one_row() -> None:
    for values, counts in (([32.0] * 9, [9]), ([32.0] * 900 + [4000.0], [900, 1])):
        spread = inspection._histogram(np.array(values))
        assert spread.counts == counts
        assert_holds(spread, values)


def test_one_giant_does_not_hide_the_rest() -> None:
    spread = inspection._histogram(np.array([*np.linspace(100, 200, 500), 1e6]))
    assert max(spread.counts) < 100
    assert spread.edges[-1] == 1e6


def test_a_sample_of_the_rows_of_a_large_dataset(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "_MAX_ROWS", 10)
    found = inspect(PackedIndex(flat))
    assert found.samples == 37
    assert sum(found.width.counts) == 10


def cells(sheet: Path, count: int) -> list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    picture = np.array(Image.open(sheet))
    places = [
        (CAPTION + GAP + n // 8 * (SIZE + CAPTION + GAP), GAP + n % 8 * (SIZE + GAP))
        for n in range(count)
    ]
    return [picture[top : top + SIZE, left : left + SIZE] for top, left in places]


def test_the_sheet_shows_pictures_of_the_dataset(flat: Path, tmp_path: Path) -> None:
    assert write_contact_sheet(flat, tmp_path / "sheet.png") == (37, 0)
    colours = {
        tuple(np.rint(cell.mean((0, 1)) / 5).astype(int) * 5)
        for cell in cells(tmp_path / "sheet.png", 37)
    }
    assert colours == {flat_colour(number) for number in range(37)}, "each picture once"


def test_captions_are_the_classes(
    flat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[list[str]] = []
    real = sheet.contact_sheet

    def record(images: object, captions: list[str], **options: object) -> object:
        drawn.append(captions)
        return real(images, captions, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sheet, "contact_sheet", record)
    assert write_contact_sheet(flat, tmp_path / "sheet.png", count=12) == (12, 0)
    blues = [
        round((float(cell[..., 2].mean()) - 40) / 80) for cell in cells(tmp_path / "sheet.png", 12)
    ]
    assert [FLAT_CLASSES[blue] for blue in blues] == drawn[0]


def test_the_seed_picks_the_pictures(textured: Path, tmp_path: Path) -> None:
    content = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_contact_sheet(textured, tmp_path / name, seed=seed, count=5)
        content.append((tmp_path / name).read_bytes())
    assert content[0] == content[1]
    assert content[0] != content[2]


def test_a_sheet_as_training_sees_it(textured: Path, tmp_path: Path) -> None:
    write_contact_sheet(textured, tmp_path / "train.png", train=True)
    write_contact_sheet(textured, tmp_path / "plain.png")
    assert (tmp_path / "train.png").read_bytes() != (tmp_path / "plain.png").read_bytes()


def test_a_damaged_sample_does_not_stop_the_sheet(
    flat: Path, copied: Callable[[Path], Path], tmp_path: Path
) -> None:
    broken = copied(flat)
    damage(broken, 3)
    assert write_contact_sheet(broken, tmp_path / "sheet.png") == (37, 1)
