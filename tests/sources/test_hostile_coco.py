"""COCO files that lie, are damaged or large: named errors and reasons, nothing lost, memory bounded."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.programs.cli_run import succeeded
from support.sources.listed import by_path, flat_photos, paths_of

import fastpipe
from fastpipe.errors import ImageError, PackError
from fastpipe.packing.fields.mask import draw_shapes
from fastpipe.sources import json_stream
from fastpipe.sources.json_stream import object_entries

Content = dict[str, Any]
BOX = {"id": 1, "image_id": 3, "category_id": 1, "bbox": [1, 2, 10, 20], "iscrowd": 0, "area": 200}


def content(images: int = 4) -> Content:
    """Photos 40, 41, ... x 30, with the ids 0, 1, ..., and one annotation, which is of the photo with the id 3."""
    photos = [
        {"id": at, "file_name": f"{at:03d}.jpg", "width": 40 + at, "height": 30}
        for at in range(images)
    ]
    return {"images": photos, "annotations": [dict(BOX)], "categories": [{"id": 1, "name": "ant"}]}


def packed(tmp_path: Path, what: Content | bytes, **options: Any) -> fastpipe.Summary:
    data = what if isinstance(what, bytes) else json.dumps(what).encode()
    if not (tmp_path / "photos").exists():
        flat_photos(tmp_path / "photos", 4 if isinstance(what, bytes) else len(what["images"]))
    (tmp_path / "photos" / "all.json").write_bytes(data)
    return fastpipe.pack(tmp_path / "photos/all.json", tmp_path / "packed", **options)


def test_boxes_a_little_outside_are_cut_off(tmp_path: Path) -> None:
    """By a pixel, as rounding does it."""
    boxes = {
        "000.jpg": ([-0.004, 2, 40.01, 28.003], [0, 2, 40, 30]),  # rounding
        "001.jpg": ([33, 29, 9, 2], [33, 29, 41, 30]),  # one pixel
        "002.jpg": ([5, 5, 0, 0], [5, 5, 5, 5]),  # no width
        "003.jpg": ([43.5, 5, 0.4, 1], [43, 5, 43, 6]),
    }
    what = content()
    what["annotations"] = [
        {**BOX, "id": at, "image_id": at, "bbox": box} for at, (box, _) in enumerate(boxes.values())
    ]
    assert packed(tmp_path, what).tally.rejected == []
    for path, (found, labels) in by_path(tmp_path / "packed", "boxes").items():
        np.testing.assert_allclose(found, [boxes[path][1]], rtol=1e-6)
        assert labels.tolist() == [1]


# What an annotation may say that cannot be, and why its image is left out.
LIES: list[tuple[Content, str]] = [
    ({"bbox": [1, 2, 60, 20]}, "field boxes: expected boxes x0, y0, x1, y1 inside the image"),
    ({"bbox": [5, 5, -3, 2]}, "inside the image"),
    ({"bbox": [5, 5, 3]}, "annotation 2: expected boxes of four numbers: x, y, width, height"),
    ({"bbox": None, "segmentation": None}, "annotation 3: expected boxes of four numbers"),
    ({"bbox": [1, 2, "a", 4]}, "annotation 4: expected boxes of four numbers"),
    ({"bbox": [1, 2, float("nan"), 4]}, "annotation 5: expected boxes of four numbers"),
    ({"bbox": [1, 2, 10**400, 4]}, "annotation 6: expected boxes of four numbers"),
    ({"category_id": 9}, "annotation 7: expected a category_id of the categories, got 9"),
    ({"category_id": "ant"}, "got 'ant'"),
    ({"segmentation": [[1, 2, 3]]}, "three or more points"),
    ({"segmentation": [[0, 0, 1e12, 0, 9, 9]]}, "in or near an image"),
    ({"segmentation": {"size": [9, 9], "counts": [81]}}, "of size [30, 51]"),
    ({"segmentation": {"size": [30, 52], "counts": [5, 2**60]}}, "1,560 pixels"),
    ({"segmentation": {"size": [30, 53], "counts": "~~~~"}}, "counts"),
    ({"segmentation": "all"}, "expected polygons, or runs"),
]


def test_lies_of_an_annotation_reject_its_image(tmp_path: Path) -> None:
    what = content(len(LIES) + 1)
    sound: Content = {"segmentation": [[1, 2, 10, 2, 10, 20]]}
    what["annotations"] = [
        {**BOX, **sound, "id": at, "image_id": at, **lie}
        for at, (lie, _) in enumerate([*LIES, ({}, "")])
    ]
    rejected = dict(
        packed(tmp_path, what, fields=["boxes=bbox:boxes", "s=segmentation:mask"]).tally.rejected
    )
    for at, (_, reason) in enumerate(LIES):
        assert reason in rejected[f"{at:03d}.jpg"]
    assert paths_of(tmp_path / "packed") == [f"{len(LIES):03d}.jpg"]


def test_lies_of_a_file_are_listed(tmp_path: Path) -> None:
    what = content(8)
    images = what["images"]
    images[0]["height"] = 31
    images[1]["width"] = "wide"
    images[2]["file_name"] = "gone.jpg"
    del images[4]["file_name"]
    images[5]["file_name"] = "."
    images[6] |= {"width": 0, "height": 0}  # that is no lie: nobody has measured it
    images[7]["width"] = 0
    what["annotations"] += [
        {**BOX, "image_id": 0},
        {**BOX, "image_id": 77},
        {**BOX, "image_id": None},
    ]
    assert dict(packed(tmp_path, what).tally.rejected) == {
        "000.jpg": "expected 40 x 31 pixels, as its annotations say; got 40 x 30",
        "001.jpg": "expected a width and a height, got 'wide' and 30 (all.json/images/000001)",
        "gone.jpg": "no such file in the image root; --image-root says where the images are (all.json/images/000002)",
        "all.json/images/000004": "expected a file_name, got None",
        ".": "not a regular file (a folder, pipe, socket or device) (all.json/images/000005)",
        "007.jpg": "expected a width and a height, got 0 and 30 (all.json/images/000007)",
        "all.json/annotations/000002": "expected the image_id of one of the images, got 77",
        "all.json/annotations/000003": "expected the image_id of one of the images, got None",
    }
    assert sorted(paths_of(tmp_path / "packed")) == ["003.jpg", "006.jpg"]


def test_annotations_of_images_that_were_filtered_out_are_no_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    what = content(3)
    what["annotations"] = [{**BOX, "id": at, "image_id": at} for at in range(9)]
    with caplog.at_level(logging.WARNING, "fastpipe.pack"):
        packed(tmp_path, what)
    assert "6 annotations were not packed" in caplog.text
    source = tmp_path / "photos" / "all.json"
    shown = " ".join(succeeded("pack", source, tmp_path / "again").split())
    assert "packed 3 of 3 files" in shown
    assert "rejected 6 annotations; the annotations are left out" in shown


# What a file may say that stops the pack: the list that gets another entry, the entry, and words of the error.
CONTRADICTIONS: list[tuple[str, list[object], str]] = [
    (
        "images",
        [{"id": 3, "file_name": "000.jpg"}],
        "all.json: two images have the id 3: '003.jpg' and '000.jpg'",
    ),
    (
        "images",
        [{"id": [1], "file_name": "000.jpg"}],
        "expected a number or a text as the id of an image, got [1]",
    ),
    (
        "images",
        [{"id": True, "file_name": "000.jpg"}],
        "expected a number or a text as the id of an image, got True",
    ),
    ("annotations", [7], "expected objects in annotations, got 7 (1)"),
    (
        "categories",
        [{"id": 2}],
        "expected categories with an id of 0 to 999,999 and a name, got 2 and None",
    ),
    (
        "categories",
        [{"id": 1_000_000, "name": "x"}],
        "an id of 0 to 999,999 and a name, got 1000000 and 'x'",
    ),
    ("categories", [{"id": -1, "name": "x"}], "an id of 0 to 999,999 and a name, got -1 and 'x'"),
    (
        "categories",
        [{"id": 2, "name": "b", "keypoints": 7}],
        "category 2: expected names of keypoints",
    ),
    ("categories", [{"id": 1, "name": "bee"}], "category 1 is 'bee', and 'ant'"),
    (
        "categories",
        [{"id": 2, "name": "b", "keypoints": ["x"]}, {"id": 3, "name": "c", "keypoints": ["y"]}],
        "category 3: expected names of keypoints, the same for all categories",
    ),
]


def test_contradictions_stop_the_pack(tmp_path: Path) -> None:
    for name, added, words in CONTRADICTIONS:
        what = content()
        what[name] += added
        with pytest.raises(PackError, match=re.escape(words)):
            packed(tmp_path, what)
    with pytest.raises(PackError, match="has no images"):
        packed(tmp_path, {**content(), "images": []})


LIKE_COCO = [
    (
        {"images": [{"file": "a.jpg", "detections": [{"category": "1", "conf": 0.9}]}]},
        "MegaDetector's detections",
    ),
    (
        {"categories": {"label": {"labels": [{"name": "cat"}]}}, "items": []},
        "datum convert -if datumaro",
    ),
    ({"classes": ["cat"], "labels": {"a": 0}}, "FiftyOne's labels of images"),
]


@pytest.mark.parametrize(("what", "words"), LIKE_COCO)
def test_files_of_other_tools_are_named(tmp_path: Path, what: dict[str, Any], words: str) -> None:
    with pytest.raises(PackError, match=words):
        packed(tmp_path, json.dumps(what).encode())


def test_a_damaged_file_is_a_named_error(tmp_path: Path) -> None:
    data = json.dumps(content()).encode()
    damages = (
        data[:-1],
        data[: len(data) // 2],
        b"",
        b"[]",
        data + b"x",
        data.replace(b"000.jpg", b"\xff00.jpg"),
        data.replace(b", ", b" ", 1),
        b'{"images": ' + b"[" * 100_000,
        b'{"images": [' + b'{"id": "' + b"9" * 20_000_000,
    )
    for damaged in damages:
        with pytest.raises(PackError, match=r"all\.json"):
            packed(tmp_path, damaged)
    with pytest.raises(PackError, match=r"expected no more text at character \d+, got 'x'"):
        packed(tmp_path, data + b" x")


@settings(max_examples=25)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
        max_leaves=10,
    ),
    st.sampled_from([1, 2, 3, 17, 1 << 20]),
    st.sampled_from([None, 1]),
)
def test_entries_are_of_json(
    tmp_path_factory: pytest.TempPathFactory, value: Any, piece: int, indent: int
) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    whole = {"a": [value, value], "b": value, "c": []}
    path.write_text(
        json.dumps(whole, indent=indent, ensure_ascii=piece % 2 == 0), "utf-8", "surrogatepass"
    )
    found: dict[str, Any] = {"c": []}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_stream, "_CHUNK_BYTES", piece)
        try:
            for name, number, entry in object_entries(path):
                if number < 0:
                    found[name] = entry
                else:
                    found.setdefault(name, []).append(entry)
        except PackError:
            with pytest.raises(UnicodeDecodeError):
                path.read_text("utf-8")
            return
    if isinstance(value, list):
        assert found["b"] == value if value else "b" not in found
        found.setdefault("b", [])
    assert found == whole


@given(
    st.text(st.characters(min_codepoint=40, max_codepoint=120), max_size=12)
    | st.lists(st.integers(-2, 30))
)
def test_any_counts_are_drawn_or_refused(counts: object) -> None:
    try:
        drawn = draw_shapes([(3, {"size": [4, 5], "counts": counts})], 5, 4)
    except ImageError:
        return
    assert drawn.shape == (4, 5)
    assert set(np.unique(drawn)) <= {0, 3}


def test_images_that_were_resized_after_they_were_annotated(tmp_path: Path) -> None:
    what = content()
    what["images"][0] |= {"width": 80, "height": 60}
    what["images"][1] |= {"width": 80, "height": 50}
    what["annotations"] = []
    reasons = dict(packed(tmp_path, what).tally.rejected)
    assert reasons["000.jpg"] == (
        "expected 80 x 60 pixels, as its annotations say; got 40 x 30; if it was resized after it "
        "was annotated, pack the original image with --max-size 40, or multiply the boxes and points "
        "by 0.5 and write its width and height into the annotations"
    )
    assert reasons["001.jpg"].endswith("got 41 x 30")
