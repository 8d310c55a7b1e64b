"""Tables of landmarks as WFLW and DeepLabCut write them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, values, write

import fastpipe
from fastpipe.errors import PackError

# Six points of a face, its corners, and pose, expression, illumination, make-up, occlusion, blur.
FACE = "1 2 3.5 4 5 6 7 8 9 10 11 12"
OTHER = "2 2 3 3 4 4 5 5 6 6 7 7"
CORNERS = "1 2 11 12 1 0 0 0 0 1"
ATTRIBUTES = ("pose", "expression", "illumination", "make-up", "occlusion", "blur")


def points(text: str) -> list[list[float]]:
    numbers = [float(word) for word in text.split()]
    return [[x, y, 2] for x, y in zip(numbers[::2], numbers[1::2], strict=True)]


def keypoints(folder: Path) -> dict[str, list[list[list[float]]]]:
    """Key -> x, y and visibility of the points of each object, of FOLDER/packed."""
    by_key = {}
    for key, (places, visibilities) in values(folder, "keypoints").items():
        objects = []
        for points_of_object, seen in zip(places, visibilities, strict=True):
            pairs = zip(points_of_object, seen, strict=True)
            objects.append([[x, y, visibility] for (x, y), visibility in pairs])
        by_key[key] = objects
    return by_key


@becomes(
    "WFLW: `list_98pt_rect_attr_train.txt`, points, corners, attributes and path of a face on a line",
    "refused from the root, where the list is named; keypoints, boxes and attributes of each image",
    "list_98pt_rect_attr_train.txt --image-root WFLW_images",
)
def test_faces_of_wflw(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "WFLW_images/0--Parade/a.jpg", "WFLW_images/1--Hand/b.jpg")
    lines = [
        f"{FACE} {CORNERS} 0--Parade/a.jpg",
        f"{OTHER} 2 2 7 7 0 0 0 0 0 0 1--Hand/b.jpg",
        f"{OTHER} 2 2 7 7 0 1 0 0 0 0 0--Parade/a.jpg",
    ]
    folder = source / "WFLW_annotations/list_98pt_rect_attr_train_test"
    table = write(folder / "list_98pt_rect_attr_train.txt", "\n".join(lines) + "\n")
    images = source / "WFLW_images"
    words = f"Pass the table of these images: {table}, with --image-root {images}. "
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(source, tmp_path / "none")

    summary = fastpipe.pack(table, tmp_path / "packed", image_root=images)
    assert assumed(summary) == []
    assert keypoints(tmp_path) == {
        "0--Parade/a.jpg": [points(FACE), points(OTHER)],
        "1--Hand/b.jpg": [points(OTHER)],
    }
    assert values(tmp_path, "boxes") == {
        "0--Parade/a.jpg": [[1, 2, 11, 12], [2, 2, 7, 7]],
        "1--Hand/b.jpg": [[2, 2, 7, 7]],
    }
    flags = dict.fromkeys(ATTRIBUTES, 0)
    assert values(tmp_path, "attributes")["0--Parade/a.jpg"] == [
        flags | {"pose": 1, "blur": 1},
        flags | {"expression": 1},
    ]


def test_a_face_whose_box_is_dropped(tmp_path: Path) -> None:
    """Its points and attributes go with it."""
    photos(tmp_path, "a.jpg")
    lines = f"{FACE} 50 50 60 60 0 0 0 0 0 0 a.jpg\n{OTHER} 2 2 7 7 0 0 0 0 0 0 a.jpg\n"
    table = write(tmp_path / "list.txt", lines)
    fastpipe.pack(table, tmp_path / "packed", bad_boxes="drop")
    assert values(tmp_path, "boxes") == {"a.jpg": [[2, 2, 7, 7]]}
    assert keypoints(tmp_path) == {"a.jpg": [points(OTHER)]}


def test_points_alone(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    table = write(tmp_path / "list.txt", f"{FACE} a.jpg\n")
    fastpipe.pack(table, tmp_path / "packed")
    assert keypoints(tmp_path) == {"a.jpg": [points(FACE)]}
    assert list(fastpipe.open(tmp_path / "packed").fields) == ["keypoints"]


@becomes(
    "DeepLabCut: `labeled-data/video1/CollectedData_me.csv` with three rows of a header",
    "from the project or labeled-data the table is named; keypoints of each image, 0 where a point is missing",
    "CollectedData_me.csv",
)
@pytest.mark.parametrize("is_split", [False, True])
def test_points_of_deeplabcut(tmp_path: Path, *, is_split: bool) -> None:
    folder = photos(tmp_path / "labeled-data/video1", "img0.png", "img1.png")
    comma = "," if is_split else "/"
    empty = ",," if is_split else ""
    lines = [
        f"scorer{empty},me,me,me,me",
        f"bodyparts{empty},nose,nose,tail,tail",
        f"coords{empty},x,y,x,y",
        f"labeled-data{comma}video1{comma}img0.png,10.5,20.25,3,4",
        f"labeled-data{comma}video1{comma}img1.png,11.5,21,,",
    ]
    table = write(folder / "CollectedData_me.csv", "\n".join(lines) + "\n")
    write(folder / "CollectedData_me.h5", "data")
    notices = assumed(fastpipe.pack(tmp_path / "labeled-data", tmp_path / "none"))
    assert any(notice.endswith(f"pass the table, {table}") for notice in notices)
    write(tmp_path / "project/videos/video1.mp4", "film")
    (tmp_path / "project/labeled-data").symlink_to(tmp_path / "labeled-data")
    words = "labeled-data/video1/CollectedData_me.csv, which has the points of the images beside it"
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(tmp_path / "project", tmp_path / "none")

    expected = {
        "img0.png": [[[10.5, 20.25, 2], [3, 4, 2]]],
        "img1.png": [[[11.5, 21, 2], [0, 0, 0]]],
    }
    fastpipe.pack(table, tmp_path / "packed")
    assert keypoints(tmp_path) == expected
    fastpipe.pack(table, tmp_path / "packed", image_root=tmp_path, overwrite=True)
    long_names = {f"labeled-data/video1/{name}": value for name, value in expected.items()}
    assert keypoints(tmp_path) == long_names


def test_several_animals(tmp_path: Path) -> None:
    photos(tmp_path, "a.png", "b.png")
    lines = [
        "scorer,me,me,me,me,me,me,me,me",
        "individuals,one,one,one,one,two,two,two,two",
        "bodyparts,nose,nose,tail,tail,nose,nose,tail,tail",
        "coords,x,y,x,y,x,y,x,y",
        "a.png,1,2,3,4,5,6,7,8",
        "b.png,1,2,3,4,,,,",
        "c.png,1,2,3,4,x,,,",
    ]
    table = write(tmp_path / "CollectedData_me.csv", "\n".join(lines) + "\n")
    summary = fastpipe.pack(table, tmp_path / "packed")
    one = [[1, 2, 2], [3, 4, 2]]
    assert keypoints(tmp_path) == {
        "a.png": [one, [[5, 6, 2], [7, 8, 2]]],
        "b.png": [one],
    }
    ((_, reason),) = summary.tally.rejected
    assert "row 7: expected x and y of each point" in reason
