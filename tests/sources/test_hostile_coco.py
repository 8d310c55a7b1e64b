"""COCO files that lie, are damaged or large: named errors and reasons, nothing lost, memory bounded."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.running.memory import PEAK, frees_memory
from support.sources.listed import by_path, flat_photos, paths_of

import fastpipe
from fastpipe.errors import ImageError, PackError
from fastpipe.packing.fields.mask import draw_shapes
from fastpipe.sources import coco
from fastpipe.sources.coco import entries

Content = dict[str, Any]
BOX = {"id": 1, "image_id": 3, "category_id": 1, "bbox": [1, 2, 10, 20], "iscrowd": 0, "area": 200}


def content(**annotation: Any) -> Content:
    """Four photos, 40 to 43 x 30, and one annotation, which is of the last photo."""
    images = [{"id": at, "file_name": f"{at:03d}.jpg", "width": 40 + at, "height": 30} for at in range(4)]
    return {"images": images, "annotations": [{**BOX, **annotation}], "categories": [{"id": 1, "name": "ant"}]}


def packed(tmp_path: Path, what: Content | bytes, **options: Any) -> fastpipe.Summary:
    flat_photos(tmp_path / "photos", 4)
    data = what if isinstance(what, bytes) else json.dumps(what).encode()
    (tmp_path / "photos" / "all.json").write_bytes(data)
    return fastpipe.pack(tmp_path / "photos/all.json", tmp_path / "packed", **options)


def test_text_behind_the_object_is_named(tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"expected no more text at character \d+, got 'x'"):
        packed(tmp_path, json.dumps(content()).encode() + b" x")


@pytest.mark.parametrize(
    ("bbox", "kept"),
    [
        ([-0.004, 2, 43.01, 28.003], [0, 2, 43, 30]),  # rounding
        ([33, 29, 11, 2], [33, 29, 43, 30]),  # one pixel
        ([5, 5, 0, 0], [5, 5, 5, 5]),  # no width
        ([43.5, 5, 0.4, 1], [43, 5, 43, 6]),
    ],
)
def test_boxes_a_little_outside_are_cut_off(tmp_path: Path, bbox: list[float], kept: list[float]) -> None:
    assert packed(tmp_path, content(bbox=bbox)).tally.rejected == []
    boxes, labels = by_path(tmp_path / "packed", "boxes")["003.jpg"]
    np.testing.assert_allclose(boxes, [kept], rtol=1e-6)
    assert labels.tolist() == [1]


@pytest.mark.parametrize(
    ("annotation", "options", "reason"),
    [
        ({"bbox": [1, 2, 50, 20]}, {}, "field boxes: expected boxes x0, y0, x1, y1 inside the image"),
        ({"bbox": [5, 5, -3, 2]}, {}, "inside the image"),
        ({"bbox": [5, 5, 3]}, {}, "annotation 1: expected boxes of four numbers: x, y, width, height"),
        ({"bbox": None}, {}, "annotation 1: expected boxes of four numbers"),
        ({"bbox": [1, 2, "a", 4]}, {}, "annotation 1: expected boxes of four numbers"),
        ({"bbox": [1, 2, float("nan"), 4]}, {}, "annotation 1: expected boxes of four numbers"),
        ({"bbox": [1, 2, 10**400, 4]}, {}, "annotation 1: expected boxes of four numbers"),
        ({"category_id": 9}, {}, "annotation 1: expected a category_id of the categories, got 9"),
        ({"category_id": "ant"}, {}, "got 'ant'"),
        ({"segmentation": [[1, 2, 3]]}, {"fields": ["s=segmentation:mask"]}, "three or more points"),
        ({"segmentation": [[0, 0, 1e12, 0, 9, 9]]}, {"fields": ["s=segmentation:mask"]}, "in or near an image"),
        (
            {"segmentation": {"size": [9, 9], "counts": [81]}},
            {"fields": ["s=segmentation:mask"]},
            r"of size \[30, 43\]",
        ),
        (
            {"segmentation": {"size": [30, 43], "counts": [5, 2**60]}},
            {"fields": ["s=segmentation:mask"]},
            "1,290 pixels",
        ),
        ({"segmentation": {"size": [30, 43], "counts": "~~~~"}}, {"fields": ["s=segmentation:mask"]}, "counts"),
        ({"segmentation": "all"}, {"fields": ["s=segmentation:mask"]}, "expected polygons, or runs"),
    ],
)
def test_lies_of_an_annotation_reject_its_image(
    tmp_path: Path, annotation: Content, options: dict[str, Any], reason: str
) -> None:
    summary = packed(tmp_path, content(**annotation), **options)
    ((path, why),) = summary.tally.rejected
    assert path == "003.jpg"
    assert re.search(reason, why)
    assert sorted(paths_of(tmp_path / "packed")) == ["000.jpg", "001.jpg", "002.jpg"]


def wrong_size(what: Content) -> None:
    what["images"][3]["height"] = 31


def no_size(what: Content) -> None:
    what["images"][3]["width"] = "wide"


def missing(what: Content) -> None:
    what["images"][3]["file_name"] = "gone.jpg"


def unnamed(what: Content) -> None:
    del what["images"][3]["file_name"]


def folder(what: Content) -> None:
    what["images"][3]["file_name"] = "."


def stranger(what: Content) -> None:
    what["annotations"].append({**BOX, "image_id": 77})


def nobody(what: Content) -> None:
    what["annotations"].append({**BOX, "image_id": None})


@pytest.mark.parametrize(
    ("lie", "name", "reason"),
    [
        (wrong_size, "003.jpg", "expected 43 x 31 pixels, as its annotations say; got 43 x 30"),
        (no_size, "003.jpg", "expected a width and a height, got 'wide' and 30 (all.json/images/000003)"),
        (missing, "gone.jpg", "no such file in the image root"),
        (unnamed, "all.json/images/000003", "expected a file_name, got None"),
        (folder, ".", "not a regular file"),
        (stranger, "all.json/annotations/000001", "expected the image_id of one of the images, got 77"),
        (nobody, "all.json/annotations/000001", "expected the image_id of one of the images, got None"),
    ],
)
def test_lies_of_a_file_are_listed(tmp_path: Path, lie: Callable[[Content], None], name: str, reason: str) -> None:
    what = content()
    lie(what)
    ((path, why),) = packed(tmp_path, what).tally.rejected
    assert path == name
    assert reason in why


def twice(what: Content) -> None:
    what["images"].append({"id": 3, "file_name": "000.jpg"})


def word_as_id(what: Content) -> None:
    what["images"][1]["id"] = "one"


def no_object(what: Content) -> None:
    what["annotations"].append(7)


def category_without_name(what: Content) -> None:
    what["categories"].append({"id": 2})


def two_names(what: Content) -> None:
    what["categories"].append({"id": 1, "name": "bee"})


def other_points(what: Content) -> None:
    what["categories"] += [{"id": 2, "name": "b", "keypoints": ["x"]}, {"id": 3, "name": "c", "keypoints": ["y"]}]


def no_images(what: Content) -> None:
    what["images"] = []


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (twice, "all.json: two images have the id 3: '003.jpg' and '000.jpg'"),
        (word_as_id, "expected a whole number as the id of an image, got 'one'"),
        (no_object, r"expected objects in annotations, got 7 \(1\)"),
        (category_without_name, "expected categories with an id of 0 to 999,999 and a name, got 2 and None"),
        (two_names, "category 1 is 'bee', and 'ant'"),
        (other_points, "category 3: expected names of keypoints, the same for all categories"),
        (no_images, "has no images"),
    ],
)
def test_contradictions_stop_the_pack(tmp_path: Path, lie: Callable[[Content], None], message: str) -> None:
    what = content()
    lie(what)
    with pytest.raises(PackError, match=message):
        packed(tmp_path, what)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"[]",
        lambda data: data + b"x",
        lambda data: data.replace(b"000.jpg", b"\xff00.jpg"),
        lambda data: data.replace(b", ", b" ", 1),
        lambda data: b'{"images": ' + b"[" * 100_000,
        lambda data: b'{"images": [' + b'{"id": "' + b"9" * 20_000_000,
    ],
)
def test_a_damaged_file_is_a_named_error(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(PackError, match=r"all\.json"):
        packed(tmp_path, damage(json.dumps(content()).encode()))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
        max_leaves=20,
    ),
    st.sampled_from([1, 2, 3, 17, 1 << 20]),
    st.sampled_from([None, 1]),
)
def test_entries_are_those_of_json(
    tmp_path_factory: pytest.TempPathFactory, value: Any, piece: int, indent: int
) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    whole = {"a": [value, value], "b": value, "c": []}
    path.write_text(json.dumps(whole, indent=indent, ensure_ascii=piece % 2 == 0), "utf-8", "surrogatepass")
    found: dict[str, Any] = {"c": []}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(coco, "_PIECE_BYTES", piece)
        try:
            for name, number, entry in entries(path):
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


@given(st.text(st.characters(min_codepoint=40, max_codepoint=120), max_size=12) | st.lists(st.integers(-2, 30)))
def test_any_counts_are_drawn_or_refused(counts: object) -> None:
    try:
        drawn = draw_shapes([(3, {"size": [4, 5], "counts": counts})], 5, 4)
    except ImageError:
        return
    assert drawn.shape == (4, 5)
    assert set(np.unique(drawn)) <= {0, 3}


MEASURE = f"""
import sys
from pathlib import Path
{PEAK}
from fastpipe.sources.coco import list_coco
from fastpipe.sources.options import SourceOptions
before = peak_bytes()
listing = list_coco([Path(sys.argv[1])], SourceOptions(image_root=sys.argv[2]))
print(len(listing.sources), (peak_bytes() - before) // 1000)
"""


@frees_memory
def test_a_large_file_is_listed_in_little_memory(tmp_path: Path) -> None:
    """Annotations of 60 MB, of 10,000 images; json.load would take 300 MB."""
    (tmp_path / "photos").mkdir()
    polygon = [round(at * 0.37, 2) for at in range(200)]
    notes = ({**BOX, "id": at, "image_id": at % 10_000, "segmentation": [polygon]} for at in range(45_000))
    file = tmp_path / "a.json"
    with open(file, "w") as out:
        images = [{"id": at, "file_name": f"{at}.jpg", "width": 40, "height": 30} for at in range(10_000)]
        out.write('{"images": ' + json.dumps(images) + ', "categories": [{"id": 1, "name": "a"}], "annotations": [')
        out.write(", ".join(map(json.dumps, notes)) + "]}")
    assert file.stat().st_size > 50e6
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, file, tmp_path / "photos"], capture_output=True, text=True, check=True
    )
    sources, kilobytes = map(int, run.stdout.split())
    assert sources == 10_000
    assert kilobytes < 30_000
