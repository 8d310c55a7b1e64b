"""Tables that list images, as people write them: separators, headers, paths, labels."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, pack_text, photos, tags, values

import fastpipe
from fastpipe.errors import PackError


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return photos(tmp_path, "a.jpg", "b.jpg")


CAT_DOG = {"a.jpg": "cat", "b.jpg": "dog"}
LABELLED = "path, label"


@becomes("CSV with ids without an ending (a1b2 for a1b2.jpg)", "the file, where exactly one fits")
def test_ids_without_an_ending(tmp_path: Path) -> None:
    photos(tmp_path, "a1.jpg", "b2.png", "c3.v2.jpg")
    pack_text(tmp_path, "a.csv", "image_id,label\na1,cat\nb2,dog\nc3.v2,cow\n")
    assert labels(tmp_path) == {"a1.jpg": "cat", "b2.png": "dog", "c3.v2.jpg": "cow"}


@becomes("the same, where two files fit an id", "the row is rejected, and both files are named")
def test_an_id_of_two_files(tmp_path: Path) -> None:
    photos(tmp_path, "a1.jpg", "a1.png", "b2.png")
    ((path, reason),) = pack_text(
        tmp_path, "a.csv", "image_id,label\na1,cat\nb2,dog\n"
    ).tally.rejected
    assert path == "a1"
    assert "several files fit 'a1': a1.jpg, a1.png; write the whole name of one" in reason


@becomes(
    "paths with Windows' backslashes, or in other letter case", "the file, where exactly one fits"
)
def test_paths_of_windows(tmp_path: Path) -> None:
    photos(tmp_path, "x/a.jpg", "x/IMG_2.JPG")
    pack_text(tmp_path, "a.csv", "path,label\nx\\a.jpg,cat\n.\\x\\img_2.jpg,dog\n")
    assert labels(tmp_path) == {"x/a.jpg": "cat", "x/IMG_2.JPG": "dog"}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@becomes(
    "names with accents in another Unicode form (NFC, NFD)", "the file, where exactly one fits"
)
def test_other_unicode(tmp_path: Path, form: str) -> None:
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    photos(tmp_path, unicodedata.normalize(form, "é/ü.jpg"))  # type: ignore[arg-type]
    pack_text(tmp_path, "a.csv", unicodedata.normalize(other, "path,label\né/ü.jpg,cat\n"))  # type: ignore[arg-type]
    assert labels(tmp_path) == {unicodedata.normalize(form, "é/ü.jpg"): "cat"}  # type: ignore[arg-type]


@becomes("a mask's name without an ending in a column of masks", "the file, where exactly one fits")
def test_names_of_masks(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg")
    (tmp_path / "masks").mkdir()
    from PIL import Image

    Image.new("L", (40, 30), 7).save(tmp_path / "masks" / "a.png")
    pack_text(tmp_path, "a.csv", "path,seg\na.jpg,masks\\a\n", fields=["seg=seg:mask"])
    assert values(tmp_path, "seg")["a.jpg"][0][0] == 7


@becomes("CSV with ; | or tabs between the columns", "read by what the first line has")
def test_other_separators(two: Path) -> None:
    for separator in ";|\t":
        pack_text(
            two,
            "a.csv",
            f"path{separator}label\na.jpg{separator}cat\nb.jpg{separator}dog\n",
            overwrite=True,
        )
        assert labels(two) == CAT_DOG


@becomes("CSV of path and label without a header row", "read; that there is no header row is said")
def test_no_header(two: Path) -> None:
    (said,) = assumed(pack_text(two, "a.csv", "a.jpg,cat\nb.jpg,dog\n"))
    assert said == "a.csv: it has no header row, and its columns are read as path, label"
    assert labels(two) == CAT_DOG


@becomes(
    "CSV without a header row, with more columns",
    "read; labels only where they are chosen",
    "--label-column column_3",
)
def test_no_header_and_more_columns(two: Path) -> None:
    text = "a.jpg,7,cat,x\nb.jpg,8,dog,y\n"
    pack_text(two, "a.csv", text)
    assert labels(two) == {"a.jpg": None, "b.jpg": None}
    assert values(two, "column_2") == {"a.jpg": 7, "b.jpg": 8}
    pack_text(two, "a.csv", text, label_column="column_3", overwrite=True)
    assert labels(two) == CAT_DOG


@becomes(
    "`path label` lists in .txt (Caffe, ImageNet's val.txt)", "paths, also with spaces, and labels"
)
def test_a_list_of_paths_and_labels(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "my b.jpg")
    summary = pack_text(tmp_path, "val.txt", "a.jpg 0\nmy b.jpg 2\n")
    assert labels(tmp_path) == {"a.jpg": "0", "my b.jpg": "2"}
    assert "read as path, label" in assumed(summary)[0]


@becomes("MXNet's .lst: index, label, path", "paths and labels")
def test_a_list_of_mxnet(two: Path) -> None:
    pack_text(two, "train.lst", "0\t3.000000\ta.jpg\n1\t10.000000\tb.jpg\n")
    assert labels(two) == {"a.jpg": "3", "b.jpg": "10"}


@becomes("a .txt with a path a line", "images without labels; that there are none is said")
def test_a_list_of_paths(two: Path) -> None:
    summary = pack_text(two, "train.txt", "a.jpg\nb.jpg\n")
    assert labels(two) == {"a.jpg": None, "b.jpg": None}
    assert "read as the path" in assumed(summary)[0]


@becomes(
    "a list of pairs: image and mask",
    "the masks' paths are text until they are chosen",
    "--field mask=column_2:mask",
)
def test_a_list_of_pairs(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg")
    from PIL import Image

    Image.new("L", (40, 30), 3).save(tmp_path / "a.png")
    assert (
        "--field mask=column_2:mask"
        in assumed(pack_text(tmp_path, "train.txt", "a.jpg a.png\n"))[1]
    )
    pack_text(tmp_path, "train.txt", "a.jpg a.png\n", fields=["mask=column_2:mask"], overwrite=True)
    assert values(tmp_path, "mask")["a.jpg"][0][0] == 3


@becomes("a JSON file with an array of objects", "as JSONL; NaN is a missing value")
def test_an_array_in_json(two: Path) -> None:
    text = '[{"path": "a.jpg", "label": "cat", "score": NaN},\n {"path": "b.jpg", "label": "dog", "score": 1.5}]'
    pack_text(two, "a.json", text)
    assert labels(two) == CAT_DOG
    assert values(two, "score") == {"a.jpg": None, "b.jpg": 1.5}


@becomes("JSON Lines in a file called .json", "as JSONL")
def test_lines_in_json(two: Path) -> None:
    pack_text(
        two, "a.json", '{"path": "a.jpg", "label": "cat"}\n{"path": "b.jpg", "label": "dog"}\n'
    )
    assert labels(two) == CAT_DOG


@becomes(
    'a JSON object of something else, as of names: {"0": "cat"}',
    "refused, with the form of a .jsonl file to write instead",
)
def test_an_object_in_json(two: Path) -> None:
    with pytest.raises(PackError, match=r"make a \.jsonl file with a line for each image"):
        pack_text(two, "a.json", '{"0": "cat", "1": "dog"}')


@becomes(
    "an image in several rows, without boxes (captions)", "a sample a row; that it is so is said"
)
def test_an_image_in_several_rows(two: Path) -> None:
    summary = pack_text(two, "a.csv", "image,caption\na.jpg,one\na.jpg,two\nb.jpg,three\n")
    assert values(two, "caption") == {"a.jpg": "one", "a.jpg#2": "two", "b.jpg": "three"}
    assert assumed(summary) == [
        "rows: an image is in several rows, and each row is a sample: a.jpg, a.jpg#2"
    ]


def test_an_image_in_several_rows_with_other_labels(two: Path) -> None:
    """The remedy that is named gives the image all of its labels."""
    summary = pack_text(two, "a.csv", "image,label\na.jpg,cat\na.jpg,pet\nb.jpg,dog\n")
    (text,) = [text for text in assumed(summary) if text.startswith("rows: ")]
    assert text.startswith("rows: an image is in several rows, and each row is a sample: a.jpg")
    assert text.endswith("cat;pet, and pass --field tags=COLUMN:classes --separator ';'")
    table = "image,label\na.jpg,cat;pet\nb.jpg,dog\n"
    options = {"fields": {"tags": "label:classes"}, "separator": ";", "overwrite": True}
    pack_text(two, "a.csv", table, **options)
    assert tags(two, "tags") == {"a.jpg": {"cat", "pet"}, "b.jpg": {"dog"}}


NAMES = [
    "class",
    "labels",
    "Label",
    "fine_label",
    "target",
    "category",
    "class_name",
    "ClassId",
    "diagnosis",
    "dx",
    "Breed",
]


@pytest.mark.parametrize("column", NAMES)
@becomes(
    "labels in a column class, labels, fine_label, target, category, class_name, diagnosis, ...",
    "no labels, and the column is a field; that it looks like the label is said",
    "--label-column NAME",
)
def test_a_label_column_of_another_name(two: Path, column: str) -> None:
    text = f"image,{column},other\na.jpg,cat,x\nb.jpg,dog,y\n"
    (said,) = assumed(pack_text(two, "a.csv", text))
    assert (
        said == f"labels: none, though column {column!r} looks like one (--label-column {column})"
    )
    assert labels(two) == {"a.jpg": None, "b.jpg": None}
    assert assumed(pack_text(two, "a.csv", text, label_column=column, overwrite=True)) == []
    assert labels(two) == CAT_DOG


@becomes(
    "one further column, of whatever name, whose values come again",
    "no labels; that it looks like one is said",
    "--label-column NAME",
)
def test_the_only_column(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    (said,) = assumed(
        pack_text(tmp_path, "a.csv", "image,animal\na.jpg,cat\nb.jpg,cat\nc.jpg,dog\nd.jpg,dog\n")
    )
    assert said.endswith("(--label-column animal)")
    captions = "image,caption\na.jpg,a cat\nb.jpg,two cats\nc.jpg,a dog\nd.jpg,dogs\n"
    assert assumed(pack_text(tmp_path, "a.csv", captions, overwrite=True)) == []


def test_a_column_that_became_a_field_is_no_label(two: Path) -> None:
    summary = pack_text(
        two, "a.csv", "image,class\na.jpg,cat\nb.jpg,dog\n", fields=["animal=class"]
    )
    assert assumed(summary) == []
    assert values(two, "animal") == CAT_DOG


@becomes("labels that are fractions", "refused: scores are a field", "--field score=label")
def test_scores_as_labels(two: Path) -> None:
    text = "image,label\na.jpg,0.5\nb.jpg,0.25\n"
    with pytest.raises(
        PackError,
        match=r"a\.csv, column label, line 2: 0.5 has a fraction; expected classes.* pass --field score=label",
    ):
        pack_text(two, "a.csv", text)
    pack_text(two, "a.csv", text, fields=["score=label"])
    assert values(two, "score") == {"a.jpg": [0.5], "b.jpg": [0.25]}


def test_scores_in_the_label_column(two: Path) -> None:
    text = "image,age\na.jpg,7\nb.jpg,7.5\n"
    with pytest.raises(PackError) as refused:
        pack_text(two, "a.csv", text, label_column="age")
    message = str(refused.value)
    assert message.startswith(f"{two}/a.csv, column age, line 3: 7.5 has a fraction; ")
    assert (
        "leave --label-column out (label_column=) and pass --field age=age (fields=['age=age'])"
        in message
    )
    # What it names.
    pack_text(two, "a.csv", text, fields=["age=age"])
    with fastpipe.loader(two / "packed", 2, size=8, train=False, fields=("image", "age")) as loader:
        (batch,) = loader
        assert sorted(batch["age"].flatten().tolist()) == [7, 7.5]


@becomes("labels 1 to n in a table", "they stay these numbers; that class 0 has no sample is said")
def test_labels_from_one(two: Path) -> None:
    summary = pack_text(two, "a.csv", "path,label\na.jpg,9\nb.jpg,10\n")
    assert labels(two) == {"a.jpg": "9", "b.jpg": "10"}
    assert assumed(summary) == []
    summary = pack_text(two, "a.csv", "path,label\na.jpg,1\nb.jpg,10\n", overwrite=True)
    assert fastpipe.open(two / "packed").classes == [str(number) for number in range(11)]
    assert assumed(summary) == [
        "labels: 1 to 10 stay as they are, so class 0 of 11 has no sample (--first-label 1)"
    ]


@becomes(
    'labels that are numbers in texts (JSONL\'s "9", "10")',
    "names, sorted as texts; that it is so is said",
)
def test_numbers_as_names(two: Path) -> None:
    summary = pack_text(
        two, "a.jsonl", '{"path": "a.jpg", "label": "9"}\n{"path": "b.jpg", "label": "10"}\n'
    )
    assert fastpipe.open(two / "packed").classes == ["10", "9"]
    assert assumed(summary) == [
        "classes: these numbers are texts, and sorted as texts: '10' is label 0"
    ]


@becomes(
    "CSV of Label Studio: annotation_id, annotator, choice, image",
    "the choice is a field; that it looks like a label is said",
    "--label-column choice",
)
def test_choices_of_label_studio(two: Path) -> None:
    text = "annotation_id,annotator,choice,id,image\n1,1,Cat,1,a.jpg\n2,1,Dog,2,b.jpg\n"
    summary = pack_text(two, "a.csv", text)
    assert assumed(summary) == [
        "labels: none, though column 'choice' looks like one (--label-column choice)"
    ]


@becomes(
    "CSV of VIA: region_count, region_id, region_shape_attributes",
    "no boxes; that their shapes are not read is said, and to export COCO",
)
def test_shapes_of_via(two: Path) -> None:
    text = (
        "filename,file_size,region_count,region_id,region_shape_attributes\n"
        'a.jpg,123,1,0,"{""name"":""rect"",""x"":1,""y"":2,""width"":3,""height"":4}"\n'
        'b.jpg,124,0,0,"{}"\n'
    )
    summary = pack_text(two, "a.csv", text)
    (only,) = assumed(summary)
    assert only.startswith("boxes: none, for the shapes in column 'region_shape_attributes'")
    assert "Export the project from VIA as COCO" in only


@becomes(
    "EuroSAT of Kaggle: an index, Filename, Label, ClassName",
    "both are fields; that they look like labels is said",
    "--label-column Label",
)
def test_an_index_beside_a_label(two: Path) -> None:
    text = ",Filename,Label,ClassName\n0,a.jpg,0,AnnualCrop\n1,b.jpg,1,Forest\n"
    summary = pack_text(two, "a.csv", text)
    assert assumed(summary) == [
        "labels: none, though columns ClassName, Label look like them (--label-column Label)"
    ]


def test_columns_that_are_always_0_or_always_1_are_no_classes(two: Path) -> None:
    summary = pack_text(two, "a.csv", "path,throttle,brake\na.jpg,1,0\nb.jpg,1,0\n")
    assert assumed(summary) == []


@becomes(
    "Kaggle's id_code, patientId and the like, which name the images",
    "refused; the column is named, and that of the labels",
    "--image-column id_code --label-column diagnosis",
)
@pytest.mark.parametrize("column", ["id_code", "patientId", "uuid", "key"])
def test_ids_of_images(two: Path, column: str) -> None:
    text = f"{column},diagnosis,class_id\na,0,1\nb,1,1\n"
    options = f"--image-column {column} --label-column diagnosis"
    with pytest.raises(PackError, match=rf"--image-column names it \({options}\)"):
        pack_text(two, "a.csv", text)
    pack_text(two, "a.csv", text, image_column=column, label_column="diagnosis")
    assert labels(two) == {"a.jpg": "0", "b.jpg": "1"}
