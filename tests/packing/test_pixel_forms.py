"""Channels and bits of each sample: of every kind of file, packed and unpacked, in datasets that grow, and damaged."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from support.datasets.packed import packed_jpeg
from support.pictures.pngs import GRAY_ALPHA, PALETTE, RGB, RGB_ALPHA, chunk, png
from support.programs.cli_run import succeeded
from support.sources.pack_sources import (
    jpeg_bytes,
    one_scan_a_component,
    pixels,
    saved,
    twelve_bit,
    unusual_sampling,
    with_segments,
    write_files,
)

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.sources.picture.png import encode_png
from fastpipe.sources.scan.opening import open_data
from fastpipe.tools.verify.verification import verify

GRAIN = pixels(70, 45)
GRAYS = GRAIN[:, :, 0]
TWO = np.stack([GRAYS, GRAIN[:, :, 1]], axis=2)
FOUR = np.concatenate([GRAIN, GRAIN[:, :, :1]], axis=2)
COLOURS = bytes(range(256)) * 3
LONG = chunk(
    b"tEXt", b"Comment\0" + bytes(9000)
)  # the next chunk is not in the bytes that a scan reads first


def of_array(samples: NDArray[np.uint8], image_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(samples).save(file, image_format, **options)
    return file.getvalue()


def strips_of_a_palette() -> bytes:
    """Has what a PNG of ours begins with, so that packing stores it as it is; but we write no palettes."""
    ours = chunk(b"fpST", (45).to_bytes(4, "big"))
    return png(GRAYS >> 4, color=PALETTE, palette=COLOURS[:48], before=ours, transparency=b"\0\x80")


FILES = {
    "gray.jpg": (saved("JPEG", "L"), PixelForm(1, 8)),
    "photo.jpg": (jpeg_bytes(), PixelForm(3, 8)),
    "late.jpg": (with_segments(saved("JPEG", "L"), (0xE1, bytes(9000))), PixelForm(1, 8)),
    "progressive.jpg": (saved("JPEG", progressive=True), PixelForm(3, 8)),
    "progressive-gray.jpg": (saved("JPEG", "L", progressive=True), PixelForm(1, 8)),
    "inks.jpg": (saved("JPEG", "CMYK"), PixelForm(3, 8)),
    "twelve.jpg": (twelve_bit(jpeg_bytes()), PixelForm(3, 8)),
    "scans.jpg": (one_scan_a_component(), PixelForm(3, 8)),
    "unusual.jpg": (unusual_sampling(), PixelForm(3, 8)),
    "bits.png": (png(GRAYS >> 7, bits=1), PixelForm(1, 8)),
    "gray.png": (png(GRAYS), PixelForm(1, 8)),
    "deep.png": (png(GRAYS.astype(np.uint16) * 257, bits=16), PixelForm(1, 16)),
    "gray-clear.png": (png(GRAYS, transparency=b"\0\7"), PixelForm(4, 8)),
    "deep-clear.png": (
        png(GRAYS.astype(np.uint16), bits=16, transparency=b"\0\7"),
        PixelForm(4, 16),
    ),
    "gray-alpha.png": (png(TWO, color=GRAY_ALPHA), PixelForm(4, 8)),
    "rgb.png": (png(GRAIN, color=RGB, before=LONG), PixelForm(3, 8)),
    "rgb-deep.png": (png(GRAIN.astype(np.uint16), bits=16, color=RGB), PixelForm(3, 16)),
    "rgb-clear.png": (png(GRAIN, color=RGB, transparency=bytes(6), before=LONG), PixelForm(4, 8)),
    "alpha.png": (png(FOUR, color=RGB_ALPHA), PixelForm(4, 8)),
    "alpha-deep.png": (png(FOUR.astype(np.uint16), bits=16, color=RGB_ALPHA), PixelForm(4, 16)),
    "palette.png": (png(GRAYS >> 4, color=PALETTE, palette=COLOURS[:48]), PixelForm(3, 8)),
    "palette-clear.png": (
        png(GRAYS >> 4, color=PALETTE, palette=COLOURS[:48], transparency=b"\0"),
        PixelForm(4, 8),
    ),
    "ours.png": (encode_png(np.tile(TWO.astype(np.uint16), (9, 9, 1))), PixelForm(4, 16)),
    "strips.png": (strips_of_a_palette(), PixelForm(4, 8)),
    "alpha.webp": (of_array(FOUR, "WebP", lossless=True), PixelForm(4, 8)),
    "lossy.webp": (of_array(FOUR, "WebP"), PixelForm(3, 8)),
    "palette.gif": (saved("GIF", "P"), PixelForm(3, 8)),
    "clear.gif": (of_array(GRAYS, "GIF", transparency=int(GRAYS[0, 0])), PixelForm(4, 8)),
    "gray.bmp": (saved("BMP", "L"), PixelForm(1, 8)),
    "deep.tiff": (saved("TIFF", "I;16"), PixelForm(1, 16)),
    "deep.ppm": (b"P6 70 45 65535\n" + (GRAIN.astype(">u2") * 257).tobytes(), PixelForm(3, 16)),
    "inks.tiff": (saved("TIFF", "CMYK"), PixelForm(3, 8)),
    "gray-alpha.jp2": (saved("JPEG2000", "LA"), PixelForm(4, 8)),
    "lossy-alpha.jp2": (saved("JPEG2000", "LA", irreversible=True), PixelForm(1, 8)),
    "alpha.ico": (saved("ICO", "RGBA"), PixelForm(4, 8)),
    "bmp.ico": (saved("ICO", "RGBA", bitmap_format="bmp"), PixelForm(4, 8)),
}
PHOTO, GRAY_DEEP = PixelForm(3, 8), PixelForm(1, 16)


def written(folder: Path, names: list[str]) -> Path:
    placed = {f"{'ab'[number % 2]}/{name}": FILES[name][0] for number, name in enumerate(names)}
    return write_files(folder, placed)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`source` has all files; `jpeg` and `coefficients` were packed of it, in its order."""
    root = tmp_path_factory.mktemp("forms")
    written(root / "source", list(FILES))
    for storage in ("jpeg", "coefficients"):
        fastpipe.pack(root / "source", root / storage, storage=storage, shuffle=False, workers=2)
    return root


