"""Tables with lines before the header, and lists without a header."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, pack_text, photos, values


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return photos(tmp_path, "a.jpg", "b.jpg")


CAT_DOG = {"a.jpg": "cat", "b.jpg": "dog"}


@becomes(
    "empty lines, a number of rows, comments with `#` or Excel's `sep=;` before the header of a CSV file",
    "passed over; `sep=` says what stands between the columns",
)
@pytest.mark.parametrize(
    "text",
    [
        "\n\npath,label\na.jpg,cat\nb.jpg,dog\n",
        "2\npath,label\na.jpg,cat\nb.jpg,dog\n",
        "# of my phone, 2020\n# all mine\npath;label\na.jpg;cat\nb.jpg;dog\n",
        "sep=;\npath;label\na.jpg;cat\nb.jpg;dog\n",
        "sep=:\r\npath:label\r\na.jpg:cat\r\nb.jpg:dog\r\n",
        "sep=,\na.jpg,cat\nb.jpg,dog\n",
    ],
)
def test_lines_before_the_header(two: Path, text: str) -> None:
    pack_text(two, "a.csv", text)
    assert labels(two) == CAT_DOG


def test_a_header_that_begins_with_a_hash_is_no_comment(two: Path) -> None:
    pack_text(two, "a.csv", "#filename,label\na.jpg,cat\nb.jpg,dog\n")
    assert labels(two) == CAT_DOG


@becomes(
    "a list `path label` below a line with the number of rows, or below an empty line",
    "all rows are read, the first one too",
)
@pytest.mark.parametrize("before", ["2\n", "\n", "\n2\n"])
def test_a_number_of_rows_above_a_list(two: Path, before: str) -> None:
    pack_text(two, "a.txt", f"{before}a.jpg 1\nb.jpg 0\n")
    assert labels(two) == {"a.jpg": "1", "b.jpg": "0"}


def test_ids_that_are_numbers_are_no_number_of_rows(tmp_path: Path) -> None:
    photos(tmp_path, "7.jpg", "8.jpg")
    pack_text(tmp_path, "a.csv", "image_id\n7\n8\n")
    assert labels(tmp_path) == {"7.jpg": None, "8.jpg": None}


@becomes(
    "CelebA's list_attr_celeba.txt below an empty line, or such a list without its number of rows",
    "a column for each name, in their order",
)
@pytest.mark.parametrize("before", ["\n2\n", "2\n", "", "\n"])
def test_a_header_without_a_name_for_the_paths(two: Path, before: str) -> None:
    pack_text(two, "a.txt", f"{before}Bald Smiling\na.jpg -1  1\nb.jpg  1 -1\n")
    assert values(two, "bald", "smiling") == {"a.jpg": [-1, 1], "b.jpg": [1, -1]}


@becomes(
    "SKU110K: image_name,x1,y1,x2,y2,class,image_width,image_height without a header row",
    "one sample an image, with boxes; that there is no header row is said",
)
def test_rows_of_sku110k(two: Path) -> None:
    rows = "a.jpg,1,2,10,12,object,40,30\na.jpg,3,3,8,8,object,40,30\nb.jpg,0,0,4,4,object,40,30\n"
    summary = pack_text(two, "a.csv", rows)
    assert values(two, "boxes") == {
        "a.jpg": [[[1, 2, 10, 12], [3, 3, 8, 8]], [0, 0]],
        "b.jpg": [[[0, 0, 4, 4]], [0]],
    }
    assert "are read as path, x1, y1, x2, y2, class, image_width" in assumed(summary)[0]


@becomes(
    "makesense.ai's CSV: class, x, y, width, height, image, width, height without a header row",
    "one sample an image, with boxes; that there is no header row is said",
)
def test_rows_of_makesense(two: Path) -> None:
    rows = "cat,1,2,10,12,a.jpg,40,30\ndog,3,3,8,8,a.jpg,40,30\ncat,0,0,40,30,b.jpg,40,30\n"
    summary = pack_text(two, "a.csv", rows)
    assert values(two, "boxes") == {
        "a.jpg": [[[1, 2, 11, 14], [3, 3, 11, 11]], [0, 1]],
        "b.jpg": [[[0, 0, 40, 30]], [0]],
    }
    assert "are read as class, x, y, w, h, path" in assumed(summary)[0]


@pytest.mark.parametrize("size", ["9,30", "40,9", "40,x"])
def test_eight_columns_that_are_no_box_of_makesense(two: Path, size: str) -> None:
    pack_text(two, "a.csv", f"cat,1,2,10,12,a.jpg,{size}\ncat,1,2,10,12,b.jpg,{size}\n")
    assert values(two, "column_2") == {"a.jpg": 1, "b.jpg": 1}


def test_eight_columns_that_are_no_box(two: Path) -> None:
    pack_text(two, "a.csv", "a.jpg,9,2,1,12,x,40,30\nb.jpg,9,2,1,12,y,40,30\n")
    assert values(two, "column_2") == {"a.jpg": 9, "b.jpg": 9}


@becomes(
    "Flickr8k.token.txt: `a.jpg#0` and a caption",
    "a field with all captions of each image, in the order of their numbers",
)
def test_numbers_of_captions(two: Path) -> None:
    lines = ["a.jpg#1\tred", 'a.jpg#0\t"A" red photo , #2', "b.jpg#0\tgreen", "b.jpg#1\ta b", "c"]
    pack_text(two, "a.txt", "\n".join(lines))
    assert values(two, "caption") == {
        "a.jpg": ['"A" red photo , #2', "red"],
        "b.jpg": ["green", "a b"],
    }
    assert "a.txt/000005" in (two / "packed/rejected.jsonl").read_text()
