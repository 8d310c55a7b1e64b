"""Tables with several classes an image: in one cell, or a column a class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, pack_text, photos, tags
from support.sources.tables import jpegs, write_table

import fastpipe
from fastpipe.errors import ConfigError, PackError
from fastpipe.packing.job.log import as_arguments


@pytest.fixture
def three(tmp_path: Path) -> Path:
    return photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")


NIH = "Image Index,Finding Labels\na.jpg,Effusion|Cardiomegaly\nb.jpg,Effusion\nc.jpg,No Finding\n"


@becomes(
    '"cat|dog" in a column (NIH\'s chest X-rays)',
    "text; that it looks like several classes is said. With the option a field of kind classes, sorted",
    "--field 'tags=Finding Labels:classes'",
)
def test_classes_with_a_bar(three: Path) -> None:
    (said,) = assumed(pack_text(three, "a.csv", NIH))
    assert (
        "column 'Finding Labels' looks like one (--field 'tags=Finding Labels:classes' --separator '|')"
        in said
    )
    summary = pack_text(three, "a.csv", NIH, fields=["tags=Finding Labels:classes"], overwrite=True)
    assert fastpipe.open(three / "packed").fields["tags"].names == (
        "Cardiomegaly",
        "Effusion",
        "No Finding",
    )
    assert tags(three, "tags") == {
        "a.jpg": {"Effusion", "Cardiomegaly"},
        "b.jpg": {"Effusion"},
        "c.jpg": {"No Finding"},
    }
    assert assumed(summary) == [
        "field tags: classes in column 'Finding Labels' are separated by '|' (--separator '|')"
    ]


@becomes(
    "classes with spaces, commas or ; between them, in a column label",
    "one class; that it looks like several is said",
    "--field tags=label:classes",
)
def test_other_separators_of_classes(three: Path) -> None:
    for separator in " ,;":
        text = f'path,label\na.jpg,"scab{separator}rust"\nb.jpg,rust\nc.jpg,scab\n'
        (said,) = assumed(pack_text(three, "a.csv", text, overwrite=True))
        option = f"--field tags=label:classes --separator '{separator}'"
        assert said.endswith(f"in column 'label' is one class, not several ({option})")
        pack_text(three, "a.csv", text, fields=["tags=label:classes"], overwrite=True)
        assert tags(three, "tags") == {
            "a.jpg": {"scab", "rust"},
            "b.jpg": {"rust"},
            "c.jpg": {"scab"},
        }


def test_names_of_two_words_are_one_class(three: Path) -> None:
    text = "path,label\na.jpg,golden retriever\nb.jpg,labrador retriever\nc.jpg,tabby\n"
    assert assumed(pack_text(three, "a.csv", text)) == []
    pack_text(three, "a.csv", text, fields=["tags=label:classes"], overwrite=True)
    assert tags(three, "tags")["a.jpg"] == {"golden retriever"}


@becomes(
    "lists as pandas writes them: \"['cat', 'dog']\"",
    "a field of kind classes",
    "--field tags=labels:classes",
)
def test_lists_of_python(three: Path) -> None:
    text = "path,labels\na.jpg,\"['cat', 'dog']\"\nb.jpg,[]\nc.jpg,\"['dog']\"\n"
    pack_text(three, "a.csv", text, fields=["tags=labels:classes"])
    assert tags(three, "tags") == {"a.jpg": {"cat", "dog"}, "b.jpg": set(), "c.jpg": {"dog"}}


@becomes(
    "class numbers in one cell: 3 7 9",
    "a field of kind classes with these numbers",
    "--field tags=labels:classes",
)
def test_numbers_in_one_cell(three: Path) -> None:
    pack_text(
        three, "a.csv", "path,labels\na.jpg,1 3\nb.jpg,0\nc.jpg,\n", fields=["tags=labels:classes"]
    )
    found = fastpipe.open(three / "packed").with_fields(["key", "tags"])  # type: ignore[arg-type]
    rows = {sample["key"]: sample["tags"].tolist() for sample in found}
    assert rows == {"a.jpg": [0, 1, 0, 1], "b.jpg": [1, 0, 0, 0], "c.jpg": [0, 0, 0, 0]}


def test_the_separator_that_is_given(three: Path) -> None:
    text = "path,tags\na.jpg,black cat/dog\nb.jpg,dog\nc.jpg,black cat\n"
    summary = pack_text(three, "a.csv", text, fields=["tags=tags:classes"], separator="/")
    assert tags(three, "tags")["a.jpg"] == {"black cat", "dog"}
    assert assumed(summary) == []
    with pytest.raises(
        PackError, match=r"^separator: no field of classes has texts; --field NAME=COLUMN:classes"
    ):
        pack_text(three, "a.csv", text, separator="/", overwrite=True)
    with pytest.raises(ConfigError, match=r"^separator: expected the text between classes"):
        pack_text(three, "a.csv", text, separator="")


CELEBA = "image_id,Bald,Smiling,Young\na.jpg,-1,1,1\nb.jpg,1,-1,-1\nc.jpg,-1,-1,-1\n"


@becomes(
    "columns of 0 and 1, or -1 and 1, a column a class (CelebA)",
    "fields of numbers; that they look like classes is said. With the option one field of kind classes",
    "--field 'attributes=*:classes'",
)
def test_columns_of_flags(three: Path) -> None:
    (said,) = assumed(pack_text(three, "a.csv", CELEBA))
    assert said == (
        "classes: none, though 3 columns of -1 and 1 look like a class each: Bald, Smiling, Young "
        "(--field tags=Bald,Smiling,Young:classes)"
    )
    expected = {"a.jpg": {"Smiling", "Young"}, "b.jpg": {"Bald"}, "c.jpg": set()}
    for asked in ("*", "Bald,Smiling,Young", "[BSY]*"):
        summary = pack_text(
            three, "a.csv", CELEBA, fields=[f"tags={asked}:classes"], overwrite=True
        )
        assert tags(three, "tags") == expected
        assert assumed(summary) == []
        assert fastpipe.open(three / "packed").fields["tags"].names == ("Bald", "Smiling", "Young")


def test_a_pattern_takes_columns_of_flags_only(three: Path) -> None:
    text = "path,label,red,blue,note\na.jpg,x,1,0,n\nb.jpg,y,0,1.0,n\nc.jpg,x,true,False,n\n"
    pack_text(three, "a.csv", text, fields=["colors=*:classes", "note"])
    assert tags(three, "colors") == {"a.jpg": {"red"}, "b.jpg": {"blue"}, "c.jpg": {"red"}}
    assert labels(three) == {"a.jpg": "x", "b.jpg": "y", "c.jpg": "x"}
    with pytest.raises(
        PackError,
        match="expected columns of 0 and 1, or -1 and 1, a column a class; note has others",
    ):
        pack_text(three, "a.csv", text, fields=["colors=red,note:classes"])
    with pytest.raises(PackError, match=r"--field colors=red,green:classes: .* has no such column"):
        pack_text(three, "a.csv", text, fields=["colors=red,green:classes"])


@becomes(
    "CelebA's list_attr_celeba.txt: a count, then names, then rows",
    "read",
    "--field 'attributes=*:classes'",
)
def test_attributes_of_celeba(three: Path) -> None:
    text = "2\nBald Smiling \na.jpg -1  1\nb.jpg  1 -1\n"
    pack_text(three, "list_attr_celeba.txt", text, fields=["attributes=*:classes"])
    assert tags(three, "attributes") == {"a.jpg": {"Smiling"}, "b.jpg": {"Bald"}}


@becomes(
    "JSONL with lists of class names",
    "JSON; that it looks like several classes is said",
    "--field tags=labels:classes",
)
def test_lists_in_jsonl(three: Path) -> None:
    text = '{"path": "a.jpg", "labels": ["cat", "dog"]}\n{"path": "b.jpg", "labels": []}\n'
    (said,) = assumed(pack_text(three, "a.jsonl", text, unlisted="drop"))
    assert (
        said == "labels: none, though column 'labels' looks like one (--field tags=labels:classes)"
    )
    pack_text(three, "a.jsonl", text, fields=["tags=labels:classes"], overwrite=True)
    assert tags(three, "tags") == {"a.jpg": {"cat", "dog"}, "b.jpg": set()}


def parquet(folder: Path, **columns: Sequence[Any]) -> Path:
    count = len(next(iter(columns.values())))
    return write_table(folder / "a.parquet", jpegs(count), **columns)


@becomes(
    "Parquet with a label column of another name (CIFAR-100's fine_label)",
    "as in CSV",
    "--label-column fine_label",
)
def test_label_columns_of_parquet(tmp_path: Path) -> None:
    source = parquet(
        tmp_path, coarse_label=[1, 0, 1], fine_label=["x", "y", "x"], caption=["a", "b", "c"]
    )
    (said,) = assumed(fastpipe.pack(source, tmp_path / "packed"))
    assert (
        said
        == "labels: none, though columns coarse_label, fine_label look like them (--label-column coarse_label)"
    )
    summary = fastpipe.pack(source, tmp_path / "packed", label_column="fine_label", overwrite=True)
    assert assumed(summary) == []
    assert list(labels(tmp_path).values()).count("x") == 2


def test_several_classes_in_the_label_column(three: Path) -> None:
    text = "path,kind\na.jpg,scab|rust\nb.jpg,rust\nc.jpg,scab\n"
    (said,) = assumed(pack_text(three, "a.csv", text, label_column="kind"))
    option = "--field tags=kind:classes --separator '|', in place of --label-column kind"
    assert said.endswith(f"is one class, not several ({option})")
    assert as_arguments(option).endswith("separator='|', in place of label_column='kind'")
    again = {"fields": ["tags=kind:classes"], "separator": "|", "overwrite": True}
    assert assumed(pack_text(three, "a.csv", text, **again)) == []


@becomes(
    "Parquet with classes in a text, or a column a class",
    "as in CSV",
    "--field tags=COLUMNS:classes",
)
def test_several_classes_in_parquet(tmp_path: Path) -> None:
    source = parquet(
        tmp_path,
        label=["dog|cat", "dog", "ant"],
        bald=[1, 0, 1],
        young=[False, True, None],
        n=[5, 6, 7],
    )
    assert assumed(fastpipe.pack(source, tmp_path / "packed")) == [
        "labels: 'dog|cat' in column 'label' is one class, not several (--field tags=label:classes --separator '|')"
    ]
    fields = {"tags": "label:classes", "looks": "bald,young:classes"}
    summary = fastpipe.pack(source, tmp_path / "packed", fields=fields, overwrite=True)
    found = {key[-1]: value for key, value in tags(tmp_path, "tags").items()}
    assert found == {"0": {"dog", "cat"}, "1": {"dog"}, "2": {"ant"}}
    assert {key[-1]: value for key, value in tags(tmp_path, "looks").items()} == {
        "0": {"bald"},
        "1": {"young"},
        "2": {"bald"},
    }
    assert fastpipe.open(tmp_path / "packed").fields["tags"].names == ("ant", "cat", "dog")
    assert assumed(summary) == [
        "field tags: classes in column 'label' are separated by '|' (--separator '|')"
    ]


def test_train_and_val_number_their_classes_alike(tmp_path: Path) -> None:
    for part, cells in {"train": ["dog|cat", "ant"], "val": ["cat", "dog|ant"]}.items():
        photos(tmp_path / part, "a.jpg", "b.jpg")
        pack_text(
            tmp_path / part,
            "a.csv",
            f"path,x\na.jpg,{cells[0]}\nb.jpg,{cells[1]}\n",
            fields=["tags=x:classes"],
        )
        assert fastpipe.open(tmp_path / part / "packed").fields["tags"].names == (
            "ant",
            "cat",
            "dog",
        )
    assert tags(tmp_path / "val", "tags") == {"a.jpg": {"cat"}, "b.jpg": {"dog", "ant"}}


LISTS = {
    "cat, dog": ('a.jpg,"cat, dog"\nb.jpg,bird\nc.jpg,cow\n', ",", {"cat", "dog"}),
    "haze primary": (
        "a,haze primary\nb,agriculture clear primary water\nc,clear\n",
        " ",
        {"haze", "primary"},
    ),
    "cat; dog": ('a.jpg,"cat; dog"\nb.jpg,bird\nc.jpg,cow\n', ";", {"cat", "dog"}),
    "cat/dog": ("a.jpg,cat/dog\nb.jpg,cat\nc.jpg,dog\n", "/", {"cat", "dog"}),
}


@pytest.mark.parametrize("column", ["label", "tags"])
@pytest.mark.parametrize("cell", LISTS)
@becomes(
    "a small table with several classes in a cell: cat, dog / cat; dog / agriculture clear primary water (Planet)",
    "that it looks like several classes is said, with what separates them",
    "--field tags=COLUMN:classes --separator ','",
)
def test_several_classes_in_a_small_table(three: Path, cell: str, column: str) -> None:
    rows, separator, expected = LISTS[cell]
    text = f"image_name,{column}\n{rows}"
    (said,) = assumed(pack_text(three, "a.csv", text))
    assert said.endswith(f"(--field tags={column}:classes --separator '{separator}')")
    options: Any = {"fields": [f"tags={column}:classes"], "separator": separator, "overwrite": True}
    assert assumed(pack_text(three, "a.csv", text, **options)) == []
    assert tags(three, "tags")["a.jpg"] == expected


def test_several_classes_in_many_texts(three: Path) -> None:
    rows = "".join(f'a.jpg,"class {number}, class {number + 1}"\n' for number in range(2100))
    said = assumed(pack_text(three, "a.csv", f"path,tags\n{rows}", unlisted="drop"))
    assert said[0].endswith("(--field tags=tags:classes --separator ',')")


def test_sentences_are_no_classes(three: Path) -> None:
    text = 'image,caption\na.jpg,"A cat, lying on a sofa"\nb.jpg,A dog\nc.jpg,"A dog, two cats and a cow"\n'
    assert assumed(pack_text(three, "a.csv", text)) == []


@becomes(
    "Parquet with several classes in a text of a column tags",
    "as in CSV",
    "--field tags=COLUMN:classes",
)
def test_several_classes_in_a_column_of_parquet(tmp_path: Path) -> None:
    source = parquet(tmp_path, tags=["haze primary", "clear primary water", "cloudy"])
    (said,) = assumed(fastpipe.pack(source, tmp_path / "packed"))
    assert (
        said
        == "labels: none, though column 'tags' looks like one (--field tags=tags:classes --separator ' ')"
    )


@becomes(
    "Open Images' labels of images: a row a class, with a Confidence of 1 or 0",
    "a sample a row; that rows with 0 name classes that are not in the image is said",
    "--label-column LabelName",
)
@pytest.mark.parametrize("numbers", [("1", "0"), ("1.0", "0.0")])
def test_classes_that_are_not_in_the_picture(three: Path, numbers: tuple[str, str]) -> None:
    yes, no = numbers
    text = (
        "ImageID,Source,LabelName,Confidence\n"
        f"a,verification,/m/1,{yes}\na,verification,/m/2,{no}\nb,verification,/m/2,{yes}\n"
        f"c,verification,/m/1,{no}\n"
    )
    said = [
        "rows: 2 have 0 in column 'Confidence'; in Open Images this means that the class is not in "
        "the image. To leave them out, remove these rows from the table"
    ]
    summary = pack_text(three, "a.csv", text, label_column="LabelName")
    assert said == [each for each in assumed(summary) if "Confidence" in each]
    # Each image has one row, so that a confidence may be anything.
    (_, *one_row_each) = text.splitlines(keepends=True)
    del one_row_each[1]
    text = "ImageID,Source,LabelName,Confidence\n" + "".join(one_row_each)
    summary = pack_text(three, "a.csv", text, label_column="LabelName", overwrite=True)
    assert not any("Confidence" in each for each in assumed(summary))
