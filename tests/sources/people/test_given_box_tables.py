"""Tables with a row for each box, as people have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.programs.cli_run import succeeded
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, pack_text, photos, values

import fastpipe
from fastpipe.errors import PackError


def box_names(folder: Path) -> tuple[str, ...]:
    return fastpipe.open(folder / "packed").fields["boxes"].names


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")


@becomes(
    "CSV with a row a box: filename, width, height, class, xmin, ymin, xmax, ymax (TensorFlow's scripts)",
    "one sample an image, with boxes and their class names; a row without a box is an image without boxes",
)
def test_boxes_of_tensorflow(two: Path) -> None:
    rows = "a.jpg,40,30,dog,1,2,10,12\nb.jpg,40,30,cat,3,3,8,8\na.jpg,40,30,cat,5,5,20,20\nc.jpg,40,30,,,,,\n"
    summary = pack_text(two, "a.csv", f"filename,width,height,class,xmin,ymin,xmax,ymax\n{rows}")
    assert box_names(two) == ("cat", "dog")
    assert values(two, "boxes") == {
        "a.jpg": [[[1, 2, 10, 12], [5, 5, 20, 20]], [1, 0]],
        "b.jpg": [[[3, 3, 8, 8]], [0]],
        "c.jpg": [[], []],
    }
    assert assumed(summary) == []
    assert list(fastpipe.open(two / "packed").fields) == ["boxes"]


@pytest.mark.parametrize("column", ["boxes", "Boxes"])
def test_a_column_that_is_called_like_the_field_of_boxes(two: Path, column: str) -> None:
    """How many boxes an image has, say."""
    rows = "a.jpg,1,2,10,12,dog,2\nb.jpg,3,3,8,8,cat,1\na.jpg,5,5,20,20,cat,2\n"
    pack_text(two, "a.csv", f"filename,xmin,ymin,xmax,ymax,class,{column}\n{rows}")
    assert values(two, "boxes")["b.jpg"] == [[[3, 3, 8, 8]], [0]]
    assert values(two, "boxes_") == {"a.jpg": [2, 2], "b.jpg": [1]}


def test_boxes_without_classes_have_none_in_the_summary(two: Path) -> None:
    rows = "a.jpg,1,2,10,12\nb.jpg,3,3,8,8\na.jpg,5,5,20,20\n"
    (two / "a.csv").write_text(f"filename,xmin,ymin,xmax,ymax\n{rows}")
    text = succeeded("pack", two / "a.csv", two / "packed")
    assert "3 boxes in 2 images" in text
    assert "their classes" not in text


@becomes(
    "the same, with a width and height that the image does not have",
    "the image is rejected with both sizes",
)
def test_a_size_that_is_not_the_images(two: Path) -> None:
    rows = "a.jpg,80,60,dog,1,2,10,12\nb.jpg,40,30,cat,3,3,8,8\n"
    summary = pack_text(two, "a.csv", f"filename,width,height,class,xmin,ymin,xmax,ymax\n{rows}")
    ((path, reason),) = summary.tally.rejected
    assert path == "a.jpg"
    assert "expected 80 x 60 pixels" in reason


@becomes(
    "CSV with a row a box: image, x1, y1, x2, y2, and a number as class",
    "boxes with these numbers as labels",
)
def test_corners_and_numbers(two: Path) -> None:
    pack_text(
        two,
        "a.csv",
        "image,x1,y1,x2,y2,class_id\na.jpg,1,2,10,12,10\na.jpg,3,3,8,8,9\nb.jpg,0,0,4,4,2\n",
    )
    assert values(two, "boxes") == {
        "a.jpg": [[[1, 2, 10, 12], [3, 3, 8, 8]], [10, 9]],
        "b.jpg": [[[0, 0, 4, 4]], [2]],
    }


@becomes(
    'Kaggle\'s image_id, width, height, bbox with "[x, y, w, h]"',
    "one sample an image; the file of an id without ending is found; the boxes are assumed to be COCO's",
    "--box-format xyxy",
)
def test_boxes_in_one_column(two: Path) -> None:
    text = (
        "image_id,width,height,bbox,source\n"
        'a,40,30,"[1.0, 2.0, 10.0, 12.0]",s1\n'
        'a,40,30,"[5, 5, 9, 9]",s2\n'
        "b,40,30,,\n"
    )
    summary = pack_text(two, "a.csv", text, unlisted="drop")
    expected = {"a.jpg": [[[1, 2, 11, 14], [5, 5, 14, 14]], ["s1", "s2"]], "b.jpg": [[], []]}
    assert values(two, "boxes", "source") == expected
    assert assumed(summary) == [
        "boxes (bbox): left, top, width, height, as COCO has them (--box-format xyxy or cxcywh)"
    ]
    summary = pack_text(two, "a.csv", text, box_format="xyxy", unlisted="drop", overwrite=True)
    assert values(two, "boxes")["a.jpg"] == [[1, 2, 10, 12], [5, 5, 9, 9]]
    assert assumed(summary) == []
    centred = text.replace("1.0, 2.0", "9.0, 12.0")
    pack_text(two, "a.csv", centred, box_format="cxcywh", overwrite=True)
    assert values(two, "boxes")["a.jpg"] == [[4, 6, 14, 18], [0.5, 0.5, 9.5, 9.5]]


@becomes(
    "CSV with a row a box: x, y, width, height",
    "boxes, assumed to be left, top, width, height",
    "--box-format cxcywh",
)
def test_sizes(two: Path) -> None:
    summary = pack_text(
        two,
        "a.csv",
        "path,x,y,width,height,label\na.jpg,1,2,10,12,cow\na.jpg,3,3,4,4,ant\n",
        unlisted="drop",
    )
    assert values(two, "boxes") == {"a.jpg": [[[1, 2, 11, 14], [3, 3, 7, 7]], [1, 0]]}
    assert assumed(summary) == [
        "boxes (x, y, width, height): left, top, width, height, as COCO has them (--box-format xyxy or cxcywh)"
    ]


@becomes(
    "CSV with a row a box: x_center, y_center, w, h", "boxes by their centres, as the names say"
)
def test_centres(two: Path) -> None:
    summary = pack_text(
        two, "a.csv", "path,x_center,y_center,w,h,label\na.jpg,10,12,10,12,cow\n", unlisted="drop"
    )
    assert values(two, "boxes")["a.jpg"][0] == [[5, 6, 15, 18]]
    assert assumed(summary) == []


@becomes(
    "Open Images: ImageID, LabelName, XMin, XMax, YMin, YMax as normalised coordinates (0 to 1)",
    "boxes in pixels, with class names; that they are normalised is said",
)
def test_shares(two: Path) -> None:
    text = (
        "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n"
        "a,x,/m/1,1,0.1,0.5,0.2,0.4\n"
        "b,x,/m/2,1,0,0.5,0.2,1\n"
    )
    summary = pack_text(two, "a.csv", text)
    assert assumed(summary)[:1] == [
        "boxes (XMin, YMin, XMax, YMax): normalised coordinates (0 to 1), because no number is "
        "above 1"
    ]
    assert values(two, "boxes") == {
        "a.jpg": [[[4, 6, 20, 12]], [0]],
        "b.jpg": [[[0, 6, 20, 30]], [1]],
    }
    assert box_names(two) == ("/m/1", "/m/2")


@pytest.mark.parametrize(
    ("columns", "first", "second"),
    [
        ("xmin,ymin,xmax,ymax", "0.1,0.2,0.5,0.4", "0.5,0.2,1.0001,1"),
        ("x_center,y_center,width,height", "0.3,0.3,0.4,0.2", "0.75,0.6,0.5,0.8001"),
        ("width,height,xmin,ymin,xmax,ymax", "40,30,0.1,0.2,0.5,0.4", "40,30,0.5,0.2,1.0001,1"),
        ("x_center,y_center,w,h", "0.3,0.3,0.4,0.2", "0.75,0.6,0.5,0.8"),
    ],
)
@becomes(
    "boxes as normalised coordinates (0 to 1), of which one is 1.0001 by rounding",
    "boxes in pixels, up to the edge of the image; that they are normalised is said",
)
def test_rounded_shares(two: Path, columns: str, first: str, second: str) -> None:
    text = f"filename,class,{columns}\na.jpg,ant,{first}\nb.jpg,bee,{second}\n"
    summary = pack_text(two, "a.csv", text)
    boxes = values(two, "boxes")
    assert boxes["a.jpg"][0] == [pytest.approx([4, 6, 20, 12])]
    assert boxes["b.jpg"][0] == [pytest.approx([20, 6, 40, 30], abs=0.01)]
    assert any("normalised coordinates (0 to 1)" in each for each in assumed(summary))


@becomes(
    "keras-retinanet's path,x1,y1,x2,y2,class without a header row",
    "boxes; that there is no header row is said",
)
def test_boxes_of_retinanet(two: Path) -> None:
    summary = pack_text(
        two, "a.csv", "a.jpg,1,2,10,12,cow\na.jpg,2,3,5,6,bird\nb.jpg,,,,,\n", unlisted="drop"
    )
    assert values(two, "boxes") == {
        "a.jpg": [[[1, 2, 10, 12], [2, 3, 5, 6]], [1, 0]],
        "b.jpg": [[], []],
    }
    (said,) = assumed(summary)
    assert "no header row, and its columns are read as path, x1, y1, x2, y2, class" in said


@becomes(
    "keras-yolo3's lines of path and x1,y1,x2,y2,class",
    "refused, with the form of a CSV file to write instead",
)
def test_boxes_of_keras_yolo3(two: Path) -> None:
    with pytest.raises(
        PackError, match="write a CSV file with a row for each box: path,x1,y1,x2,y2,class"
    ):
        pack_text(two, "train.txt", "a.jpg 1,2,10,12,0 3,3,8,8,1\nb.jpg 1,2,3,4,0\n")


@becomes("JSONL with a line a box", "one sample an image, as of a CSV file")
def test_lines_of_boxes(two: Path) -> None:
    line = '{"image": "a.jpg", "bbox": [1, 2, 3, 4], "category": "ant"}\n'
    pack_text(two, "a.jsonl", line + line.replace("1, 2, 3, 4", "5, 6, 7, 8").replace("ant", "bee"))
    assert values(two, "boxes") == {"a.jpg": [[[1, 2, 4, 6], [5, 6, 12, 14]], [0, 1]]}


@becomes(
    "a row a box with two columns that may be the class",
    "refused, and the columns are named",
    "--label-column NAME",
)
def test_two_classes_of_a_box(two: Path) -> None:
    text = "path,xmin,ymin,xmax,ymax,species,breed\na.jpg,1,2,3,4,dog,poodle\n"
    with pytest.raises(
        PackError,
        match=r"several columns may hold the classes of boxes: breed, species\. --label-column",
    ):
        pack_text(two, "a.csv", text)
    pack_text(two, "a.csv", text, label_column="breed")
    assert box_names(two) == ("poodle",)
    assert values(two, "species") == {"a.jpg": ["dog"]}


@becomes(
    "a row an image with one box and a label column (GTSRB)",
    "the label of the image, and its box",
    "--label-column",
)
def test_one_box_an_image(two: Path) -> None:
    text = "Path,Width,Height,Roi.X1,Roi.Y1,Roi.X2,Roi.Y2,ClassId\na.jpg,40,30,5,6,20,21,3\nb.jpg,40,30,1,1,9,9,0\n"
    pack_text(two, "a.csv", text, label_column="ClassId")
    assert labels(two) == {"a.jpg": "3", "b.jpg": "0"}
    assert values(two, "boxes") == {
        "a.jpg": [[[5, 6, 20, 21]], [3]],
        "b.jpg": [[[1, 1, 9, 9]], [0]],
    }


@becomes("a box with three numbers, or without a class", "its image is rejected with the line")
def test_half_a_box(two: Path) -> None:
    text = "path,xmin,ymin,xmax,ymax,class\na.jpg,1,2,3,,dog\nb.jpg,1,2,3,4,\nc.jpg,1,2,3,4,dog\na.jpg,5,5,6,6,dog\n"
    reasons = dict(pack_text(two, "a.csv", text).tally.rejected)
    assert "expected four numbers, or none where there is no box" in reasons["a.jpg"]
    assert "a.csv/000002" in reasons["a.jpg"]
    assert "column class: expected the class of a box, got none" in reasons["b.jpg"]
    assert list(values(two, "boxes")) == ["c.jpg"]


def test_options_of_boxes(two: Path) -> None:
    text = "path,xmin,ymin,xmax,ymax,conf\na.jpg,1,2,3,4,0.5\n"
    with pytest.raises(
        PackError, match=r"--box-format xywh: the columns xmin, ymin, xmax, ymax of .* are xyxy"
    ):
        pack_text(two, "a.csv", text, box_format="xywh")
    with pytest.raises(PackError, match=r"^box_format: .* has no columns of boxes"):
        pack_text(two, "b.csv", "path,label\na.jpg,1\n", box_format="xywh")
    pack_text(two, "a.csv", text, fields=["at=boxes", "conf"])
    assert values(two, "at", "conf") == {"a.jpg": [[[1, 2, 3, 4]], [0.5]]}
    pack_text(
        two, "a.csv", text, fields=["left=xmin"], overwrite=True
    )  # a field of its own: no boxes are made
    assert values(two, "left") == {"a.jpg": 1}


def test_on_the_command_line(two: Path) -> None:
    (two / "a.csv").write_text('image,bbox\na.jpg,"[1, 2, 3, 4]"\n')
    shown = succeeded("pack", two / "a.csv", two / "packed").replace("│", " ")
    assert "--box-format xyxy or cxcywh" in " ".join(shown.split())
    command = (
        "pack",
        two / "a.csv",
        two / "packed",
        "--overwrite",
        "--box-format",
        "xyxy",
        "--background",
        "#fff",
        "--unlisted",
        "drop",
    )
    assert "assumed" not in succeeded(*command)
    assert values(two, "boxes") == {"a.jpg": [[1, 2, 3, 4]]}


@becomes(
    "VinBigData: image_id, class_name, class_id, rad_id and a box; rows `No finding` without a box",
    "boxes whose labels are the numbers of class_id; rows with a class and no box are counted",
    "--label-column class_name",
)
def test_names_and_numbers_of_classes(two: Path) -> None:
    text = (
        "image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max\n"
        "a,No finding,4,R11,,,,\n"
        "a,No finding,4,R7,,,,\n"
        "b,Mass,2,R10,10,20,30,25\n"
        "b,Aorta,0,R10,1,2,3,4\n"
    )
    summary = pack_text(two, "a.csv", text, unlisted="drop")
    assert values(two, "boxes") == {
        "a.jpg": [[], []],
        "b.jpg": [[[10, 20, 30, 25], [1, 2, 3, 4]], [2, 0]],
    }
    assert box_names(two) == ("Aorta", "", "Mass", "", "No finding")
    assert assumed(summary) == [
        "classes of boxes: numbered as in column 'class_id': 'No finding' is 4 (--label-column class_name)",
        "boxes: 2 rows have a class ('No finding') and no box; an image without boxes is background",
    ]
    pack_text(two, "a.csv", text, unlisted="drop", label_column="class_name", overwrite=True)
    assert box_names(two) == ("Aorta", "Mass")


@pytest.mark.parametrize("numbers", ["1,1", "1,1.5", "1,-1", "1,", "1,99999"])
def test_numbers_that_are_none_of_classes(two: Path, numbers: str) -> None:
    first, second = numbers.split(",")
    pack_text(
        two,
        "a.csv",
        "path,class_name,class_id,x1,y1,x2,y2\n"
        f"a.jpg,dog,{first},1,2,10,12\nb.jpg,cat,{second},3,3,8,8\n",
        unlisted="drop",
    )
    assert box_names(two) == ("cat", "dog")


@becomes(
    "keras-retinanet's annotations.csv beside classes.csv, with a line NAME,NUMBER a class",
    "the labels of boxes are these numbers",
    "--classes-from",
)
def test_a_list_of_classes_beside_the_table(two: Path) -> None:
    text = "a.jpg,1,2,10,12,zebra\na.jpg,2,3,5,6,ant\nb.jpg,,,,,\n"
    (two / "classes.csv").write_text("zebra,0\nant,1\n")
    summary = pack_text(two, "a.csv", text, unlisted="drop")
    assert values(two, "boxes")["a.jpg"] == [[[1, 2, 10, 12], [2, 3, 5, 6]], [0, 1]]
    assert box_names(two) == ("zebra", "ant")
    assert assumed(summary)[1:] == [
        "classes of boxes: numbered as in classes.csv: 'ant' is 1 (--classes-from)"
    ]
    (two / "classes.csv").write_text("zebra,0\n")
    summary = pack_text(two, "a.csv", text, unlisted="drop", overwrite=True)
    assert box_names(two) == ("ant", "zebra")
    assert assumed(summary)[1:] == [
        "classes of boxes: numbered by name, for classes.csv has no 'ant' (--classes-from)"
    ]


@pytest.mark.parametrize("text", ["name,id\nzebra,0\n", "zebra,0\nant,0\n", "zebra\n", "", '"'])
def test_other_files_called_classes_csv(two: Path, text: str) -> None:
    (two / "classes.csv").write_text(text)
    rows = "a.jpg,1,2,10,12,zebra\na.jpg,2,3,5,6,ant\n"
    summary = pack_text(two, "a.csv", rows, unlisted="drop")
    assert box_names(two) == ("ant", "zebra")
    assert len(assumed(summary)) == 1


@becomes(
    "Open Images' annotations beside class-descriptions-boxable.csv (`/m/01g317,Person`)",
    "the classes of boxes have these names; that they come from this file is said",
)
@pytest.mark.parametrize("header", ["", "LabelName,DisplayName\n"])
def test_names_of_open_images(two: Path, header: str) -> None:
    (two / "class-descriptions-boxable.csv").write_text(
        f'{header}/m/1,Person\n/m/2,"Bat, animal"\n/m/3,Cat\n'
    )
    columns = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsGroupOf\n"
    rows = "a,x,/m/1,1,0.1,0.5,0.2,0.4,0\na,x,/m/2,1,0,0.5,0.2,1,1\nb,x,/m/9,1,0,0.5,0.2,1,0\n"
    (two / "train-annotations-bbox.csv").write_text(columns + rows)
    summary = pack_text(
        two, "val-annotations-bbox.csv", columns + rows.replace("/m/9", "/m/1"), unlisted="drop"
    )
    assert box_names(two) == ("Bat, animal", "Person")
    assert values(two, "boxes")["a.jpg"] == [[[4, 6, 20, 12], [0, 6, 20, 30]], [1, 0]]
    (named, shares, other_numbers) = assumed(summary)
    assert shares.startswith("boxes (XMin, YMin, XMax, YMax): normalised coordinates")
    assert named == (
        "classes of boxes: named as in class-descriptions-boxable.csv: '/m/1' is 'Person'"
    )
    assert "with other numbers than those of train-annotations-bbox.csv" in other_numbers


@becomes(
    "FiftyOne's download of Open Images: labels/detections.csv beside metadata/classes.csv",
    "the classes of boxes have these names; that they come from this file is said",
)
def test_names_of_fiftyone(two: Path) -> None:
    (two / "metadata").mkdir()
    (two / "metadata/classes.csv").write_text("/m/1,Person\n/m/2,Cat\n")
    (two / "labels").mkdir()
    columns = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsGroupOf\n"
    rows = "a,x,/m/1,1,0.1,0.5,0.2,0.4,0\nb,x,/m/2,1,0,0.5,0.2,1,0\n"
    summary = pack_text(two, "labels/detections.csv", columns + rows, image_root=two)
    assert box_names(two) == ("Cat", "Person")
    assert "classes of boxes: named as in classes.csv: '/m/2' is 'Cat'" in assumed(summary)


def cots(folder: Path) -> Path:
    source = photos(
        folder, *(f"train_images/video_{v}/{frame}.jpg" for v in (0, 10) for frame in (0, 1))
    )
    boxes = "\"[{'x': 5, 'y': 6, 'width': 20, 'height': 10}, {'x': 0, 'y': 0, 'width': 9, 'height': 8}]\""
    rows = f"0,7,0,0-0,[]\n0,7,1,0-1,{boxes}\n10,8,0,10-0,[]\n10,8,1,10-1,[]\n"
    header = "video_id,sequence,video_frame,image_id,annotations"
    (source / "train.csv").write_text(f"{header}\n{rows}")
    return source


@becomes(
    "COTS: `train.csv` with image_id `0-1` and annotations `[{'x': 5, 'y': 6, 'width': 20, 'height': 10}]`, beside "
    "`train_images/video_0/1.jpg`",
    "boxes; that `0-1` is this file is said. The root is packed by its folders, and the table is named",
    "SRC/train.csv",
)
def test_ids_of_a_folder_and_a_frame(tmp_path: Path) -> None:
    source = cots(tmp_path / "src")
    summary = fastpipe.pack(source / "train.csv", tmp_path / "packed")
    folder = "train_images/video_"
    assert values(tmp_path, "boxes") == {
        f"{folder}0/0.jpg": [],
        f"{folder}0/1.jpg": [[5, 6, 25, 16], [0, 0, 9, 8]],
        f"{folder}10/0.jpg": [],
        f"{folder}10/1.jpg": [],
    }
    assert assumed(summary) == [
        "images: 4 are in subfolders of src: train_images/video_0, train_images/video_10; 0-0 is "
        "train_images/video_0/0.jpg"
    ]
    texts = assumed(fastpipe.pack(source, tmp_path / "root"))
    table = f"{source}/train.csv, with --image-root {source}/train_images"
    assert any(text.endswith(f"if it has labels, pass {table}") for text in texts)
    fastpipe.pack(
        source / "train.csv",
        tmp_path / "packed",
        image_root=source / "train_images",
        overwrite=True,
    )
    assert values(tmp_path, "boxes")["video_0/1.jpg"] == [[5, 6, 25, 16], [0, 0, 9, 8]]


def test_ids_that_fit_few_frames_find_none(tmp_path: Path) -> None:
    source = cots(tmp_path / "src")
    rows = "".join(f"3-{frame},cat\n" for frame in range(9))
    (source / "train.csv").write_text(f"image_id,label\n0-1,cat\n{rows}")
    with pytest.raises(PackError, match=r"none of the 10 images in train\.csv exists"):
        fastpipe.pack(source / "train.csv", tmp_path / "packed")


@becomes(
    "a column `bbox` with corners, whose numbers also fit x, y, width, height",
    "x, y, width, height, as COCO has them; that they may be corners is said",
    "--box-format xyxy",
)
@pytest.mark.parametrize("are_corners", [True, False])
def test_corners_in_a_column_bbox(tmp_path: Path, are_corners: bool) -> None:
    photos(tmp_path, "a.jpg", size=(240, 240))
    sizes = [1 if number == 7 and not are_corners else 40 for number in range(20)]
    boxes = [[2 + number, 9, sizes[number], 60] for number in range(20)]
    rows = "".join(f'a.jpg,"{box}"\n' for box in boxes)
    summary = pack_text(tmp_path, "boxes.csv", f"image,bbox\n{rows}")
    texts = [text for text in assumed(summary) if "may be corners" in text]
    assert len(texts) == are_corners
    if are_corners:
        assert texts[0].startswith(
            "boxes (bbox): in none of the 20 boxes is the third number below"
        )


def test_corners_outside_are_told_from_boxes_of_other_images(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg", "c.jpg", size=(40, 30))
    text = 'image,bbox\na.jpg,"[2, 3, 9, 8]"\nb.jpg,"[30, 9, 38, 20]"\nc.jpg,"[30, 9, 20, 28]"\n'
    summary = pack_text(tmp_path, "boxes.csv", text)
    reasons = dict(summary.tally.rejected)
    assert "--box-format xyxy" in reasons["b.jpg"]
    assert "read as corners (x0, y0, x1, y1), all boxes of this image lie" in reasons["b.jpg"]
    assert "--box-format xyxy" not in reasons["c.jpg"]
    assert "of images of another size" in reasons["c.jpg"]
