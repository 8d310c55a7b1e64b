"""The preview sheet shows photos, their crops, and what a loader with the same seed and preset hands out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from cli_run import failed, succeeded
from conftest import damage
from numpy.typing import NDArray

import fastpipe
from fastpipe.show.preview import PRESETS, SIZE, VARIANTS, write_preview

GAP, CAPTION = 6, 18  # of fastpipe/show/sheet.py


def cell(sheet: NDArray[np.uint8], row: int, column: int) -> NDArray[np.uint8]:
    top, left = GAP + row * (SIZE + GAP + CAPTION), GAP + column * (SIZE + GAP)
    return sheet[top : top + SIZE, left : left + SIZE]


def read(path: Path) -> NDArray[np.uint8]:
    picture = cv2.imread(str(path))
    assert picture is not None
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), dtype=np.uint8)


@pytest.mark.parametrize("preset", PRESETS)
def test_variants_are_what_a_loader_hands_out(large: Path, tmp_path: Path, preset: str) -> None:
    out = tmp_path / "preview.png"
    assert write_preview(large, out, preset=preset, rows=6, seed=4) == 6
    sheet = read(out)
    augment = PRESETS[preset](mean=None, std=None)
    with fastpipe.loader(large, 6, size=SIZE, seed=4, exact=True, augment=augment) as loader:
        for epoch in range(VARIANTS):
            ((images, _),) = loader
            shown = (images.permute(0, 2, 3, 1).clamp(0, 1) * 255).round().byte().numpy()
            variants = [cell(sheet, row, 2 + epoch) for row in range(6)]
            if preset == "simclr":  # the order of its colour operations is drawn for a batch
                assert all(variant.std() > 1 for variant in variants)
                continue
            for variant in variants:  # the loader has the photos in another order
                assert min(np.abs(variant.astype(int) - one).max() for one in shown) <= 1


def test_photos_keep_their_proportions(large: Path, tmp_path: Path) -> None:
    write_preview(large, tmp_path / "preview.png", rows=6)
    sheet, index = read(tmp_path / "preview.png"), fastpipe.open(large)
    for row in range(6):
        width, height = int(index.records[row]["width"]), int(index.records[row]["height"])
        inside = (
            (cell(sheet, row, 0) != 250).any(axis=(1, 2)).sum(),
            (cell(sheet, row, 0) != 250).any(axis=(0, 2)).sum(),
        )
        longest = max(width, height)
        assert abs(inside[0] - SIZE * height / longest) <= 2
        assert abs(inside[1] - SIZE * width / longest) <= 2


def test_crops_are_drawn_on_the_photo(large: Path, tmp_path: Path) -> None:
    write_preview(large, tmp_path / "preview.png", rows=2)
    sheet = read(tmp_path / "preview.png")
    for row in range(2):
        changed = (cell(sheet, row, 0) != cell(sheet, row, 1)).any(axis=2)
        assert 100 < changed.sum() < SIZE * SIZE / 2
        assert (cell(sheet, row, 1)[changed] == (255, 210, 0)).all(axis=1).any()


def test_the_command_says_what_it_did(flat: Path, tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    assert succeeded("preview", flat, "--augment", "simclr", "--out", out, "--rows", 3) == (
        f"3 photos drawn to {out}, each with 8 variants\n"
    )
    assert read(out).shape == (GAP + 3 * (SIZE + GAP + CAPTION), GAP + 10 * (SIZE + GAP), 3)
    succeeded("preview", flat, "--out", out, "--rows", 90, "--overwrite")
    assert read(out).shape[0] == GAP + 37 * (SIZE + GAP + CAPTION)


def test_a_file_is_replaced_only_if_asked_to(flat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for options in ([], ["--out", "mine.png"]):
        file = tmp_path / (options[1] if options else "preview.png")
        file.write_bytes(b"precious")
        assert f"{file.name} exists; pass another name, or --overwrite" in failed(2, "preview", flat, *options)
        assert file.read_bytes() == b"precious"
        succeeded("preview", flat, *options, "--overwrite", "--rows", 1)
        assert file.read_bytes().startswith(b"\x89PNG")


def test_the_same_seed_draws_the_same_sheet(textured: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        write_preview(textured, tmp_path / name, preset="randaugment", rows=4, seed=seed)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "again").read_bytes()
    assert (tmp_path / "one").read_bytes() != (tmp_path / "other").read_bytes()


def test_mistakes_are_named(flat: Path, tmp_path: Path, copied: Callable[[Path], Path]) -> None:
    out = tmp_path / "preview.png"
    assert "--rows: expected 1 to 100, got 0" in failed(2, "preview", flat, "--rows", 0, "--out", out)
    assert "simclr" in failed(2, "preview", flat, "--augment", "mixed", "--out", out)
    assert "cannot write" in failed(1, "preview", flat, "--out", tmp_path / "nowhere" / "preview.png")
    dataset = copied(flat)
    damage(dataset, 0)
    assert "sample 0" in failed(1, "preview", dataset, "--rows", 37, "--out", out)
    assert not out.exists()
