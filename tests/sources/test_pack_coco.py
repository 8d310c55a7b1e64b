"""COCO's annotations: boxes, crowds, keypoints, captions and masks, with pycocotools as the judge."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from support.programs.cli_run import succeeded
from support.sources.listed import by_path, flat_photos

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError
from fastpipe.sources.annotations.coco_fields import flip_pairs
from fastpipe.tools.verify.verification import verify

POINTS = ["nose", "left_eye", "right_eye", "tail"]
CATEGORIES = [
    {"id": 1, "name": "person", "keypoints": POINTS, "skeleton": [[1, 2]]},
    {"id": 7, "name": "dog"},
    {"id": 300, "name": "cat"},
]


def runs(mask: NDArray[np.uint8], *, packed: bool) -> dict[str, Any]:
    """RLE of a mask as COCO writes it."""
    found = coco_mask.encode(np.asfortranarray(mask))
    if packed:
        return {"size": list(mask.shape), "counts": found["counts"].decode()}
    flat = np.concatenate([[0], mask.ravel(order="F"), [2]])
    edges = np.flatnonzero(np.diff(flat))
    counts = np.diff(np.concatenate([[0], edges])).tolist()
    return {"size": list(mask.shape), "counts": [*counts[:-1], mask.size - sum(counts[:-1])]}


def annotations(seed: int = 0, photos: int = 12) -> dict[str, Any]:
    """A file of COCO's for `flat_photos`: of every fourth photo none, of some crowds, polygons of one or two parts."""
    rng = np.random.default_rng(seed)
    images = [
        {
            "id": 100 + 3 * number,
            "file_name": f"{number:03d}.jpg",
            "width": 40 + number,
            "height": 30,
        }
        for number in range(photos)
    ]
    found = []
    for number, image in enumerate(images):
        width, height = image["width"], 30
        for at in range(number % 4):
            x, y = rng.uniform(0, width / 2), rng.uniform(0, 15)
            box = [
                round(float(value), 2)
                for value in (x, y, rng.uniform(1, width / 2), rng.uniform(1, 15))
            ]
            crowd = int((number + at) % 5 == 0)
            if crowd:
                mask = (rng.random((height, width)) < 0.4).astype(np.uint8)
                shape: Any = runs(mask, packed=bool(number % 2))
            else:
                shape = [
                    [
                        round(float(each), 2)
                        for each in (rng.uniform(-0.4, 1, (5, 2)) * (width, height)).ravel()
                    ]
                    for _ in range(1 + at % 2)
                ]
            found.append(
                {
                    "id": 5000 + len(found),
                    "image_id": image["id"],
                    "category_id": [1, 7, 300][at % 3],
                    "bbox": box,
                    "area": float(box[2] * box[3]),
                    "iscrowd": crowd,
                    "segmentation": shape,
                }
            )
    rng.shuffle(found)
    return {
        "info": {"year": 2017},
        "images": images,
        "annotations": found,
        "categories": list(CATEGORIES),
    }


def write(path: Path, content: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """A folder as COCO has it: val2017/ and annotations/instances_val2017.json."""
    flat_photos(tmp_path / "coco/val2017")
    write(tmp_path / "coco/annotations/instances_val2017.json", annotations())
    return tmp_path / "coco"


def judge(path: Path) -> COCO:
    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(path)


@pytest.mark.parametrize(
    "source", ["coco", "coco/annotations", "coco/annotations/instances_val2017.json"]
)
def test_boxes_are_those_of_pycocotools(coco: Path, tmp_path: Path, source: str) -> None:
    fastpipe.pack(tmp_path / source, tmp_path / "packed")
    index = PackedIndex(tmp_path / "packed")
    assert {name: field.kind for name, field in index.fields.items()} == {
        "boxes": "boxes",
        "iscrowd": "json",
        "area": "json",
    }
    reference = judge(coco / "annotations/instances_val2017.json")
    found = by_path(tmp_path / "packed", "boxes", "iscrowd", "area", "label")
    assert len(found) == 12  # images without annotations, too
    for image in reference.dataset["images"]:
        boxes, labels, crowds, areas, label = found[image["file_name"]]
        notes = reference.loadAnns(reference.getAnnIds(imgIds=image["id"]))
        corners = [
            [x, y, x + width, y + height]
            for x, y, width, height in (note["bbox"] for note in notes)
        ]
        np.testing.assert_array_equal(boxes, np.array(corners, np.float32).reshape(-1, 4))
        assert labels.tolist() == [note["category_id"] for note in notes]
        assert (crowds, areas) == (
            [note["iscrowd"] for note in notes],
            [note["area"] for note in notes],
        )
        assert label == -1
    names = index.fields["boxes"].names
    assert len(names) == 301
    assert (names[1], names[7], names[300], names[2]) == ("person", "dog", "cat", "")
    assert verify(tmp_path / "packed").sound


@pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)  # pycocotools' own
def test_masks_are_those_of_pycocotools(coco: Path, tmp_path: Path) -> None:
    fastpipe.pack(
        coco, tmp_path / "packed", fields=["seg=segmentation:mask", "objects=instances:mask"]
    )
    reference = judge(coco / "annotations/instances_val2017.json")
    found = by_path(tmp_path / "packed", "seg", "objects")
    for image in reference.dataset["images"]:
        expected = np.zeros((30, image["width"]), np.uint16)
        numbers = np.zeros((30, image["width"]), np.uint16)
        notes = reference.loadAnns(reference.getAnnIds(imgIds=image["id"]))
        order = sorted(range(len(notes)), key=lambda number: not notes[number]["iscrowd"])
        for number in order:
            drawn = reference.annToMask(notes[number]).astype(bool)
            expected[drawn] = notes[number]["category_id"]
            numbers[drawn] = number + 1
        mask, objects = found[image["file_name"]]
        np.testing.assert_array_equal(np.asarray(mask), expected)
        np.testing.assert_array_equal(np.asarray(objects), numbers)
    assert max(int(mask.max()) for mask, _ in found.values()) == 300  # more than 8 bits
    assert PackedIndex(tmp_path / "packed").fields["seg"].names[7] == "dog"


