"""Tables with run lengths of masks, as Kaggle's contests have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.programs.cli_run import succeeded
from support.sources.becomes import becomes
from support.sources.people import assumed, masks, pack_text, photos, values, write

import fastpipe
from fastpipe.errors import PackError

# In these tests a picture has 4 columns and 3 rows.
UNSURE = "which number the pixels down the columns, as in most contests; the sizes of the images do not show it"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return photos(tmp_path, "a.jpg", "b.jpg", size=(4, 3))


def reasons(summary: Any) -> dict[str, str]:
    return dict(summary.tally.rejected)


@becomes(
    "Severstal: CSV with ImageId, ClassId, EncodedPixels",
    "a field `mask` with the class in each pixel; all rows of an image make one mask, an empty cell is no object",
)
def test_run_lengths_of_severstal(two: Path) -> None:
    rows = "a.jpg,1,1 2 4 2\na.jpg,3,12 1\nb.jpg,,\n"
    summary = pack_text(two, "a.csv", f"ImageId,ClassId,EncodedPixels\n{rows}")
    assert masks(two) == {
        "a.jpg": [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 3]],
        "b.jpg": [[0] * 4] * 3,
    }
    assert assumed(summary) == [
        f"masks: made of the run lengths in column 'EncodedPixels', {UNSURE} (--run-order columns or rows)"
    ]
    assert list(fastpipe.open(two / "packed").fields) == ["mask"]
    assert fastpipe.open(two / "packed").classes == []


@becomes(
    "Airbus: CSV with ImageId, EncodedPixels, a row for each ship",
    "a field `mask`, 1 in the pixels of all ships of an image",
)
def test_run_lengths_without_classes(two: Path) -> None:
    summary = pack_text(two, "a.csv", "ImageId,EncodedPixels\na.jpg,1 1\nb.jpg,\na.jpg,5 2\n")
    assert masks(two)["a.jpg"] == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]]
    assert np.array(masks(two)["b.jpg"]).sum() == 0
    merged, order = assumed(summary)
    assert merged == (
        "masks: 1 image has several objects with one number, 1, for all rows of an image make one "
        "mask; the option numbers the objects (--field mask=instances:mask)"
    )
    assert UNSURE in order


@becomes(
    "DSB 2018: CSV with ImageId, EncodedPixels, a row for each nucleus",
    "with the option a field `mask` with the number of the nucleus in its pixels, from 1 on in each image",
    "--field mask=instances:mask",
)
def test_objects_of_run_lengths(two: Path) -> None:
    rows = "a.jpg,1 1\na.jpg,\nb.jpg,2 1\na.jpg,5 2\n"
    text = f"ImageId,EncodedPixels\n{rows}"
    summary = pack_text(two, "a.csv", text, fields={"mask": "instances:mask"})
    assert masks(two) == {
        "a.jpg": [[1, 0, 0, 0], [0, 2, 0, 0], [0, 2, 0, 0]],
        "b.jpg": [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]],
    }
    (order,) = assumed(summary)
    assert UNSURE in order
    both = {"mask": "EncodedPixels:mask", "objects": "instances:mask"}
    with pytest.raises(PackError, match="column 'EncodedPixels' makes one mask of an image"):
        pack_text(two, "a.csv", text, fields=both, overwrite=True)


def test_objects_of_one_class(two: Path) -> None:
    rows = "a.jpg,Fish,1 1\na.jpg,Fish,4 1\na.jpg,Bird,7 1\nb.jpg,Fish,2 1\nb.jpg,Bird,4 1\n"
    text = f"ImageId,ClassId,EncodedPixels\n{rows}"
    merged = assumed(pack_text(two, "a.csv", text))[0]
    assert "1 image has several objects with one number, the number of the class" in merged
    pack_text(two, "a.csv", text, fields={"mask": "instances:mask"}, overwrite=True)
    assert masks(two)["a.jpg"] == [[1, 2, 3, 0], [0] * 4, [0] * 4]
    assert fastpipe.open(two / "packed").fields["mask"].names == ()


@becomes(
    "Carvana: CSV with img, rle_mask, whose pixels are numbered along the rows",
    "a field `mask`; the order of the pixels follows from the sizes of the images, and is said",
    "--run-order rows",
)
def test_run_lengths_along_the_rows(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", size=(40, 30))
    box = np.zeros((30, 40), np.uint8)
    box[5:15, 10:20] = 1
    rle = " ".join(f"{40 * row + 11} 10" for row in range(5, 15))
    summary = pack_text(tmp_path, "train_masks.csv", f"img,rle_mask\na.jpg,{rle}\n")
    assert masks(tmp_path)["a.jpg"] == box.tolist()
    assert "along the rows, as the sizes of the images show" in assumed(summary)[0]

    rle = " ".join(f"{30 * column + 6} 10" for column in range(10, 20))
    text = f"img,rle_mask\na.jpg,{rle}\n"
    summary = pack_text(tmp_path, "train_masks.csv", text, overwrite=True)
    assert masks(tmp_path)["a.jpg"] == box.tolist()
    assert "down the columns, as the sizes of the images show" in assumed(summary)[0]


def test_the_order_of_the_user_counts(two: Path) -> None:
    text = "ImageId,EncodedPixels\na.jpg,1 2\n"
    summary = pack_text(two, "a.csv", text, run_order="rows", unlisted="drop")
    assert masks(two) == {"a.jpg": [[1, 1, 0, 0], [0] * 4, [0] * 4]}
    assert assumed(summary) == []
    succeeded("pack", two / "a.csv", two / "other", "--run-order", "columns")
    mask = fastpipe.open(two / "other").with_fields(["mask"])[0]["mask"]
    assert np.squeeze(mask).tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [0] * 4]


def test_another_order_is_another_dataset(two: Path) -> None:
    text = "ImageId,EncodedPixels\na.jpg,1 2\n"
    pack_text(two, "a.csv", text, run_order="rows")
    with pytest.raises(PackError):
        pack_text(two, "a.csv", text, run_order="columns")


@becomes(
    "Understanding Clouds: CSV with Image_Label (`a.jpg_Fish`), EncodedPixels",
    "a field `mask`; the classes are numbered from 1 in sorted order, and named",
)
def test_run_lengths_of_clouds(two: Path) -> None:
    rows = "a.jpg_Fish,4 2\na.jpg_Gravel,\nb.jpg_Fish,\nb.jpg_Sugar_2,1 1\n"
    summary = pack_text(two, "a.csv", f"Image_Label,EncodedPixels\n{rows}")
    assert masks(two) == {
        "a.jpg": [[0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]],
        "b.jpg": [[3, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
    }
    names = fastpipe.open(two / "packed").fields["mask"].names
    assert names == ("", "Fish", "Gravel", "Sugar_2")
    assert assumed(summary)[0] == (
        "column 'Image_Label' has an image and a class in one text, as a.jpg_1, and is read as "
        "two: 'Image' and 'Label'"
    )


@becomes(
    "Severstal's first table: `train_images/`, `test_images/`, and train.csv with ImageId_ClassId (`a.jpg_1`)",
    "no masks; the table is named, with the command that packs them",
    "train.csv, --image-root train_images",
)
@pytest.mark.parametrize("split", ["train", None], ids=["split", "folder"])
def test_table_of_severstal_beside_its_images(tmp_path: Path, split: str | None) -> None:
    source = tmp_path / "severstal"
    photos(source, "train_images/a1.jpg", "train_images/b1.jpg", "test_images/c1.jpg", size=(4, 3))
    rows = "a1.jpg_1,1 2\na1.jpg_2,\na1.jpg_3,12 1\nb1.jpg_1,\nb1.jpg_2,4 1\n"
    table = write(source / "train.csv", f"ImageId_ClassId,EncodedPixels\n{rows}")
    images = source / "train_images"
    passed = source if split else images
    (text,) = assumed(fastpipe.pack(passed, tmp_path / "alone", split=split))
    assert str(table) in text
    assert f"--image-root {images}" in text
    assert "--image-column" not in text
    fastpipe.pack(table, tmp_path / "packed", image_root=images)
    assert masks(tmp_path) == {
        "a1.jpg": [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 3]],
        "b1.jpg": [[0, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
    }


@becomes(
    "UW-Madison: CSV with id, class, segmentation",
    "a field `mask`; `id` has to be named",
    "--image-column id",
)
def test_run_lengths_of_uw_madison(two: Path) -> None:
    text = "id,class,segmentation\na,stomach,1 1\na,large_bowel,2 1\nb,stomach,\n"
    with pytest.raises(PackError, match="--image-column id"):
        pack_text(two, "a.csv", text)
    pack_text(two, "a.csv", text, image_column="id")
    assert masks(two)["a.jpg"] == [[2, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert fastpipe.open(two / "packed").fields["mask"].names == ("", "large_bowel", "stomach")


@becomes(
    "the same, with rows of two classes that overlap",
    "the later row counts in a pixel, and the images are counted",
)
def test_rows_that_overlap(two: Path) -> None:
    rows = "a.jpg,2,1 3\na.jpg,1,2 3\nb.jpg,1,1 3\nb.jpg,1,2 3\n"
    summary = pack_text(two, "a.csv", f"ImageId,ClassId,EncodedPixels\n{rows}")
    assert masks(two)["a.jpg"] == [[2, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert (
        "masks: 1 image has pixels of several classes in column 'EncodedPixels'; a pixel has the "
        "class of the last row"
    ) in assumed(summary)


@becomes(
    "run lengths of a larger image, or that are no pairs",
    "the image is rejected with the reason",
    "--field mask=EncodedPixels:mask",
)
def test_runs_that_do_not_fit(two: Path) -> None:
    photos(two, "c.jpg", size=(4, 3))
    rows = "a.jpg,12 2\nb.jpg,1 2 3\nc.jpg,1 2\n"
    summary = pack_text(
        two,
        "a.csv",
        f"ImageId,EncodedPixels\n{rows}",
        fields=["mask=EncodedPixels:mask"],
    )
    rejected = reasons(summary)
    assert "expected runs in 12 pixels, got a run that ends at pixel 13" in rejected["a.jpg"]
    assert "expected pairs of a start and a length, got '1 2 3'" in rejected["b.jpg"]


@becomes(
    "run lengths that are wanted as texts",
    "a field of kind text; that they are no masks is said",
    "--field rle=EncodedPixels:text",
)
def test_runs_as_text(two: Path) -> None:
    summary = pack_text(
        two,
        "a.csv",
        "ImageId,EncodedPixels\na.jpg,1 2\nb.jpg,\n",
        fields=["rle=EncodedPixels:text"],
    )
    assert values(two, "rle")["a.jpg"] == "1 2"
    assert assumed(summary) == [
        "masks: none, and the run lengths in column 'EncodedPixels' are stored as text "
        "(--field mask=EncodedPixels:mask)"
    ]


@becomes(
    "iMaterialist: run lengths whose ClassId begins at 0",
    "a pixel has the number of its class plus 1, as 0 is the background; the names of the field are the numbers of the "
    "table",
)
def test_a_class_0(two: Path) -> None:
    rows = "a.jpg,0,1 2\nb.jpg,2,3 1\nb.jpg,0,4 1\n"
    summary = pack_text(two, "a.csv", f"ImageId,ClassId,EncodedPixels\n{rows}")
    assert masks(two) == {
        "a.jpg": [[1, 0, 0, 0], [1, 0, 0, 0], [0] * 4],
        "b.jpg": [[0, 1, 0, 0], [0] * 4, [3, 0, 0, 0]],
    }
    assert fastpipe.open(two / "packed").fields["mask"].names == ("", "0", "1", "2")
    assert (
        "masks: column 'ClassId' counts the classes from 0, which is the background in a mask, so a pixel has the "
        "number of its class plus 1. --classes-from FILE names the classes. The option numbers the objects of an "
        "image, with their classes as they are in a list (--field mask=instances:mask --field class_id=ClassId)"
    ) in assumed(summary)

    fields = ["mask=instances:mask", "class_id=ClassId"]
    fastpipe.pack(two / "a.csv", two / "packed", fields=fields, overwrite=True)
    assert masks(two)["b.jpg"] == [[0, 2, 0, 0], [0] * 4, [1, 0, 0, 0]]
    assert values(two, "class_id") == {"a.jpg": [0], "b.jpg": [2, 0]}


@becomes(
    "iMaterialist: the same with label_descriptions.json, which has the names of its classes",
    "the classes by name; the numbers in the mask stay",
    "--classes-from label_descriptions.json",
)
def test_names_of_classes_from_0(two: Path) -> None:
    names = ("shirt, blouse", "top", "sweater")
    categories = [{"id": number, "name": name} for number, name in enumerate(names)]
    file = write(two / "label_descriptions.json", {"info": {}, "categories": categories})
    text = "ImageId,ClassId,EncodedPixels\na.jpg,0,1 2\nb.jpg,2,3 1\n"
    for given in (file, write(two / "names.txt", "\n".join(names))):
        summary = pack_text(two, "a.csv", text, classes_from=given, overwrite=True)
        assert fastpipe.open(two / "packed").fields["mask"].names == ("", *names)
        assert masks(two)["b.jpg"] == [[0] * 4, [0] * 4, [3, 0, 0, 0]]
        named = "number 0 is 'shirt, blouse', with 1 in the mask"
        assert any(named in assumption for assumption in assumed(summary))
    with pytest.raises(PackError, match="the class '1', '2', which is not among the 1 names"):
        pack_text(two, "a.csv", text, classes_from=["top"], overwrite=True)


def test_a_table_without_class_0_gets_the_numbers_of_its_training(two: Path) -> None:
    header = "ImageId,ClassId,EncodedPixels\n"
    pack_text(two, "a.csv", f"{header}a.jpg,0,1 2\nb.jpg,2,3 1\n")
    (two / "packed").rename(two / "train")
    for rows in ("a.jpg,1,1 2\nb.jpg,2,3 1\n", "a.jpg,1,1 2\nb.jpg,0,3 1\n"):
        pack_text(two, "b.csv", f"{header}{rows}", classes_from=two / "train", overwrite=True)
        assert fastpipe.open(two / "packed").fields["mask"].names == ("", "0", "1", "2")
        assert masks(two)["a.jpg"] == [[2, 0, 0, 0], [2, 0, 0, 0], [0] * 4]


def test_a_class_0_without_pixels_changes_no_number(two: Path) -> None:
    """It often says that an image has no object."""
    pack_text(two, "a.csv", "ImageId,ClassId,EncodedPixels\na.jpg,0,\nb.jpg,1,1 1\n")
    assert masks(two)["b.jpg"][0] == [1, 0, 0, 0]


def test_a_class_0_of_another_split_changes_the_numbers(two: Path) -> None:
    rows = "a.jpg,0,1 2,train\nb.jpg,1,1 1,val\n"
    pack_text(two, "a.csv", f"ImageId,ClassId,EncodedPixels,split\n{rows}", split="val")
    assert masks(two) == {"b.jpg": [[2, 0, 0, 0], [0] * 4, [0] * 4]}


@becomes(
    "Sartorius: JSONL or CSV with id, annotation, width, height, cell_type",
    "a field `mask`; an image of another size is rejected; further columns are lists",
)
def test_sizes_and_further_columns(two: Path) -> None:
    rows = "a.jpg,1 1,4,3,day1\na.jpg,3 1,4,3,day2\nb.jpg,1 1,3,4,day1\n"
    text = f"image,annotation,width,height,when\n{rows}"
    summary = pack_text(two, "a.csv", text)
    assert values(two, "when") == {"a.jpg": ["day1", "day2"]}
    assert "expected 3 x 4 pixels" in reasons(summary)["b.jpg"]

    records = [
        ("a.jpg", "1 1", "x"),
        ("b.jpg", None, "y"),
        ("a.jpg", "2 1", "x"),
        ("b.jpg", "5 1", "y"),
    ]
    lines = ""
    for record in records:
        lines += (
            json.dumps(dict(zip(("image", "annotation", "cell_type"), record, strict=True))) + "\n"
        )
    summary = pack_text(two, "b.jsonl", lines, overwrite=True)
    assert any("cell_type" in text for text in assumed(summary))
    pack_text(two, "b.jsonl", lines, overwrite=True, label_column="cell_type")
    assert masks(two)["a.jpg"][0] == [1, 0, 0, 0]
    assert fastpipe.open(two / "packed").fields["mask"].names == ("", "x", "y")


@becomes(
    "SIIM-ACR: run lengths whose starts are relative to the run before",
    "stored as text; that they are not decoded is said",
    "Writer",
)
def test_relative_runs(two: Path) -> None:
    text = "ImageId,EncodedPixels\na.jpg,5 1 3 2\nb.jpg,-1\n"
    summary = pack_text(two, "a.csv", text)
    (only,) = assumed(summary)
    assert only.startswith("masks: none, for the run lengths in column 'EncodedPixels' are not")
    assert "fastpipe.Writer" in only


def test_images_without_a_row_have_no_object(two: Path) -> None:
    pack_text(two, "a.csv", "ImageId,EncodedPixels\na.jpg,1 1\n", unlisted="keep")
    assert np.array(masks(two)["b.jpg"]).sum() == 0


@becomes(
    "`train.csv` and `val.csv` with run lengths, and classes that one of them lacks",
    "the classes have the numbers of both",
)
def test_classes_of_two_tables(two: Path) -> None:
    write(two / "train.csv", "ImageId,class,rle\na.jpg,ant,1 1\na.jpg,bee,2 1\na.jpg,cow,3 1\n")
    write(two / "val.csv", "ImageId,class,rle\nb.jpg,cow,1 1\n")
    fastpipe.pack(two, two.parent / "packed", split="val", format="csv", unlisted="drop")
    assert masks(two.parent)["b.jpg"][0] == [3, 0, 0, 0]
    summary = fastpipe.pack(two / "val.csv", two / "alone", unlisted="drop")
    assert "with other numbers than those of train.csv" in " ".join(assumed(summary))
    fastpipe.pack(two / "val.csv", two / "given", classes_from=two.parent / "packed")
    mask = fastpipe.open(two / "given").with_fields(["mask"])[0]["mask"]
    assert np.squeeze(mask)[0].tolist() == [3, 0, 0, 0]


def test_a_turned_photo(tmp_path: Path) -> None:
    """Run lengths are of the photo as shown, as all values of tables are."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (4, 3)).save(tmp_path / "a.jpg", exif=exif)
    pack_text(tmp_path, "a.csv", "ImageId,EncodedPixels\na.jpg,1 2\n", exif="apply")
    shown = np.zeros((4, 3), int)
    shown[:2, 0] = 1
    assert masks(tmp_path)["a.jpg"] == shown.tolist()


def test_the_list_of_class_names_of_imaterialist_is_no_coco(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/a.jpg", size=(4, 3))
    write(
        source / "label_descriptions.json", {"info": {}, "categories": [{"id": 0, "name": "top"}]}
    )
    write(source / "train.csv", "ImageId,EncodedPixels,Height,Width,ClassId\na,1 2,3,4,0\n")
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert f"pass {source}/train.csv (--image-root {source}/train)" in str(assumed(summary)[-1])
