"""Columns whose names or values say that they hold classes or captions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.programs.cli_run import succeeded
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, pack_text, photos, values, write

import fastpipe
from fastpipe.errors import PackError

NAMES = [f"{number}.jpg" for number in range(8)]


@pytest.fixture
def eight(tmp_path: Path) -> Path:
    return photos(tmp_path, *NAMES)


def rows(*columns: list[str]) -> str:
    return "".join(
        ",".join((name, *cells)) + "\n" for name, *cells in zip(NAMES, *columns, strict=True)
    )


TEXTS = [f"text number {number}" for number in range(8)]
CLASSES = ["ant", "bee"] * 4


@pytest.mark.parametrize(
    ("image", "label"),
    [
        ("Dateiname", "Klasse"),
        ("image", "étiquette"),
        ("fichier", "Catégorie"),
        ("imagen", "clase"),
        ("arquivo", "rótulo"),
        ("plik", "etykieta"),
        ("файл", "класс"),
        ("文件名", "类别"),
        ("画像", "ラベル"),
    ],
)
@becomes(
    "columns in other languages: Dateiname and Klasse, fichier and étiquette, imagen and clase, ...",
    "the images are found by the values; the column that looks like the label is named",
    "--label-column Klasse",
)
def test_columns_in_other_languages(eight: Path, image: str, label: str) -> None:
    text = f"{image},{label},x\n" + rows(CLASSES, TEXTS)
    said = assumed(pack_text(eight, "a.csv", text))
    assert (
        said[-1] == f"labels: none, though column {label!r} looks like one (--label-column {label})"
    )
    pack_text(eight, "a.csv", text, label_column=label, overwrite=True)
    assert labels(eight) == dict(zip(NAMES, CLASSES, strict=True))


@becomes(
    "several columns without names of labels, one of which has few different texts",
    "it is named as the likely label",
    "--label-column NAME",
)
def test_few_texts(eight: Path) -> None:
    text = "path,foo,patient_id,url,caption\n" + rows(
        CLASSES, ["p1", "p2"] * 4, ["u1", "u2"] * 4, TEXTS
    )
    summary = pack_text(eight, "a.csv", text)
    assert assumed(summary) == [
        "labels: none, though column 'foo' looks like one (--label-column foo)"
    ]


SENTENCES = [f"a red photo with the number {number}, from above" for number in range(8)]


@becomes(
    "Humpback whales: CSV with Image, Id (`w_f48451c`, `new_whale`), whose ids come again",
    "the column is named: it looks like the label",
    "--label-column Id",
)
def test_ids_that_come_again(eight: Path) -> None:
    whales = ["w_f48451c", "w_c3d896a", "new_whale", "new_whale"] * 2
    text = "Image,Id\n" + rows(whales)
    (said,) = assumed(pack_text(eight, "train.csv", text))
    assert said == "labels: none, though column 'Id' looks like one (--label-column Id)"
    pack_text(eight, "train.csv", text, label_column="Id", overwrite=True)
    assert labels(eight) == dict(zip(NAMES, whales, strict=True))


@pytest.mark.parametrize("ids", [[f"w_{number}" for number in range(8)], ["1", "2"] * 4])
def test_ids_of_images_or_numbers_are_no_labels(eight: Path, ids: list[str]) -> None:
    assert assumed(pack_text(eight, "train.csv", "Image,Id\n" + rows(ids))) == []


@becomes("a column of captions, a row each image", "a field of texts; it is offered as no label")
def test_captions_are_no_labels(eight: Path) -> None:
    summary = pack_text(
        eight, "a.csv", "path,caption\n" + rows([f'"{text}"' for text in SENTENCES])
    )
    assert assumed(summary) == []
    assert values(eight, "caption") == dict(zip(NAMES, SENTENCES, strict=True))


@becomes(
    "captions in the column `label`",
    "a class each, as the column says; that they are long is said",
    "--field text=label",
)
def test_captions_as_labels(eight: Path) -> None:
    text = "path,label\n" + rows([f'"{text}"' for text in SENTENCES])
    (only,) = assumed(pack_text(eight, "a.csv", text))
    assert only == (
        "labels: each text in column 'label' is a class of its own, and is not stored as text "
        "(--field text=label)"
    )
    summary = pack_text(eight, "a.csv", text, fields=["text=label"], overwrite=True)
    assert assumed(summary) == []
    assert fastpipe.open(eight / "packed").classes == []


def captions_of(count: int) -> dict[str, list[str]]:
    return {
        name: [f"a red photo, seen for time {time} as {name[0]}" for time in range(count)]
        for name in NAMES[:4]
    }


def caption_rows(captions: dict[str, list[str]], separator: str) -> str:
    lines = []
    for time in range(len(captions["0.jpg"])):
        for name, texts in captions.items():
            lines.append(f"{name}{separator} {time}{separator} {texts[time]}\n")
    return "".join(lines)


@becomes(
    "Flickr30k's results.csv, Flickr8k's captions.txt: five rows of captions an image, in any order",
    "a sample an image, with the list of its captions",
    "--field comment=comment:text",
)
def test_captions_in_several_rows(tmp_path: Path) -> None:
    photos(tmp_path, *NAMES[:4])
    captions = captions_of(5)
    text = "image_name| comment_number| comment\n" + caption_rows(captions, "|")
    (only,) = assumed(pack_text(tmp_path, "a.csv", text))
    assert only == (
        "rows: the rows of an image are one sample, with the list of its texts in 'comment'; as "
        "text, each row is a sample of its own (--field comment=comment:text)"
    )
    assert values(tmp_path, "comment", "comment_number") == {
        name: [texts, [0, 1, 2, 3, 4]] for name, texts in captions.items()
    }
    summary = pack_text(tmp_path, "a.csv", text, fields=["comment=comment:text"], overwrite=True)
    assert values(tmp_path, "comment")["0.jpg#2"] == captions["0.jpg"][1]
    assert "each row is a sample" in assumed(summary)[0]
    summary = pack_text(tmp_path, "a.csv", text, fields=["comment"], overwrite=True)
    assert values(tmp_path, "comment") == captions
    assert assumed(summary) == []


@becomes("JSONL with a line a caption", "as of a CSV file", "--field caption=caption:text")
def test_lines_of_captions(tmp_path: Path) -> None:
    photos(tmp_path, *NAMES[:4])
    captions = captions_of(2)
    lines = [
        f'{{"image": "{name}", "caption": "{text}"}}\n'
        for name, texts in captions.items()
        for text in texts
    ]
    pack_text(tmp_path, "a.jsonl", "".join(lines))
    assert values(tmp_path, "caption") == captions


def test_an_image_that_comes_twice_by_mistake_makes_no_lists(eight: Path) -> None:
    texts = [f'"{text}"' for text in SENTENCES]
    pack_text(eight, "a.csv", "path,caption\n" + rows(texts) + f"0.jpg,{texts[0]}\n")
    assert values(eight, "caption")["0.jpg#2"] == SENTENCES[0]


@becomes(
    "a row an image with one box and its class (GTSRB's Train.csv: Roi.X1, ..., ClassId, Path)",
    "boxes, and no labels; the column of the labels is named",
    "--label-column ClassId",
)
def test_the_class_of_the_only_box(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    header = "Width,Height,Roi.X1,Roi.Y1,Roi.X2,Roi.Y2,ClassId,Path\n"
    text = f"{header}40,30,5,6,20,21,3,a.jpg\n40,30,1,1,9,9,0,b.jpg\n"
    assert assumed(pack_text(tmp_path, "a.csv", text)) == [
        "labels: none, though each image has one box, and column 'ClassId' has its class "
        "(--label-column ClassId)"
    ]
    summary = pack_text(tmp_path, "a.csv", text, label_column="ClassId", overwrite=True)
    assert labels(tmp_path) == {"a.jpg": "3", "b.jpg": "0"}
    assert assumed(summary) == []
    more = text + "40,30,1,1,9,9,1,b.jpg\n"
    assert assumed(pack_text(tmp_path, "a.csv", more, overwrite=True)) == []


def test_a_table_without_labels_gets_no_advice_on_folders(eight: Path) -> None:
    (eight / "a.csv").write_text("path\n0.jpg\n1.jpg\n")
    shown = " ".join(succeeded("pack", eight / "a.csv", eight / "packed").split())
    assert "2 samples, with label -1" in shown
    assert "subfolder" not in shown
    assert "select" not in shown


def test_rows_without_a_label_are_named_with_the_call_that_leaves_them_out(eight: Path) -> None:
    (eight / "a.csv").write_text("path,label\n0.jpg,cat\n1.jpg,\n2.jpg,dog\n")
    shown = " ".join(succeeded("pack", eight / "a.csv", eight / "packed").split())
    assert (
        '1 sample, with label -1; to train without them: data = data.select(data["label"]' in shown
    )
    data = fastpipe.open(eight / "packed")
    assert len(data.select(data["label"] >= 0)) == 2


@becomes(
    "a list without a header, with several numbers behind each path (`a.jpg 0 0.5 3`)",
    "no labels; the columns that may be labels are named",
    "--label-column column_2",
)
def test_numbers_without_names(eight: Path) -> None:
    text = "".join(f"{name} {number % 2} 0.{number} 7\n" for number, name in enumerate(NAMES))
    summary = pack_text(eight, "list.txt", text)
    assert assumed(summary)[-1] == (
        "labels: none, for the columns have no names; these may be labels: column_2, column_4 "
        "(--label-column column_2)"
    )
    assert set(labels(eight).values()) == {None}
    pack_text(eight, "list.txt", text, label_column="column_2", overwrite=True)
    assert labels(eight) == {name: str(number % 2) for number, name in enumerate(NAMES)}


@becomes(
    "a .csv file whose columns are separated by spaces",
    "refused, with what to do",
    "the same file as .txt",
)
def test_spaces_in_place_of_commas(eight: Path) -> None:
    text = "path label\n" + "".join(
        f"{name} {label}\n" for name, label in zip(NAMES, CLASSES, strict=True)
    )
    with pytest.raises(
        PackError, match=r"separated by spaces: rename it to .txt, which is read so"
    ):
        pack_text(eight, "table.csv", text)
    pack_text(eight, "table.txt", text)
    assert labels(eight) == dict(zip(NAMES, CLASSES, strict=True))


@becomes(
    "MPII, landmarks: JSON with a list of joints for each image",
    "JSON; that crops and mirroring leave the points as they are is said, with the form that "
    "keypoints have",
    "--field keypoints=joints:keypoints",
)
def test_joints_in_json(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source / "images", "1.jpg", "2.jpg")
    joints = [[12.0, 3.5], [-1.0, -1.0]]
    rows = [{"image": f"{number}.jpg", "joints": joints, "joints_vis": [1, 0]} for number in (1, 2)]
    table = write(source / "annot/train.json", rows)
    with pytest.raises(
        PackError, match=r"annot has a table that lists these images. Pass the table"
    ):
        fastpipe.pack(source, tmp_path / "none")
    packed = tmp_path / "packed"
    (text,) = assumed(fastpipe.pack(table, packed, image_root=source / "images"))
    assert text.startswith(
        "column 'joints' looks like points, and is stored as numbers that crops and mirroring leave "
        "as they are. "
    )
    assert "For keypoints, write each value as a list of objects" in text
    assert text.endswith("and pass --field keypoints=joints:keypoints")
    assert values(tmp_path, "joints") == {"1.jpg": joints, "2.jpg": joints}

    # A list of objects, each a list of points with their visibility.
    for row in rows:
        row["joints"] = [[[12, 3.5, 2], [0, 0, 0]]]
    write(table, rows)
    fastpipe.pack(
        table,
        packed,
        image_root=source / "images",
        fields=["keypoints=joints:keypoints"],
        overwrite=True,
    )
    sample = fastpipe.open(packed).with_fields(("keypoints",))[0]
    assert np.asarray(sample["keypoints"]).tolist() == [[[12, 3.5], [0, 0]]]