def with_points(content: dict[str, Any]) -> dict[str, Any]:
    """The file person_keypoints_* of the same images: annotations of persons, some with the ids of `content`."""
    persons = []
    for number, note in enumerate(content["annotations"]):
        if note["category_id"] == 1:
            points = [value for at in range(4) for value in (number + at + 0.5, at * 2, at % 3)]
            persons.append({**note, "keypoints": points, "num_keypoints": 3})
    return {**content, "annotations": persons, "categories": CATEGORIES[:1]}


def captions(content: dict[str, Any], each: int) -> dict[str, Any]:
    notes = [
        {"id": 5000 + number, "image_id": image["id"], "caption": f"ü caption {number}"}
        for number, image in enumerate(content["images"] * each)
    ]
    return {"images": content["images"], "annotations": notes}


def test_several_files_are_one_dataset(coco: Path, tmp_path: Path) -> None:
    content = annotations()
    write(coco / "annotations/person_keypoints_val2017.json", with_points(content))
    write(coco / "annotations/captions_val2017.json", captions(content, each=2))
    write(coco / "annotations/captions_train2017.json", captions(content, each=1))
    with pytest.raises(PackError, match="the splits train2017, val2017; pass one of them"):
        fastpipe.pack(coco, tmp_path / "packed")
    fastpipe.pack(
        coco / "annotations", tmp_path / "packed", split="val2017", image_root=coco / "val2017"
    )
    field = PackedIndex(tmp_path / "packed").fields["keypoints"]
    assert (field.points, field.names, field.flip_pairs) == (4, tuple(POINTS), ((1, 2),))
    found = by_path(tmp_path / "packed", "boxes", "keypoints", "captions")
    for number, image in enumerate(content["images"]):
        boxes, _, points, seen, texts = found[image["file_name"]]
        notes = [note for note in content["annotations"] if note["image_id"] == image["id"]]
        assert len(boxes) == len(points) == len(notes)
        for note, place, visible in zip(notes, points, seen, strict=True):
            at = content["annotations"].index(note)
            if note["category_id"] == 1:
                assert place.tolist() == [[at + each + 0.5, each * 2] for each in range(4)]
                assert visible.tolist() == [0, 1, 2, 0]
            else:
                assert not place.any()
                assert not visible.any()
        assert texts == [f"ü caption {number}", f"ü caption {number + 12}"]
    for batch in fastpipe.loader(
        tmp_path / "packed", 4, fields=("image", "keypoints")
    ):  # flip pairs are recorded
        assert len(batch["keypoints"]) == 4


def test_images_are_looked_for_beside_their_annotations(tmp_path: Path) -> None:
    """Under the name of the split, in images/, or in both; else the user says where they are."""
    content = annotations(photos=1)
    for number, place in enumerate((".", "images", "val2017", "images/val2017")):
        root = tmp_path / str(number)
        flat_photos(root / place, 1)
        for file in (root / "instances_val2017.json", root / "annotations/captions_val2017.json"):
            write(file, content)
            fastpipe.pack(file, tmp_path / "packed", overwrite=True)
            file.unlink()
    file = write(tmp_path / "3/instances_val2017.json", content)
    flat_photos(tmp_path / "3/images", 1)
    with pytest.raises(
        PackError,
        match=r"the first image, '000\.jpg', is in several of .*/3/images, .*--image-root",
    ):
        fastpipe.pack(file, tmp_path / "packed", overwrite=True)
    fastpipe.pack(file, tmp_path / "packed", overwrite=True, image_root=tmp_path / "3/images")
    with pytest.raises(PackError, match="is in none of"):
        fastpipe.pack(write(tmp_path / "4/a.json", content), tmp_path / "packed", overwrite=True)


def test_one_caption_each_is_a_text(coco: Path, tmp_path: Path) -> None:
    file = write(coco / "annotations/captions_val2017.json", captions(annotations(), each=1))
    fastpipe.pack(file, tmp_path / "packed")
    assert PackedIndex(tmp_path / "packed").fields["captions"].kind == "text"
    assert by_path(tmp_path / "packed", "captions")["003.jpg"] == "ü caption 3"


