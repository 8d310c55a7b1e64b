"""Train and val with other classes: `classes_from` gives both the same numbers, whatever the source is."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from support.programs.cli_run import succeeded
from support.sources.becomes import becomes

import fastpipe
from fastpipe.errors import ConfigError, DatasetError, PackError

NAMES = ["ant", "bee", "cow"]


def picture(file: Path, shade: int = 0) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 20), (shade, 0, 0)).save(file)
    return file


def folders(root: Path, classes: Sequence[str]) -> Path:
    for number, name in enumerate(classes):
        picture(root / name / "1.jpg", 50 * number)
    return root


def labels(data: fastpipe.Dataset) -> dict[str, int]:
    """By key, the first part of which is the class in these sources."""
    return {
        key.split("/")[0].split(".")[0]: int(label)
        for key, label in zip(data["key"], data["label"], strict=True)
    }


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """A packed dataset with all of the classes."""
    fastpipe.pack(folders(tmp_path / "train", NAMES), tmp_path / "packed-train")
    return tmp_path / "packed-train"


@becomes(
    "train/ and val/ that have other class folders",
    "the numbers of train in both",
    "`--classes-from TRAIN`",
)
@pytest.mark.parametrize("names", ["packed", "source", "text"])
def test_class_folders_by_name(tmp_path: Path, train: Path, names: str) -> None:
    (tmp_path / "names.txt").write_text("\ufeffant\r\nbee\r\ncow\r\n\r\n", encoding="utf-8")
    given = {"packed": train, "source": tmp_path / "train", "text": tmp_path / "names.txt"}[names]
    source = folders(tmp_path / "val", ["ant", "cow"])
    summary = fastpipe.pack(source, tmp_path / "dst", classes_from=given)
    data = fastpipe.open(tmp_path / "dst")
    assert data.classes == NAMES
    assert labels(data) == {"ant": 0, "cow": 2}
    assert data.class_counts == [1, 0, 1]
    assert summary.info["packs"][0]["options"]["source"]["classes_from"] == {
        "labels": NAMES,
        "fields": {},
    }
    assert fastpipe.pack(source, tmp_path / "dst", classes_from=NAMES).already_packed
    with pytest.raises(PackError, match="different dataset"):
        fastpipe.pack(source, tmp_path / "dst", classes_from=["cow", "bee", "ant"])
    unpacked = fastpipe.open(source, classes_from=given)
    assert (unpacked.classes, labels(unpacked)) == (NAMES, {"ant": 0, "cow": 2})


@becomes(
    'Cassava: CSV with image_id, label; label_num_to_disease_map.json: `{"0": "Bacterial Blight"}`',
    "the names of the numbers",
    "`--classes-from label_num_to_disease_map.json`",
)
def test_names_in_a_json_object(tmp_path: Path) -> None:
    picture(tmp_path / "src/10.jpg")
    picture(tmp_path / "src/20.jpg")
    table = tmp_path / "src/train.csv"
    table.write_text("image_id,label\n10.jpg,2\n20.jpg,0\n")
    file = tmp_path / "src/label_num_to_disease_map.json"
    file.write_text(json.dumps({"2": "Healthy", "0": "Blight (CBB)", "1": "Brown Streak"}))
    fastpipe.pack(table, tmp_path / "dst", classes_from=file)
    data = fastpipe.open(tmp_path / "dst")
    assert data.classes == ["Blight (CBB)", "Brown Streak", "Healthy"]
    assert labels(data) == {"10": 2, "20": 0}


@becomes(
    'Oxford flowers: folders `1` to `102`, cat_to_name.json: `{"21": "fire lily"}`',
    "the names of the folders, in the order of their numbers; without the option the file is named",
    "`--classes-from cat_to_name.json`",
)
def test_names_of_folders_that_are_numbers(tmp_path: Path) -> None:
    source = tmp_path / "src"
    folders(source / "train", ["1", "10", "2"])
    folders(source / "valid", ["10"])
    file = source / "cat_to_name.json"
    file.write_text(json.dumps({"10": "lily", "1": "rose", "3": "tulip", "2": "iris"}))
    for split, expected in (
        ("train", {"rose": 0, "iris": 1, "lily": 3}),
        ("valid", {"lily": 3}),
    ):
        summary = fastpipe.pack(source, tmp_path / split, split=split, classes_from=file)
        data = fastpipe.open(tmp_path / split)
        assert data.classes == ["rose", "iris", "tulip", "lily"]
        assert {data.classes[label]: label for label in data["label"]} == expected
        (assumed,) = summary.assumed
        assert assumed.text == (
            "classes are numbers: 1 is 'rose', with label 0, and so on, in the order of the numbers"
        )
    named = fastpipe.pack(source, tmp_path / "plain", split="train").assumed
    assert f"--classes-from {file} gives them these names" in named[-1].text


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"0": "ant", "one": "bee"}, "expected numbers and names of classes.*got 'one': 'bee'"),
        ({"0": "ant", "1": 5}, "expected numbers and names of classes.*got '1': 5"),
        ({"0": "ant", "00": "bee"}, "the number 00 is listed twice"),
        ({"1": "ant", "2": "bee"}, "the class '0', which is not among the 2 names"),
        ({"1": "ant", "2": "ant"}, "it has no names of labels"),
    ],
)
def test_a_json_object_of_other_values_is_refused(
    tmp_path: Path, names: dict[str, Any], message: str
) -> None:
    source = folders(tmp_path / "src", ["0", "1"])
    file = tmp_path / "names.json"
    file.write_text(json.dumps(names))
    with pytest.raises((ConfigError, PackError), match=message):
        fastpipe.pack(source, tmp_path / "dst", classes_from=file)


@becomes("a class that is not among the names of `--classes-from`", "refused, with its name")
def test_a_class_that_is_not_named_is_refused(tmp_path: Path, train: Path) -> None:
    source = folders(tmp_path / "val", ["ant", "dog"])
    for pack in (fastpipe.pack, lambda src, dst, **how: fastpipe.open(src, **how)):
        with pytest.raises((PackError, ConfigError), match=r"'dog'.*not among the 3 names"):
            pack(source, tmp_path / "dst", classes_from=train)
    assert not (tmp_path / "dst").exists()
    names = tmp_path / "names.txt"
    for text in ("ant,dog,bee\n", "ant dog\n", "ant; dog"):
        names.write_text(text)
        with pytest.raises(PackError, match="on one line: write each on a line of its own"):
            fastpipe.pack(source, tmp_path / "dst", classes_from=names)
    (source / "dog" / "1.jpg").unlink()  # an empty folder has nothing that could get a wrong number
    fastpipe.pack(source, tmp_path / "dst", classes_from=train)
    assert labels(fastpipe.open(tmp_path / "dst")) == {"ant": 0}


@becomes(
    "a WebDataset with numbers in KEY.cls, and a file with names",
    "each number is a line of the file; told",
)
def test_a_web_dataset_with_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = picture(tmp_path / "a.jpg")
    with tarfile.open(tmp_path / "val.tar", "w") as tar:
        for key, label in (("ant", b"0"), ("cow", b"2")):
            (tmp_path / "label").write_bytes(label)
            tar.add(file, f"{key}.jpg")
            tar.add(tmp_path / "label", f"{key}.cls")
    summary = fastpipe.pack(tmp_path / "val.tar", tmp_path / "dst", classes_from=NAMES)
    assert [each.text for each in summary.assumed] == [
        "labels are numbers: number 0 is 'ant', and so on"
    ]
    for data in (
        fastpipe.open(tmp_path / "dst"),
        fastpipe.open(tmp_path / "val.tar", classes_from=NAMES),
    ):
        assert (data.classes, labels(data)) == (NAMES, {"ant": 0, "cow": 2})
    assert "assumed labels are numbers: number 0 is 'ant', and so on" in caplog.text
    with pytest.raises(ConfigError, match=r"samples? .* of the class '\d'"):
        fastpipe.open(tmp_path / "val.tar", classes_from=NAMES[:2])


def test_names_that_are_none_are_refused(tmp_path: Path) -> None:
    source = folders(tmp_path / "src", ["ant"])
    cases: list[tuple[Any, str]] = [
        (["ant", "ant"], "each name once"),
        ([], "1 to"),
        (["ant", 3], "expected names of classes, got 3"),
        (7, "expected a packed dataset, a source"),
        (tmp_path / "none.txt", "does not exist"),
        ("ant\n\nbee", "line 2 is empty"),
        (b"\xff\xfe\x00", "UTF-8"),
    ]
    for given, says in cases:
        if isinstance(given, (bytes, str)):
            (tmp_path / "names.txt").write_bytes(
                given if isinstance(given, bytes) else given.encode()
            )
            given = tmp_path / "names.txt"
        with pytest.raises((ConfigError, DatasetError), match=says):
            fastpipe.pack(source, tmp_path / "dst", classes_from=given)


@becomes("a CSV file whose labels are texts", "the named numbers", "`--classes-from NAMES`")
def test_a_table_with_texts(tmp_path: Path, train: Path) -> None:
    for name in ("ant", "cow"):
        picture(tmp_path / "images" / f"{name}.jpg")
    (tmp_path / "images" / "val.csv").write_text("path,label\nant.jpg,ant\ncow.jpg,cow\n")
    fastpipe.pack(tmp_path / "images" / "val.csv", tmp_path / "dst", classes_from=train)
    data = fastpipe.open(tmp_path / "dst")
    assert (data.classes, labels(data)) == (NAMES, {"ant": 0, "cow": 2})


@becomes(
    "a CSV file whose labels are numbers, and a file with names",
    "each number is a line of the file; told",
)
def test_a_table_with_numbers(tmp_path: Path) -> None:
    for name in ("ant", "cow"):
        picture(tmp_path / "images" / f"{name}.jpg")
    (tmp_path / "images" / "val.csv").write_text("path,label\nant.jpg,0\ncow.jpg,2\n")
    summary = fastpipe.pack(tmp_path / "images" / "val.csv", tmp_path / "dst", classes_from=NAMES)
    data = fastpipe.open(tmp_path / "dst")
    assert (data.classes, labels(data)) == (NAMES, {"ant": 0, "cow": 2})
    assert [str(each) for each in summary.assumed] == [
        "labels are numbers: number 0 is 'ant', and so on (--classes-from)"
    ]
    with pytest.raises(PackError, match=r"'2'.*not among the 2 names"):
        fastpipe.pack(tmp_path / "images" / "val.csv", tmp_path / "other", classes_from=NAMES[:2])


@becomes(
    "Parquet with a `ClassLabel` of another order", "the named numbers", "`--classes-from NAMES`"
)
def test_parquet_with_names(tmp_path: Path, train: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = picture(tmp_path / "a.jpg")
    features = {
        "label": {"_type": "ClassLabel", "names": ["cow", "ant"]},
        "image": {"_type": "Image"},
    }
    table = pa.table(
        {"image": [{"bytes": file.read_bytes(), "path": None}] * 2, "label": [0, 1]}
    ).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    parquet.write_table(table, tmp_path / "val.parquet")
    fastpipe.pack(tmp_path / "val.parquet", tmp_path / "dst", classes_from=train)
    data = fastpipe.open(tmp_path / "dst")
    assert data.classes == NAMES
    assert {
        str(key)[-1]: int(label) for key, label in zip(data["key"], data["label"], strict=True)
    } == {"0": 2, "1": 0}


@becomes("a tar of class folders", "the named numbers", "`--classes-from NAMES`")
def test_a_tar_of_class_folders(tmp_path: Path, train: Path) -> None:
    with tarfile.open(tmp_path / "val.tar", "w") as tar:
        tar.add(folders(tmp_path / "val", ["ant", "cow"]), "val")
    fastpipe.pack(tmp_path / "val.tar", tmp_path / "dst", classes_from=train)
    data = fastpipe.open(tmp_path / "dst")
    assert (data.classes, labels(data)) == (NAMES, {"ant": 0, "cow": 2})
    again = fastpipe.open(tmp_path / "val.tar", classes_from=train)
    assert (again.classes, labels(again)) == (NAMES, {"ant": 0, "cow": 2})
    assert fastpipe.open(tmp_path / "val.tar").classes == [
        "ant",
        "cow",
    ]  # what is kept of the scan stays as it was


def coco(root: Path, categories: Mapping[int, str]) -> Path:
    """One picture with a box and a polygon of each category."""
    picture(root / "a.jpg")
    annotations = [
        {
            "id": number,
            "image_id": 1,
            "category_id": category,
            "bbox": [10 * at, 0, 10, 10],
            "segmentation": [[10 * at, 0, 10 * at + 10, 0, 10 * at + 10, 10, 10 * at, 10]],
            "iscrowd": 0,
            "area": 100,
        }
        for at, (number, category) in enumerate(enumerate(categories))
    ]
    said = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 40, "height": 20}],
        "categories": [{"id": number, "name": name} for number, name in categories.items()],
        "annotations": annotations,
    }
    (root / "instances.json").write_text(json.dumps(said))
    return root / "instances.json"


def boxes(data: fastpipe.Dataset) -> dict[str, float]:
    """By the name of the class, the left side of each box."""
    sample = data.with_fields(["boxes"])[0]
    names = data.fields["boxes"].names
    pairs = zip(sample["boxes_labels"].tolist(), sample["boxes"].tolist(), strict=True)
    return {names[label]: box[0] for label, box in pairs}


@becomes(
    "COCO files whose categories have other ids",
    "boxes and masks with the ids of train",
    "`--classes-from TRAIN`",
)
def test_coco_by_name(tmp_path: Path) -> None:
    pytest.importorskip("pycocotools")
    how: dict[str, Any] = {"format": "coco", "fields": ["boxes", "seg=segmentation:mask"]}
    fastpipe.pack(coco(tmp_path / "a", {1: "ant", 3: "bee", 5: "cow"}), tmp_path / "train", **how)
    val = coco(tmp_path / "b", {1: "cow", 2: "ant"})
    fastpipe.pack(val, tmp_path / "val", classes_from=tmp_path / "train", **how)
    data = fastpipe.open(tmp_path / "val")
    assert data.fields["boxes"].names == ("", "ant", "", "bee", "", "cow")
    assert boxes(data) == {"cow": 0, "ant": 10}
    mask = data.with_fields(["seg"])[0]["seg"].squeeze()
    assert (int(mask[5, 5]), int(mask[5, 15]), int(mask[15, 35])) == (5, 1, 0)
    with pytest.raises(PackError, match=r"'cow'.*not among the 2 names"):
        fastpipe.pack(
            val, tmp_path / "dst", format="coco", fields=["boxes"], classes_from=["bee", "ant"]
        )
    with pytest.raises(
        PackError, match="'ant' would be number 0 in the masks seg, which is the background"
    ):
        fastpipe.pack(val, tmp_path / "dst", classes_from=["ant", "cow"], **how)
    said = json.loads(val.read_text())
    said["categories"] = [{"id": 2, "name": "cow"}, {"id": 1, "name": "ant"}]
    val.write_text(json.dumps(said))  # of the same size: only the names have changed places
    with pytest.raises(PackError, match="the source files have changed"):
        fastpipe.pack(val, tmp_path / "val", classes_from=tmp_path / "train", **how)


@becomes("Pascal VOC with other names", "boxes with the named numbers", "`--classes-from NAMES`")
def test_voc_by_name(tmp_path: Path, train: Path) -> None:
    picture(tmp_path / "voc" / "JPEGImages" / "a.jpg")
    objects = "".join(
        f"<object><name>{name}</name><bndbox><xmin>{left}</xmin><ymin>1</ymin><xmax>{left + 9}</xmax><ymax>10</ymax>"
        "</bndbox></object>"
        for name, left in (("cow", 1), ("ant", 11))
    )
    (tmp_path / "voc" / "Annotations").mkdir()
    (tmp_path / "voc" / "Annotations" / "a.xml").write_text(
        f"<annotation><filename>a.jpg</filename>{objects}</annotation>"
    )
    fastpipe.pack(tmp_path / "voc", tmp_path / "dst", classes_from=train)
    data = fastpipe.open(tmp_path / "dst")
    assert data.fields["boxes"].names == tuple(NAMES)
    assert boxes(data) == {"cow": 0, "ant": 10}


@becomes(
    "YOLO whose `data.yaml` has another order",
    "boxes with the named numbers",
    "`--classes-from NAMES`",
)
def test_yolo_by_name(tmp_path: Path, train: Path) -> None:
    picture(tmp_path / "yolo" / "images" / "a.jpg")
    (tmp_path / "yolo" / "labels").mkdir()
    (tmp_path / "yolo" / "labels" / "a.txt").write_text(
        "0 0.125 0.25 0.25 0.5\n1 0.375 0.25 0.25 0.5\n"
    )
    (tmp_path / "yolo" / "data.yaml").write_text(yaml.safe_dump({"names": ["cow", "ant"]}))
    fastpipe.pack(tmp_path / "yolo", tmp_path / "dst", classes_from=train)
    assert boxes(fastpipe.open(tmp_path / "dst")) == {"cow": 0, "ant": 10}
    (tmp_path / "yolo" / "data.yaml").unlink()
    summary = fastpipe.pack(tmp_path / "yolo", tmp_path / "numbers", classes_from=["cow", "ant"])
    assert boxes(fastpipe.open(tmp_path / "numbers")) == {"cow": 0, "ant": 10}
    assert [each.text for each in summary.assumed] == [
        "classes of boxes are numbers: number 0 is 'cow', and so on"
    ]


@becomes("lists of class names (many labels)", "the named numbers", "`--classes-from NAMES`")
def test_many_labels_by_name(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "a.jpg")
    row = json.dumps({"path": "a.jpg", "tags": ["cow", "ant"]})
    (tmp_path / "images" / "val.jsonl").write_text(row + "\n")
    how = {"fields": ["tags=tags:classes"], "classes_from": NAMES}
    fastpipe.pack(tmp_path / "images" / "val.jsonl", tmp_path / "dst", **how)  # type: ignore[arg-type]
    data = fastpipe.open(tmp_path / "dst")
    assert data.fields["tags"].names == tuple(NAMES)
    assert data["tags"][0].tolist() == [2, 0]
    again = fastpipe.pack(tmp_path / "dst", tmp_path / "again", classes_from=["cow", "bee", "ant"])
    assert again.info["fields"]["tags"]["names"] == ["cow", "bee", "ant"]


@becomes(
    "a packed dataset that is packed again with other names",
    "the named numbers",
    "`--classes-from NAMES`",
)
def test_a_packed_dataset_by_name(tmp_path: Path, train: Path) -> None:
    fastpipe.pack(train, tmp_path / "dst", classes_from=["cow", "bee", "ant"])
    data = fastpipe.open(tmp_path / "dst")
    assert (data.classes, labels(data)) == (["cow", "bee", "ant"], {"ant": 2, "bee": 1, "cow": 0})


def test_a_damaged_shard_is_made_again_with_them(tmp_path: Path) -> None:
    fastpipe.pack(
        coco(tmp_path / "a", {1: "ant", 3: "cow"}),
        tmp_path / "train",
        format="coco",
        fields=["boxes"],
    )
    val = coco(tmp_path / "b", {1: "cow", 2: "ant"})
    fastpipe.pack(
        val, tmp_path / "dst", format="coco", fields=["boxes"], classes_from=tmp_path / "train"
    )
    shard = tmp_path / "dst" / "shard-000000.tar"
    intact = shard.read_bytes()
    shard.write_bytes(intact.replace(b"cls", b"clz"))
    said = succeeded("verify", tmp_path / "dst", "--repair", val)
    assert "repaired: shard-000000.tar" in said
    assert shard.read_bytes() == intact


def test_a_writer_takes_them(tmp_path: Path, train: Path) -> None:
    with fastpipe.Writer(tmp_path / "dst", classes_from=train) as writer:
        writer.add(picture(tmp_path / "a.jpg"), "cow", key="cow")
    data = fastpipe.open(tmp_path / "dst")
    assert (data.classes, labels(data)) == (NAMES, {"cow": 2})
    with pytest.raises(ConfigError, match="leave out one of them"):
        fastpipe.Writer(tmp_path / "dst", classes=NAMES, classes_from=train)


@becomes(
    "`fastpipe add` of a class that sorts before others",
    "comes last, told",
    "`--classes-from` of a fresh pack",
)
def test_a_new_class_comes_last(tmp_path: Path) -> None:
    source = folders(tmp_path / "src", ["bee", "cow"])
    fastpipe.pack(source, tmp_path / "dst")
    folders(source, ["ant"])
    grown = fastpipe.add(source, tmp_path / "dst")
    assert fastpipe.open(tmp_path / "dst").classes == ["bee", "cow", "ant"]
    # The photos of the new class are those of the others.
    assumed, copies = grown.assumed
    assert copies.text.startswith("copies: ")
    assert assumed.text.startswith(
        "the class 'ant' is new, and comes last here: it is 2. A fresh pack would sort it"
    )
    fastpipe.pack(source, tmp_path / "fresh", classes_from=tmp_path / "dst")
    assert fastpipe.open(tmp_path / "fresh").classes == ["bee", "cow", "ant"]
    folders(source, ["dog"])
    with pytest.raises(PackError, match=r"'dog'.*was packed with the classes of --classes-from"):
        fastpipe.add(source, tmp_path / "fresh")
    with pytest.raises(PackError, match="first, in their order"):
        fastpipe.add(source, tmp_path / "fresh", classes_from=["dog", "bee", "cow", "ant"])
    fastpipe.add(source, tmp_path / "fresh", classes_from=["bee", "cow", "ant", "dog"])
    assert fastpipe.open(tmp_path / "fresh").classes == ["bee", "cow", "ant", "dog"]
