"""MOTChallenge: the boxes of the frames of a sequence in gt/gt.txt."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, values, write

import fastpipe
from fastpipe.errors import PackError

INFO = "[Sequence]\nname=MOT17-02\nimDir=img1\nseqLength=3\nimWidth=40\nimHeight=30\nimExt=.jpg\n"
LINES = (
    "1,7,6,5,10,20,1,1,0.5",
    "1,8,31,21,20,20,1,3,1",
    "3,7,1,1,4,4,1,1,0.25",
    "1,9,2,2,3,3,0,8,1",
)
# Pixel 6 is the sixth one, whose left edge is at 5; boxes end at the edge of the image.
BOXES = {
    "img1/000001.jpg": [[[5, 4, 15, 24], [30, 20, 40, 30]], [1, 0]],
    "img1/000002.jpg": [[], []],
    "img1/000003.jpg": [[[0, 0, 4, 4]], [1]],
}


def sequence(folder: Path, lines: tuple[str, ...] = LINES) -> Path:
    photos(folder, *(f"img1/{number:06}.jpg" for number in (1, 2, 3)))
    write(folder / "det/det.txt", "1,-1,5,6,20,10,0.9,-1,-1,-1\n")
    write(folder / "seqinfo.ini", INFO)
    write(folder / "gt/gt.txt", "\n".join(lines) + "\n")
    return folder


@becomes(
    "MOTChallenge: a sequence, `img1/000001.jpg` and `gt/gt.txt`",
    "boxes of all frames, with pixels counted from 0; those that do not count are left out; track and visibility in "
    "the field attributes",
)
def test_a_sequence(tmp_path: Path) -> None:
    source = sequence(tmp_path / "MOT17-02-FRCNN")
    texts = assumed(fastpipe.pack(source, tmp_path / "packed"))
    assert values(tmp_path, "boxes") == BOXES
    data = fastpipe.open(tmp_path / "packed")
    assert data.fields["boxes"].names == ("car", "pedestrian")
    assert values(tmp_path, "attributes")["img1/000001.jpg"] == [
        {"track": 7, "visibility": 0.5},
        {"track": 8, "visibility": 1.0},
    ]
    assert "left out, because they give no box: boxes that do not count (1)" in texts
    assert (
        "boxes of MOT: 3; MOT counts pixels from 1, so left and top are 1 less than in gt.txt"
    ) in texts


@becomes(
    "MOTChallenge: `train/` and `test/` with sequences",
    "boxes of all sequences of the split; that MOT17 repeats each sequence is said",
    "--split train",
)
def test_sequences_of_a_split(tmp_path: Path) -> None:
    source = tmp_path / "MOT17"
    sequence(source / "train/MOT17-02-FRCNN")
    sequence(source / "train/MOT17-02-SDP")
    photos(source, "test/MOT17-01-FRCNN/img1/000001.jpg")
    texts = assumed(fastpipe.pack(source, tmp_path / "packed", split="train"))
    wanted = {}
    for name in ("MOT17-02-FRCNN", "MOT17-02-SDP"):
        wanted.update({f"{name}/{path}": boxes for path, boxes in BOXES.items()})
    assert values(tmp_path, "boxes") == wanted
    repeated = "packed several times, once for each detector (DPM, FRCNN, SDP): 3;"
    assert any(repeated in text for text in texts)


def test_frames_alone_name_the_sequence(tmp_path: Path) -> None:
    source = sequence(tmp_path / "MOT17-02-FRCNN")
    (text,) = assumed(fastpipe.pack(source / "img1", tmp_path / "packed"))
    assert f"To pack both: fastpipe pack {source} DST" in text


def test_ten_numbers_of_mot15(tmp_path: Path) -> None:
    source = sequence(tmp_path / "Venice-2", ("1,1,6,5,10,20,1,-1,-1,-1",))
    fastpipe.pack(source, tmp_path / "packed")
    assert values(tmp_path, "boxes")["img1/000001.jpg"] == [[[5, 4, 15, 24]], [0]]
    assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == ("pedestrian",)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ((*LINES, "4,7,6,5,10,20,1,1,0.5"), "line 5: the frame 4 is not in"),
        ((*LINES * 3, "1,7,6"), "line 13: expected the nine numbers of a box, got '1,7,6'"),
    ],
)
def test_damaged_lists(tmp_path: Path, lines: tuple[str, ...], problem: str) -> None:
    source = sequence(tmp_path / "MOT17-02-FRCNN", lines)
    with pytest.raises(PackError, match=problem):
        fastpipe.pack(source, tmp_path / "packed")