def test_the_summary_says_the_boxes_and_the_categories(coco: Path, tmp_path: Path) -> None:
    text = succeeded("pack", coco, tmp_path / "data")
    assert re.search(r"packed +\d+ of \d+ files *\n", text), "it has no classes"
    assert re.search(r"boxes +\d+ boxes of 3 categories in \d+ images", text)
    assert re.search(r"categories +person, dog, cat; the labels of boxes are the ids", text)
    assert re.search(r"1 to \d+, so a +model needs \d+ classes", text)
    assert "their classes are in boxes" in text
    assert "into one subfolder" not in text


@pytest.mark.parametrize("field", ["mask=instances:mask", "instances"])
def test_a_mask_of_objects_has_no_classes(coco: Path, tmp_path: Path, field: str) -> None:
    text = succeeded("pack", coco, tmp_path / "data", "--field", field)
    assert re.search(r"packed +\d+ of \d+ files, 0 classes *\n", text)
    assert "their classes are in" not in text


def test_names_and_pairs_stay_when_a_dataset_is_packed_again(coco: Path, tmp_path: Path) -> None:
    file = write(coco / "annotations/person_keypoints_val2017.json", with_points(annotations()))
    fastpipe.pack(file, tmp_path / "packed")
    fastpipe.pack(tmp_path / "packed", tmp_path / "again")
    one, other = (PackedIndex(tmp_path / name).fields for name in ("packed", "again"))
    for name in ("boxes", "keypoints"):
        assert one[name].names
        assert (one[name].names, one[name].flip_pairs) == (
            other[name].names,
            other[name].flip_pairs,
        )


def test_an_object_with_a_caption_is_an_object(coco: Path, tmp_path: Path) -> None:
    content = annotations()
    for note in content["annotations"]:
        note["caption"] = f"object {note['id']}"
    file = write(coco / "annotations/instances_val2017.json", content)
    fastpipe.pack(file, tmp_path / "packed", fields=["ids=id", "captions"])
    for ids, texts in by_path(tmp_path / "packed", "ids", "captions").values():
        assert texts == [f"object {number}" for number in ids]
    assert (
        sum(len(ids) for ids, _ in by_path(tmp_path / "packed", "ids", "captions").values()) == 18
    )


def test_only_the_fields_that_are_asked_for(coco: Path, tmp_path: Path) -> None:
    fastpipe.pack(coco, tmp_path / "packed", fields={"found": "bbox", "ids": "id"})
    assert list(PackedIndex(tmp_path / "packed").fields) == ["found", "ids"]
    with pytest.raises(
        PackError, match=r"--field a=bbbox: the annotations of .* have area, bbox, category_id"
    ):
        fastpipe.pack(coco, tmp_path / "other", fields={"a": "bbbox"})
    with pytest.raises(PackError, match="expected the kind boxes"):
        fastpipe.pack(coco, tmp_path / "other", fields={"a": "bbox:floats"})


def test_flip_pairs() -> None:
    assert flip_pairs(["nose", "left_eye", "right_eye"]) == ((1, 2),)
    assert flip_pairs(["right_hip", "left_hip", "left_foot"]) == ((0, 1),)
    assert flip_pairs(["lefty", "neck"]) == flip_pairs([]) == ()


def test_without_pycocotools_only_masks_fail(
    coco: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(
        PackError, match=r"masks need pycocotools: pip install 'fastpipe-loader\[coco\]'"
    ):
        fastpipe.pack(coco, tmp_path / "packed", fields=["seg=segmentation:mask"])
    fastpipe.pack(coco, tmp_path / "packed")


def test_a_category_with_the_number_of_the_background(coco: Path, tmp_path: Path) -> None:
    content = annotations()
    content["categories"].append({"id": 0, "name": "ant"})
    file = write(coco / "annotations/instances_val2017.json", content)
    with pytest.raises(PackError, match=r"category 0 of .* has the number of the background"):
        fastpipe.pack(file, tmp_path / "packed", fields=["seg=segmentation:mask"])
    fastpipe.pack(file, tmp_path / "packed", fields=["objects=instances:mask"])


def test_a_kind_that_there_is_not(coco: Path, tmp_path: Path) -> None:
    words = "'masks' is no kind of a field; expected one of int, .*did you mean 'mask'"
    with pytest.raises(PackError, match=words):
        fastpipe.pack(coco, tmp_path / "packed", fields=["masks=segmentation:masks"])


def test_annotations_of_other_images_leave_no_classes(coco: Path, tmp_path: Path) -> None:
    file = coco / "annotations" / "instances_val2017.json"
    content = json.loads(file.read_bytes())
    words = "their classes are in boxes"
    assert words in " ".join(succeeded("pack", coco, tmp_path / "right").split())
    for annotation in content["annotations"]:
        annotation["image_id"] += 1_000_000
    write(file, content)
    assert words not in " ".join(succeeded("pack", coco, tmp_path / "wrong").split())
