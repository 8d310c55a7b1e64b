"""Cells of tables that hold something else than they seem to."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, pack_text, photos, values

from fastpipe.errors import PackError

NAMES = [f"{number}.jpg" for number in range(12)]


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return photos(tmp_path, "a.jpg", "b.jpg")


@pytest.fixture
def twelve(tmp_path: Path) -> Path:
    return photos(tmp_path, *NAMES)


CAT_DOG = {"a.jpg": "cat", "b.jpg": "dog"}


@becomes(
    "CSV with spaces around names and separators, or with a separator at the end of each row",
    "read without them",
)
@pytest.mark.parametrize(
    "text",
    ["path , label \na.jpg , cat\nb.jpg , dog \n", "path,label\na.jpg,cat,\nb.jpg,dog,,\n"],
)
def test_spaces_and_separators_at_the_end(two: Path, text: str) -> None:
    pack_text(two, "a.csv", text)
    assert labels(two) == CAT_DOG


def test_a_value_too_many_is_not_lost(two: Path) -> None:
    ((_, reason),) = pack_text(two, "a.csv", "path,label\na.jpg,cat,7\nb.jpg,dog\n").tally.rejected
    assert "expected 2 columns, got 3" in reason


@becomes("labels `nan`, `None`, `N/A`", "a class of this name; that it is so is said")
@pytest.mark.parametrize("missing", ["nan", "None", "N/A", "NULL"])
def test_texts_of_missing_labels(two: Path, missing: str) -> None:
    (only,) = assumed(pack_text(two, "a.csv", f"path,label\na.jpg,cat\nb.jpg,{missing}\n"))
    assert only == (
        f"labels: {missing!r} is a class; if it stands for a missing label, leave these cells empty"
    )


@becomes(
    "a column with the paths of masks, or of other images, beside the paths of the images",
    "their paths are stored as text; that it is so is said",
    "--field mask=mask:mask",
)
@pytest.mark.parametrize(
    ("column", "option"),
    [("mask", "--field mask=mask:mask"), ("depth", "--field depth=depth:image")],
)
def test_paths_of_masks(two: Path, column: str, option: str) -> None:
    Image.new("L", (40, 30), 7).save(two / "m.png")
    text = f"image,{column}\na.jpg,m.png\nb.jpg,m.png\n"
    assert f"column {column!r} of paths is stored as text ({option})" in assumed(
        pack_text(two, "a.csv", text)
    )
    summary = pack_text(
        two,
        "a.csv",
        text,
        fields=[option.removeprefix("--field ")],
        unlisted="drop",
        overwrite=True,
    )
    assert assumed(summary) == []


@becomes(
    "words to read in the column `label` (OCR, captchas): another one in each row",
    "a class each; that they are not stored as texts is said",
    "--field text=label",
)
def test_words_as_labels(twelve: Path) -> None:
    words = [f"w{number}x" for number in range(12)]
    text = "path,label\n" + "".join(
        f"{name},{word}\n" for name, word in zip(NAMES, words, strict=True)
    )
    (only,) = assumed(pack_text(twelve, "a.csv", text))
    assert only.endswith("a class of its own, and is not stored as text (--field text=label)")
    pack_text(twelve, "a.csv", text, fields=["text=label"], overwrite=True)
    assert values(twelve, "text") == dict(zip(NAMES, words, strict=True))


@becomes(
    "columns whose names say nothing, one with whole numbers from 0 on that come again",
    "it is named as the likely label",
    "--label-column emo",
)
def test_class_numbers_of_another_name(twelve: Path) -> None:
    rows = "".join(
        f"{name},{number % 4},{number * 7},{number % 3 + 5}\n" for number, name in enumerate(NAMES)
    )
    (only,) = assumed(pack_text(twelve, "a.csv", f"path,emo,age,hour\n{rows}"))
    assert only == "labels: none, though column 'emo' looks like one (--label-column emo)"


@becomes("a table of image_url", "refused, with what to do", "--image-root URL")
def test_urls_without_files(two: Path) -> None:
    text = "image_url,label\nhttps://x.org/a.jpg,cat\nhttps://x.org/b.jpg,dog\n"
    with pytest.raises(
        PackError, match=r"lists URLs, such as https://x\.org/.\.jpg, and its images"
    ):
        pack_text(two, "a.csv", text)


def test_columns_that_may_have_the_images(two: Path) -> None:
    text = "anchor,positive,label\na.jpg,b.jpg,1\nb.jpg,a.jpg,0\n"
    with pytest.raises(PackError, match=r"names it \(--image-column anchor or positive\)"):
        pack_text(two, "a.csv", text)