@pytest.mark.parametrize("data", ["source", "jpeg", "coefficients"])
def test_each_kind_of_file(work: Path, data: str) -> None:
    opened = fastpipe.open(work / data)
    names = [key.rpartition("/")[2] for key in opened["key"]]
    assert sorted(names) == sorted(FILES)
    expected = [FILES[name][1] for name in names]
    found = zip(opened["channels"].tolist(), opened["bits"].tolist(), strict=True)
    assert dict(zip(names, found, strict=True)) == dict(zip(names, expected, strict=True))
    assert opened.index.form_counts == Counter(expected)
    assert opened.index.form_counts.keys() == set(expected)
    again = open_data(work / data)  # an unpacked one from the scan's cache
    assert again.form_counts == Counter(expected)


def test_a_png_of_ours_is_stored_as_it_is(work: Path) -> None:
    index = PackedIndex(work / "jpeg")
    stored = {packed_jpeg(index, sample) for sample in range(len(index))}
    assert stored >= {FILES["ours.png"][0], FILES["strips.png"][0]}


def test_options_that_change_what_is_stored(tmp_path: Path) -> None:
    source = written(tmp_path / "source", ["deep.png", "alpha.png", "gray-alpha.png", "photo.jpg"])
    fastpipe.pack(source, tmp_path / "lossy", quality=90)
    assert PackedIndex(tmp_path / "lossy").form_counts == {PixelForm(1, 8): 2, PHOTO: 2}
    fastpipe.pack(source, tmp_path / "small", max_size=30)
    assert PackedIndex(tmp_path / "small").form_counts == {
        GRAY_DEEP: 1,
        PixelForm(4, 8): 2,
        PHOTO: 1,
    }


def test_arrays_of_a_program(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "data") as writer:
        writer.add(GRAYS.astype(np.uint16)[:, :, None])
        writer.add(FOUR)
    data = fastpipe.open(tmp_path / "data")
    assert (data["channels"].tolist(), data["bits"].tolist()) == ([1, 4], [16, 8])
    assert {form.dtype for form in data.index.form_counts} == {
        np.dtype(np.uint8),
        np.dtype(np.uint16),
    }


def test_adding_and_removing(tmp_path: Path) -> None:
    destination = tmp_path / "data"
    fastpipe.pack(written(tmp_path / "one", ["photo.jpg", "gray.jpg"]), destination)
    assert PackedIndex(destination).info["forms"] == [
        {"channels": 1, "bits": 8, "samples": 1},
        {"channels": 3, "bits": 8, "samples": 1},
    ]
    fastpipe.add(written(tmp_path / "two", ["deep.png", "gray.png"]), destination)
    assert PackedIndex(destination).form_counts == {PixelForm(1, 8): 2, PHOTO: 1, GRAY_DEEP: 1}
    fastpipe.remove(destination, where=["channels == 1", "bits < 16"])
    assert PackedIndex(destination).form_counts == {PHOTO: 1, GRAY_DEEP: 1}
    assert PackedIndex(destination, version=1).form_counts.keys() == {PixelForm(1, 8), PHOTO}
    assert verify(destination).sound


def test_a_mixture_has_the_forms_of_all(tmp_path: Path, work: Path) -> None:
    fastpipe.pack(written(tmp_path / "source", ["deep.png", "photo.jpg"]), tmp_path / "data")
    data = fastpipe.concat(fastpipe.open(tmp_path / "data"), fastpipe.open(work / "source"))
    assert data.index.form_counts[PHOTO] == 1 + sum(form == PHOTO for _, form in FILES.values())
    assert sum(data.index.form_counts.values()) == len(data) == 2 + len(FILES)
    assert sorted(data["bits"][:2]) == [8, 16]


def test_inspect_shows_forms_that_are_not_all_the_usual_one(work: Path, flat: Path) -> None:
    counts = Counter(form for _, form in FILES.values())
    text = succeeded("inspect", work / "jpeg", "--no-sheet")
    assert re.search(
        rf"channels x bits +1 x 8: {counts[PixelForm(1, 8)]}, 1 x 16: {counts[GRAY_DEEP]}, ", text
    )
    assert "channels x bits" not in succeeded("inspect", flat, "--no-sheet")
    content = json.loads(succeeded("inspect", flat, "--no-sheet", "--json"))
    assert content["forms"] == [{"channels": 3, "bits": 8, "samples": 37}]
