"""What the log of a pack says to a program in Python."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.sources.pack_sources import jpeg_bytes

import fastpipe
from fastpipe.packing.job.log import as_arguments, log_rejected


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


def test_what_rejected_samples_have_in_common_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """COCO's boxes in a Writer: x, y, width, height."""
    image = np.zeros((240, 240, 3), np.uint8)
    with (
        caplog.at_level(logging.WARNING, "fastpipe.pack"),
        fastpipe.Writer(tmp_path / "packed", fields={"boxes": "boxes"}) as writer,
    ):
        writer.add(image, key="good", boxes=[[0, 0, 9, 9]])
        for number in range(5):
            writer.add(image, key=f"{number}", boxes=[[103 + number, 56, 37, 32]])
    (message,) = caplog.messages
    assert message == (
        f"fastpipe.Writer: 5 samples were not packed ({tmp_path}/packed/rejected.jsonl lists them): "
        "0: field boxes: expected boxes x0, y0, x1, y1 inside the image, x0 <= x1 <= 240 and "
        "y0 <= y1 <= 240; got 103.0, 56.0, 37.0, 32.0 (box 0); 1: got 104.0, 56.0, 37.0, 32.0 (box 0); "
        "2: got 105.0, 56.0, 37.0, 32.0 (box 0); and 2 more. If these are x, y, width, height, write "
        "x, y, x + width, y + height. on_error='fail' stops at the first one"
    )


def test_other_reasons_of_rejected_samples_are_whole(caplog: pytest.LogCaptureFixture) -> None:
    rejected = [("a", "expected 1; got 2. Pass 1"), ("b", "it is empty. Fill it"), ("c", "no file")]
    with caplog.at_level(logging.WARNING, "fastpipe.pack"):
        log_rejected("src", rejected)
        log_rejected("src", rejected[:1])
    several, one = caplog.messages
    assert (
        "not packed: a: expected 1; got 2. Pass 1; b: it is empty. Fill it; c: no file. " in several
    )
    assert "not packed: a: expected 1; got 2. Pass 1. on_error" in one
