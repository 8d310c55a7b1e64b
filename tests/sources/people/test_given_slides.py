"""Slides of microscopes: TIFFs in JPEG tiles, in several sizes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.pictures.jpegs import picture
from support.pictures.tiffs import pyramid, shown
from support.sources.becomes import becomes
from support.sources.people import assumed

import fastpipe

GRADES = (0, 2, 5)


def slides(folder: Path, ending: str) -> list[Path]:
    folder.mkdir(parents=True)
    paths = []
    for number in range(len(GRADES)):
        pixels = picture(300 + number, 200, "smooth", seed=number)
        small = np.ascontiguousarray(pixels[::4, ::4])
        path = folder / f"case-{number}.{ending}"
        path.write_bytes(pyramid([pixels, small]))
        paths.append(path)
    return paths


def image_of(data: fastpipe.Dataset, key: str) -> np.ndarray:
    (position,) = np.flatnonzero(data["key"] == key)
    image, _ = data[int(position)]
    return np.asarray(image.permute(1, 2, 0))


@becomes(
    "slides of microscopes and GeoTIFFs in JPEG tiles (`.svs`, `.tif`, `.scn`), of any size",
    "the same tiles, without decoding; of several sizes the largest",
    "--level 1",
)
@pytest.mark.parametrize("ending", ["svs", "tif", "tiff"])
def test_slides_in_class_folders(tmp_path: Path, ending: str) -> None:
    normal, tumor, other = slides(tmp_path / "src/normal", ending)
    (tmp_path / "src/tumor").mkdir()
    shutil.move(tumor, tmp_path / "src/tumor")
    fastpipe.pack(tmp_path / "src", tmp_path / "packed")
    data = fastpipe.open(tmp_path / "packed")
    assert data.classes == ["normal", "tumor"]
    assert sorted(data["width"].tolist()) == [300, 301, 302]
    assert np.array_equal(image_of(data, f"normal/{normal.name}"), shown(normal))
    assert np.array_equal(image_of(data, f"normal/{other.name}"), shown(other))
    fastpipe.pack(tmp_path / "src", tmp_path / "small", level=1)
    assert sorted(fastpipe.open(tmp_path / "small")["width"].tolist()) == [75, 76, 76]


@becomes(
    "a table of slides with their numbers alone (PANDA's train.csv)",
    "the slide of each number, with its label",
    "pass the table, --image-root, --label-column",
)
def test_a_table_of_slides(tmp_path: Path) -> None:
    slides(tmp_path / "src/train_images", "tiff")
    rows = "".join(f"case-{number},karolinska,{grade}\n" for number, grade in enumerate(GRADES))
    (tmp_path / "src/train.csv").write_text(f"image_id,data_provider,isup_grade\n{rows}")
    (named,) = [
        text
        for text in assumed(fastpipe.pack(tmp_path / "src", tmp_path / "bare"))
        if "train.csv" in text
    ]
    assert "(--image-root" in named
    assert "train_images --label-column isup_grade)" in named
    fastpipe.pack(
        tmp_path / "src/train.csv",
        tmp_path / "packed",
        image_root=tmp_path / "src/train_images",
        label_column="isup_grade",
    )
    data = fastpipe.open(tmp_path / "packed")
    grades = {}
    for key, label in zip(data["key"].tolist(), data["label"].tolist(), strict=True):
        grades[Path(key).stem] = data.classes[label]
    assert grades == {"case-0": "0", "case-1": "2", "case-2": "5"}
