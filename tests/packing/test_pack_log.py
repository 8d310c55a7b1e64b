"""What the log of a pack says to a program in Python."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from PIL import Image
from support.sources.pack_sources import jpeg_bytes

import fastpipe
from fastpipe.packing.job.log import as_arguments


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ("--first-label 1", "first_label=1"),
        ("--unlisted drop or keep", "unlisted='drop' or 'keep'"),
        ("--label-pattern '([^/]+)/[^/]*$'", "label_pattern='([^/]+)/[^/]*$'"),
        (
            "--format imagefolder or --label-pattern '(.+)/'",
            "format='imagefolder' or label_pattern='(.+)/'",
        ),
        ("--image-root /data/my-photos", "image_root='/data/my-photos'"),
        ("--lossless --tile 0", "lossless=True tile=0"),
        ("--lossless", "lossless=True"),
        ("--field score=label", "--field score=label"),
        ('coordinates="shown"', 'coordinates="shown"'),
        ("", ""),
    ],
)
def test_options_as_arguments(options: str, arguments: str) -> None:
    assert as_arguments(options) == arguments


def test_an_assumption_names_the_argument(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = ["path,label"]
    for number in (1, 2):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg_bytes((16, 16), seed=number))
        rows.append(f"{number}.jpg,{number}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    with caplog.at_level(logging.WARNING, "fastpipe.pack"):
        summary = fastpipe.pack(tmp_path / "labels.csv", tmp_path / "packed")
    assert [assumption.option for assumption in summary.assumed] == ["--first-label 1"]
    assert "so class 0 of 3 has no sample (first_label=1)" in caplog.text


def test_photos_with_an_exif_orientation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    turn = Image.Exif()
    turn[0x0112] = 6
    (tmp_path / "src").mkdir()
    for number, exif in enumerate((turn, turn, Image.Exif())):
        Image.new("RGB", (16, 8), (number, 0, 0)).save(tmp_path / f"src/{number}.jpg", exif=exif)
    text = "2 images have an EXIF orientation and are left as stored"
    with caplog.at_level(logging.WARNING, "fastpipe.pack"):
        fastpipe.pack(tmp_path / "src", tmp_path / "packed")
        assert text in caplog.text
        assert "exif='apply' rotates them upright" in caplog.text
        caplog.clear()
        fastpipe.pack(tmp_path / "src", tmp_path / "packed")  # it is packed already
        fastpipe.pack(tmp_path / "src", tmp_path / "upright", exif="apply")
    assert "EXIF" not in caplog.text
