"""300W, Helen, AFW, LFPW: landmarks of faces in .pts files beside the images."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, values, write

import fastpipe
from fastpipe.errors import PackError

TEXT = "version: 1\nn_points:  2\n{\n5.000000 6.500000\n1 1\n}\n"


@pytest.fixture
def faces(tmp_path: Path) -> Path:
    source = photos(tmp_path / "src", "01_Indoor/a.png", "02_Outdoor/b.png")
    write(source / "01_Indoor/a.pts", TEXT)
    write(source / "02_Outdoor/b.pts", TEXT)
    return source


@becomes(
    "300W: `01_Indoor/indoor_001.png` with `01_Indoor/indoor_001.pts`",
    "a field of keypoints, counted from 0 at the centre of the first pixel; without the option the files are named",
    "--field points=pts",
)
def test_landmarks(tmp_path: Path, faces: Path) -> None:
    texts = assumed(fastpipe.pack(faces, tmp_path / "packed", fields=["points=pts"]))
    # Points, and the visibility of each.
    expected = [[[[4, 5.5], [0, 0]]], [[2, 2]]]
    assert values(tmp_path, "points") == {
        "01_Indoor/a.png": expected,
        "02_Outdoor/b.png": expected,
    }
    assert fastpipe.open(tmp_path / "packed").fields["points"].kind == "keypoints"
    assert texts == [
        "points: .pts files count pixels from 1, so the points are 1 less than in the files"
    ]
    (named,) = assumed(fastpipe.pack(faces, tmp_path / "packed", overwrite=True))
    assert named.endswith(
        "(landmarks). To keep what they say: --field points=pts packs the points of a.pts with a.jpg"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TEXT.replace("2\n{", "3\n{"), "expected 3 points, got 2"),
        (TEXT.replace("1 1", "1"), "expected x and y of a point, got '1'"),
        (TEXT.replace("1 1", "x 1"), "expected a number, got 'x'"),
        (TEXT.replace("}", ""), "expected points between braces"),
    ],
)
def test_damaged_files(tmp_path: Path, faces: Path, text: str, problem: str) -> None:
    write(faces / "01_Indoor/a.pts", text)
    summary = fastpipe.pack(faces, tmp_path / "packed", fields=["points=pts"])
    ((path, reason),) = summary.tally.rejected
    assert path == "01_Indoor/a.png"
    assert problem in reason


def test_keypoints_of_other_files_are_refused(tmp_path: Path, faces: Path) -> None:
    with pytest.raises(PackError, match=r"Files that end in \.pts give keypoints"):
        fastpipe.pack(faces, tmp_path / "packed", fields=["points=txt:keypoints"])
