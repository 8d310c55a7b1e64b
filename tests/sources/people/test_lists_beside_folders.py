"""Lists that lie beside folders of images, as downloads of competitions have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.listed import by_path

import fastpipe
from fastpipe.errors import PackError


def image(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 20), (90, 10, 0)).save(path)


@becomes(
    "`images/` beside `train.csv`, `captions.txt`, `data.json` or `annotations.xml`",
    "refused",
    "SRC/train.csv",
)
@pytest.mark.parametrize(
    "name", ["train.csv", "captions.txt", "data.json", "annotations.xml", "list.tsv"]
)
def test_a_list_beside_the_only_folder(tmp_path: Path, name: str) -> None:
    image(tmp_path / "src" / "images" / "a.jpg")
    (tmp_path / "src" / name).write_text("id,score\n1,2\n")
    with pytest.raises(
        PackError,
        match=f"one folder, images, and beside it {name}, which may have the labels. Pass",
    ):
        fastpipe.pack(tmp_path / "src", tmp_path / "packed")
    summary = fastpipe.pack(tmp_path / "src", tmp_path / "packed", format="imagefolder")
    assert summary.info["classes"] == ["images"]


@becomes(
    "folders of images beside `labels.csv`",
    "the folders are the classes; the list is named",
    "SRC/labels.csv",
)
def test_a_list_beside_several_folders(tmp_path: Path) -> None:
    for name in ("images_001", "images_002"):
        image(tmp_path / "src" / name / "a.jpg")
    (tmp_path / "src" / "labels.csv").write_text("id,finding\n1,2\n")
    (tmp_path / "src" / "README.txt").write_text("of all images")
    (assumed,) = fastpipe.pack(tmp_path / "src", tmp_path / "packed").assumed
    assert assumed.text.startswith(
        "labels: the names of the folders; labels.csv beside them is not read"
    )


def test_a_document_beside_several_folders(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        image(tmp_path / "src" / name / "a.jpg")
    (tmp_path / "src" / "data.json").write_text('{"a": 1}')
    summary = fastpipe.pack(tmp_path / "src", tmp_path / "packed")
    assert summary.info["classes"] == ["cat", "dog"]
    (assumed,) = summary.assumed
    assert assumed.text.startswith("labels: the names of the folders, though data.json beside")


@becomes("COCO with polygons and no `bbox` at all", "boxes around the polygons")
def test_coco_of_polygons_alone(tmp_path: Path) -> None:
    image(tmp_path / "src" / "a.jpg")
    polygon = {
        "id": 1,
        "image_id": 1,
        "category_id": 3,
        "segmentation": [[4, 2, 20, 2, 20, 12]],
        "iscrowd": 0,
    }
    images = [{"id": 1, "file_name": "a.jpg", "width": 40, "height": 20}]
    said = {"images": images, "annotations": [polygon], "categories": [{"id": 3, "name": "cat"}]}
    (tmp_path / "src" / "instances_train.json").write_text(json.dumps(said))
    summary = fastpipe.pack(tmp_path / "src", tmp_path / "packed")
    data = fastpipe.open(tmp_path / "packed")
    assert data["boxes"][0].tolist() == [[4, 2, 20, 12]]
    assert "boxes are those around it" in summary.assumed[0].text


def write_box_tables(source: Path) -> dict[str, list[str]]:
    """Tables of boxes in train/ and valid/; the classes of each, image by image."""
    rows = {"train": ["cat", "dog", "owl"], "valid": ["dog", "owl"]}
    for split, classes in rows.items():
        lines = ["filename,width,height,class,xmin,ymin,xmax,ymax"]
        for number, name in enumerate(classes):
            image(source / split / f"{number}.jpg")
            lines.append(f"{number}.jpg,40,20,{name},1,2,11,12")
        (source / split / "_annotations.csv").write_text("\n".join(lines) + "\n")
    return rows


@becomes(
    "`train/_annotations.csv` and `valid/_annotations.csv` of boxes",
    "a class has one number in both",
    "`--split`",
)
@pytest.mark.parametrize("given", [None, ["owl", "cat", "dog"]])
def test_boxes_of_two_tables(tmp_path: Path, given: list[str] | None) -> None:
    rows = write_box_tables(tmp_path / "src")
    for split, classes in rows.items():
        fastpipe.pack(
            tmp_path / "src", tmp_path / split, split=split, format="csv", classes_from=given
        )
        names = fastpipe.open(tmp_path / split).fields["boxes"].names
        assert names == tuple(given or ("cat", "dog", "owl"))
        found = {
            key: sample[1].tolist() for key, sample in by_path(tmp_path / split, "boxes").items()
        }
        assert found == {
            f"{number}.jpg": [names.index(name)] for number, name in enumerate(classes)
        }
