"""Columns whose names or values say that they hold classes or captions."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.programs.cli_run import succeeded
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, pack_text, photos, values

import fastpipe

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
