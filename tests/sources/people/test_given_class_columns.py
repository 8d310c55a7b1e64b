"""Tables with several classes an image: in one cell, or a column a class."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, pack_text, photos, tags

import fastpipe
from fastpipe.errors import ConfigError, PackError


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
    assert "column 'Finding Labels' looks like one (--field 'tags=Finding Labels:classes')" in said
    summary = pack_text(three, "a.csv", NIH, fields=["tags=Finding Labels:classes"], overwrite=True)
    assert fastpipe.open(three / "packed").fields["tags"].names == ("Cardiomegaly", "Effusion", "No Finding")
    assert tags(three, "tags") == {
        "a.jpg": {"Effusion", "Cardiomegaly"},
        "b.jpg": {"Effusion"},
        "c.jpg": {"No Finding"},
    }
    assert assumed(summary) == ["field tags: classes in column 'Finding Labels' are separated by '|' (--separator '|')"]


@becomes(
    "classes with spaces, commas or ; between them, in a column label",
    "one class; that it looks like several is said",
    "--field tags=label:classes",
)
def test_other_separators_of_classes(three: Path) -> None:
    for separator in " ,;":
        text = f'path,label\na.jpg,"scab{separator}rust"\nb.jpg,rust\nc.jpg,scab\n'
        (said,) = assumed(pack_text(three, "a.csv", text, overwrite=True))
        assert said.endswith("in column 'label' is one class, not several (--field tags=label:classes)")
        pack_text(three, "a.csv", text, fields=["tags=label:classes"], overwrite=True)
        assert tags(three, "tags") == {"a.jpg": {"scab", "rust"}, "b.jpg": {"rust"}, "c.jpg": {"scab"}}


def test_names_of_two_words_are_one_class(three: Path) -> None:
    text = "path,label\na.jpg,golden retriever\nb.jpg,labrador retriever\nc.jpg,tabby\n"
    assert assumed(pack_text(three, "a.csv", text)) == []
    pack_text(three, "a.csv", text, fields=["tags=label:classes"], overwrite=True)
    assert tags(three, "tags")["a.jpg"] == {"golden retriever"}


@becomes("lists as pandas writes them: \"['cat', 'dog']\"", "a field of kind classes", "--field tags=labels:classes")
def test_lists_of_python(three: Path) -> None:
    text = "path,labels\na.jpg,\"['cat', 'dog']\"\nb.jpg,[]\nc.jpg,\"['dog']\"\n"
    pack_text(three, "a.csv", text, fields=["tags=labels:classes"])
    assert tags(three, "tags") == {"a.jpg": {"cat", "dog"}, "b.jpg": set(), "c.jpg": {"dog"}}


@becomes(
    "class numbers in one cell: 3 7 9", "a field of kind classes with these numbers", "--field tags=labels:classes"
)
def test_numbers_in_one_cell(three: Path) -> None:
    pack_text(three, "a.csv", "path,labels\na.jpg,1 3\nb.jpg,0\nc.jpg,\n", fields=["tags=labels:classes"])
    found = fastpipe.open(three / "packed").with_fields(["key", "tags"])  # type: ignore[arg-type]
    rows = {sample["key"]: sample["tags"].tolist() for sample in found}
    assert rows == {"a.jpg": [0, 1, 0, 1], "b.jpg": [1, 0, 0, 0], "c.jpg": [0, 0, 0, 0]}


def test_the_separator_that_is_given(three: Path) -> None:
    text = "path,tags\na.jpg,black cat/dog\nb.jpg,dog\nc.jpg,black cat\n"
    summary = pack_text(three, "a.csv", text, fields=["tags=tags:classes"], separator="/")
    assert tags(three, "tags")["a.jpg"] == {"black cat", "dog"}
    assert assumed(summary) == []
    with pytest.raises(PackError, match="--separator: no field of classes has texts; --field NAME=COLUMN:classes"):
        pack_text(three, "a.csv", text, separator="/", overwrite=True)
    with pytest.raises(ConfigError, match="--separator: expected the text between classes"):
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
        summary = pack_text(three, "a.csv", CELEBA, fields=[f"tags={asked}:classes"], overwrite=True)
        assert tags(three, "tags") == expected
        assert assumed(summary) == []
        assert fastpipe.open(three / "packed").fields["tags"].names == ("Bald", "Smiling", "Young")


def test_a_pattern_takes_columns_of_flags_only(three: Path) -> None:
    text = "path,label,red,blue,note\na.jpg,x,1,0,n\nb.jpg,y,0,1.0,n\nc.jpg,x,true,False,n\n"
    pack_text(three, "a.csv", text, fields=["colors=*:classes", "note"])
    assert tags(three, "colors") == {"a.jpg": {"red"}, "b.jpg": {"blue"}, "c.jpg": {"red"}}
    assert labels(three) == {"a.jpg": "x", "b.jpg": "y", "c.jpg": "x"}
    with pytest.raises(PackError, match="expected columns of 0 and 1, or -1 and 1, a column a class; note has others"):
        pack_text(three, "a.csv", text, fields=["colors=red,note:classes"])
    with pytest.raises(PackError, match=r"--field colors=red,green:classes: .* has no such column"):
        pack_text(three, "a.csv", text, fields=["colors=red,green:classes"])


@becomes("CelebA's list_attr_celeba.txt: a count, then names, then rows", "read", "--field 'attributes=*:classes'")
def test_attributes_of_celeba(three: Path) -> None:
    text = "2\nBald Smiling \na.jpg -1  1\nb.jpg  1 -1\n"
    pack_text(three, "list_attr_celeba.txt", text, fields=["attributes=*:classes"])
    assert tags(three, "attributes") == {"a.jpg": {"Smiling"}, "b.jpg": {"Bald"}}
