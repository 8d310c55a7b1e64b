"""Tables that list the images of a folder: the error names the command that packs them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, tags, values

import fastpipe
from fastpipe.errors import PackError
from fastpipe.sources.tables import listed_images


def refusal(source: Path, folder: Path, **options: Any) -> str:
    with pytest.raises(PackError) as caught:
        fastpipe.pack(source, folder / "none", **options)
    return str(caught.value)


def pack_as_named(text: str, folder: Path, **options: Any) -> None:
    """Packs the first table that an error names, with the image root that it names."""
    table = re.search(r"(?:Pass (?:it|one|the table): |such as )(\S+?\.\w+)[,. ]", f"{text} ")
    root = re.search(r"--image-root (\S+?)[. ]*(?: |$)", text)
    assert table is not None
    image_root = None if root is None else root[1]
    fastpipe.pack(table[1], folder / "packed", image_root=image_root, **options)


@becomes(
    "GTSRB, or any `labels.csv` beside the images or the folders of images that it lists",
    "refused; the command that packs the table is named",
    "SRC/labels.csv --image-root SRC/images",
)
@pytest.mark.parametrize(
    ("folder", "written", "root"),
    [
        ("", "a.jpg", ""),
        ("images", "a.jpg", ", with --image-root {source}/images"),
        ("images", "images/a.jpg", ""),
        ("images/x", "x/a.jpg", ", with --image-root {source}/images"),
        ("images", "a", ", with --image-root {source}/images"),
    ],
)
def test_a_table_beside_its_images(tmp_path: Path, folder: str, written: str, root: str) -> None:
    source = tmp_path / "src"
    photos(source / folder, "a.jpg", "b.jpg")
    rows = f"{written},cat\n{written.replace('a', 'b') if len(written) == 1 else written[:-5] + 'b.jpg'},dog\n"
    (source / "labels.csv").write_text(f"filename,label\n{rows}")
    text = refusal(source, tmp_path)
    assert f"such as {source}/labels.csv{root.format(source=source)}" in text
    pack_as_named(text, tmp_path)
    assert sorted(labels(tmp_path).values(), key=str) == ["cat", "dog"]


@becomes(
    "NIH ChestX-ray: Data_Entry_2017.csv beside images_001/images, ...; HAM10000: parts of images beside a CSV",
    "refused; the table with the labels is named before the one of boxes and the lists of paths",
    "SRC/Data_Entry_2017.csv",
)
def test_a_table_beside_parts(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images_001/images/a.png", "images_002/images/b.png")
    (source / "BBox_List_2017.csv").write_text(
        'Image Index,Bbox\na.png,"1 2 3 4"\nb.png,"1 2 3 4"\n'
    )
    (source / "Data_Entry_2017.csv").write_text("Image Index,Finding Labels\na.png,A|B\nb.png,A\n")
    (source / "train_val_list.txt").write_text("a.png\nb.png\n")
    text = refusal(source, tmp_path)
    assert "a table that lists their images" in text
    options = "--field 'tags=Finding Labels:classes' --separator '|'"
    first = f"{source}/Data_Entry_2017.csv, with {options}"
    others = f"{source}/BBox_List_2017.csv; or {source}/train_val_list.txt"
    assert f"Pass the table: {first}; or {others}. --format imagefolder" in text
    pack_as_named(text, tmp_path, fields=["tags=Finding Labels:classes"])
    assert tags(tmp_path, "tags") == {
        "images_001/images/a.png": {"A", "B"},
        "images_002/images/b.png": {"A"},
    }
    summary = fastpipe.pack(source, tmp_path / "folders", format="imagefolder")
    assert summary.info["classes"] == ["images_001", "images_002"]
    assert f"If it has the labels, pass {source}/Data_Entry_2017.csv, with {options}" in str(
        summary.assumed[0]
    )


@becomes(
    "CelebA: img_align_celeba beside list_attr_celeba.txt, identity_CelebA.txt, list_bbox_celeba.txt, ...",
    "refused; all tables are named, that of the attributes first",
    "SRC/list_attr_celeba.txt --image-root SRC/img_align_celeba",
)
def test_tables_of_celeba(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "img_align_celeba/1.jpg", "img_align_celeba/2.jpg")
    (source / "identity_CelebA.txt").write_text("1.jpg 7\n2.jpg 8\n")
    (source / "list_attr_celeba.txt").write_text("2\nBald Smiling\n1.jpg -1  1\n2.jpg  1  1\n")
    (source / "list_bbox_celeba.txt").write_text(
        "2\nimage_id x_1 y_1 width height\n1.jpg 1 2 3 4\n"
    )
    text = refusal(source, tmp_path)
    images = f"with --image-root {source}/img_align_celeba"
    attributes = f"{source}/list_attr_celeba.txt, {images} --field tags=Bald,Smiling:classes"
    others = f"{source}/identity_CelebA.txt, {images}; or {source}/list_bbox_celeba.txt, {images}. "
    assert f"Pass one: {attributes}; or {others}" in text
    pack_as_named(text, tmp_path)
    assert values(tmp_path, "bald") == {"1.jpg": -1, "2.jpg": 1}


@becomes(
    "SKU110K: annotations/annotations_train.csv beside `images/`",
    "refused; the tables are named, with the folder of the images",
    "SRC/annotations/annotations_train.csv --image-root SRC/images",
)
def test_tables_beside_the_folder_of_images(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/train_0.jpg", "images/val_0.jpg")
    (source / "annotations").mkdir()
    row = "{}_0.jpg,1,2,10,12,object,40,30\n"
    for split in ("train", "val"):
        (source / f"annotations/annotations_{split}.csv").write_text(row.format(split) * 2)
    text = refusal(source, tmp_path)
    tables = (
        f"{source}/annotations/annotations_train.csv or {source}/annotations/annotations_val.csv"
    )
    assert f"Pass the table: {tables}, with --image-root {source}/images. " in text
    pack_as_named(text, tmp_path, unlisted="drop")
    assert list(values(tmp_path, "boxes")) == ["train_0.jpg"]


@becomes(
    "a table in a folder of its own, with the images in a folder beside it",
    "refused; the folder of the images is named",
    "--image-root SRC/images",
)
def test_a_table_with_images_beside_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos(tmp_path, "images/a.jpg")
    (tmp_path / "lists").mkdir()
    table = tmp_path / "lists" / "a.csv"
    table.write_text("path,label\na.jpg,cat\n")
    text = refusal(table, tmp_path)
    assert text.endswith(
        f"elsewhere in {tmp_path}: if they are the images, pass --image-root {tmp_path}/images"
    )
    monkeypatch.chdir(tmp_path / "lists")
    text = refusal(Path("a.csv"), tmp_path)
    assert text.endswith("elsewhere in ..: if they are the images, pass --image-root ../images")
    fastpipe.pack("a.csv", tmp_path / "packed", image_root="../images")
    assert labels(tmp_path) == {"a.jpg": "cat"}


@becomes(
    "a column of ids whose name says nothing (Nr for 1.jpg, 2.jpg)",
    "refused; the column whose values are names of files is named",
    "--image-column Nr",
)
def test_a_column_of_names_of_files(tmp_path: Path) -> None:
    photos(tmp_path, "x/1.jpg", "x/2.jpg", "x/3.jpg")
    table = tmp_path / "a.csv"
    table.write_text("age,Nr,x\n7,1,3\n8,2,4\n9,3,5\n")
    assert "--image-column names it (--image-column Nr)." in refusal(table, tmp_path)
    summary = fastpipe.pack(table, tmp_path / "packed", image_column="Nr")
    assert values(tmp_path, "age") == {"x/1.jpg": 7, "x/2.jpg": 8, "x/3.jpg": 9}
    assert assumed(summary) == [
        f"images: 3 are in a subfolder of {tmp_path.name}: x (--image-root {tmp_path}/x)"
    ]


def test_a_table_of_a_large_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed_images, "FEW", 2)
    source = photos(tmp_path / "src", *(f"{number}.jpg" for number in range(9)))
    rows = "".join(f"{number},cat\n" for number in range(9))
    (source / "a.csv").write_text(f"id,label\n{rows}")
    (found,) = listed_images.find_listing_tables(source, ["a.csv", "b.csv", "c.npy"])
    assert found == (source / "a.csv", None)
