"""CSV and JSONL: columns that are images, labels and fields, and what is wrong with them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.datasets.packed import damage
from support.programs.cli_run import failed, fp, succeeded
from support.sources.listed import by_path, flat_photos, paths_of, shard_bytes, write_lines
from support.sources.pack_sources import jpeg_bytes, pillow

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, PackError
from fastpipe.packing.shard.journal import Journal
from fastpipe.sources.kinds import list_sources
from fastpipe.tools.verify.verification import verify

Edit = Callable[[Path], object]
LABELS = ["ant", "bee", "cow"]


def write_text(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def kinds(packed: Path) -> dict[str, str]:
    return {name: field.kind for name, field in PackedIndex(packed).fields.items()}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return flat_photos(tmp_path / "photos")


ROWS: list[dict[str, Any]] = [
    {
        "path": f"{number:03d}.jpg",
        "label": LABELS[number % 3],
        "caption": f"ü {number}",
        "Year": 1990 + number,
        "score": [0.5 * number, 1.0],
        "width_m": number / 4,
        "tags": ["a"] * number,
        "sometimes": number if number % 2 else None,
        "objects": {"bbox": [[1, 2.5, 3, 4]] * number, "categories": [number] * number},
        "flag": number % 2 == 0,
        "id": number,
    }
    for number in range(12)
]
FOUND = {
    "caption": "text",
    "year": "int",
    "score": "floats",
    "width_m": "floats",
    "tags": "json",
    "sometimes": "json",
    "objects": "boxes",
    "flag": "json",
    "id_": "int",
}


def as_csv(path: Path) -> Path:
    lines = [",".join(ROWS[0])]
    for row in ROWS:
        cells = [value if isinstance(value, str) else json.dumps(value) for value in row.values()]
        cells = ["" if cell == "null" else cell for cell in cells]
        lines.append(",".join('"' + cell.replace('"', '""') + '"' for cell in cells))
    return write_text(path, "\ufeff" + "\r\n".join(lines))


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_columns_become_fields_of_the_kind_of_their_values(
    photos: Path, tmp_path: Path, form: str
) -> None:
    source = as_csv(photos / "a.csv") if form == "csv" else write_lines(photos / "a.jsonl", *ROWS)
    summary = fastpipe.pack(source, tmp_path / "packed")
    # A CSV file has texts: blanks among them, true and false are no numbers.
    assert kinds(tmp_path / "packed") == {
        **FOUND,
        **({"sometimes": "text", "flag": "text"} if form == "csv" else {}),
    }
    assert summary.info["classes"] == LABELS
    names = ("label", "caption", "year", "score", "width_m", "tags", "objects", "id_")
    for path, values in by_path(tmp_path / "packed", *names).items():
        label, caption, year, score, width, tags, boxes, labels, own = values
        row = ROWS[int(path[:3])]
        assert (LABELS[label], caption, int(year), tags) == (
            row["label"],
            row["caption"],
            row["Year"],
            row["tags"],
        )
        assert (score.tolist(), width.tolist(), int(own)) == (
            row["score"],
            [row["width_m"]],
            row["id"],
        )
        assert boxes.tolist() == [[1, 2.5, 4, 6.5]] * row["id"]
        assert labels.tolist() == row["objects"]["categories"]
    assert verify(tmp_path / "packed").sound


def test_a_key_that_a_record_lacks_and_nan_are_missing_values(photos: Path, tmp_path: Path) -> None:
    there = {"n": 7, "text": "a", "boxes": {"bbox": [[1, 2, 3, 4]]}, "many": [0.5, 1], "score": 0.5}
    values = [
        {},
        dict.fromkeys(there, None),
        {**there, "score": float("nan")},
        {**there, "score": [1, float("nan")]},
    ]
    rows = [{"path": f"{number:03d}.jpg", **value} for number, value in enumerate(values)]
    summary = fastpipe.pack(write_lines(photos / "a.jsonl", *rows), tmp_path / "packed")
    assert not summary.tally.rejected
    expected = {"n": "json", "text": "text", "boxes": "boxes", "many": "json", "score": "json"}
    assert kinds(tmp_path / "packed") == expected
    assert by_path(tmp_path / "packed", "n", "text", "score") == {
        "000.jpg": (None, "", None),
        "001.jpg": (None, "", None),
        "002.jpg": (7, "a", None),
        "003.jpg": (7, "a", [1, None]),
    }


def test_spaces_around_values_of_csv_do_not_count(photos: Path, tmp_path: Path) -> None:
    text = 'path, label, n , caption\n000.jpg, 7, 1 ," a, b "\n001.jpg, 3 ,\t2, "c"\n002.jpg, 10, 3, d \n'
    summary = fastpipe.pack(write_text(photos / "a.csv", text), tmp_path / "packed")
    assert summary.info["classes"] == [str(number) for number in range(11)]
    assert kinds(tmp_path / "packed") == {"n": "int", "caption": "text"}
    found = by_path(tmp_path / "packed", "label", "n", "caption")
    assert found == {"000.jpg": (7, 1, " a, b "), "001.jpg": (3, 2, "c"), "002.jpg": (10, 3, "d ")}
    names = write_text(photos / "b.csv", '"path", "label"\n000.jpg, cat \n001.jpg,cat\n')
    assert list_sources(names, 0).classes == ["cat"]


def test_only_the_fields_that_are_asked_for(photos: Path, tmp_path: Path) -> None:
    source = write_lines(photos / "a.jsonl", *ROWS)
    command = (
        "pack",
        source,
        tmp_path / "packed",
        "--field",
        "text=caption",
        "--field",
        "year=Year:json",
    )
    succeeded(*command, "--field", "classes=tags:classes", "--field", "class=label")
    assert kinds(tmp_path / "packed") == {
        "text": "text",
        "year": "json",
        "classes": "classes",
        "class": "text",
    }
    assert PackedIndex(tmp_path / "packed").classes == []  # label became a field
    assert "already packed" in succeeded(
        *command, "--field", "classes=tags:classes", "--field", "class=label"
    )
    assert "different dataset" in failed(1, *command)


# The labels of three rows -> the classes, and the rows' labels.
LABELS_OF_CSV: list[tuple[list[str], list[str], list[int]]] = [
    (["2", "0", "2"], ["0", "1", "2"], [2, 0, 2]),
    (["-1", "", "4"], ["0", "1", "2", "3", "4"], [-1, -1, 4]),
    (["b", "a", ""], ["a", "b"], [1, 0, -1]),
    (["10", "9", "010"], ["010", "10", "9"], [1, 2, 0]),  # a number has no leading zero
    (["", "", ""], [], [-1, -1, -1]),
    (["b", "-1", "a"], ["a", "b"], [1, -1, 0]),
    (["-1", "-1", ""], [], [-1, -1, -1]),
    (
        ["10.0", "2.0", ""],
        [str(number) for number in range(11)],
        [10, 2, -1],
    ),  # as pandas writes them
    (["2", "1.00", "-1.0"], ["0", "1", "2"], [2, 1, -1]),
    (["1.5", "1.0", "a"], ["1.0", "1.5", "a"], [1, 0, 2]),
    (["2", "   ", "1"], ["0", "1", "2"], [2, -1, 1]),
    (["7", "007", ""], ["007", "7"], [1, 0, -1]),
    (["cat", "   ", "dog"], ["cat", "dog"], [0, -1, 1]),
]
LABELS_OF_JSON: list[tuple[list[Any], list[str], list[int]]] = [
    (["7", "   ", "3"], ["3", "7"], [1, -1, 0]),
    (["cat", "   ", "dog"], ["cat", "dog"], [0, -1, 1]),
    (
        [2.0, None, -1.0],
        ["0", "1", "2"],
        [2, -1, -1],
    ),  # as pandas writes them if one of the column is missing
]


def test_labels(photos: Path) -> None:
    def assert_labels(source: Path, classes: list[str], numbers: list[int]) -> None:
        listing = list_sources(source, 0)
        assert listing.classes == classes
        assert all(source.problem is None for source in listing.sources)
        by_name = sorted(listing.sources, key=lambda source: source.path)
        assert [source.label for source in by_name] == numbers

    for labels, classes, numbers in LABELS_OF_CSV:
        lines = [f'{number:03d}.jpg,"{label}"\n' for number, label in enumerate(labels)]
        assert_labels(
            write_text(photos / "a.csv", "path,label\n" + "".join(lines)), classes, numbers
        )
    for values, classes, numbers in LABELS_OF_JSON:
        rows = [
            {"path": f"{number:03d}.jpg", "label": value} for number, value in enumerate(values)
        ]
        assert_labels(write_lines(photos / "a.jsonl", *rows), classes, numbers)


def test_columns_with_long_names_become_fields_of_different_names(
    photos: Path, tmp_path: Path
) -> None:
    columns = [f"{'c' * 70}{number}" for number in range(12)]
    write_lines(photos / "a.jsonl", {"path": "000.jpg", **dict.fromkeys(columns, 1)})
    fastpipe.pack(photos / "a.jsonl", tmp_path / "packed")
    assert len(kinds(tmp_path / "packed")) == 12


MANY_COLUMNS = "path," + ",".join(f"c{number}" for number in range(70)) + "\n" + "," * 70
UNCERTAIN: list[tuple[str, str, str]] = [
    (
        "a.csv",
        "path,label\na.jpg,cat\nb.jpg,7\n",
        r"are numbers \(a\.csv, line 3\) and names \(a\.csv, line 2\)",
    ),
    (
        "a.jsonl",
        '{"path": "000.jpg", "label": 1}\n{"path": "001.jpg", "label": "1"}\n',
        "labels are numbers and names",
    ),
    (
        "a.csv",
        "path,image\na,b\n",
        "several columns that may hold the images: image, path. --image-column picks one",
    ),
    (
        "a.csv",
        "picture,label\na,b\n",
        "such as path, file_name or image; got label, picture. --image-column",
    ),
    (
        "a.csv",
        "path,path\na,b\n",
        "expected the names of the columns, .* each once, .*; got 2, 'path' 2 times",
    ),
    ("a.csv", "", "got 0"),
    ("a.csv", "path\n", "holds no rows"),
    ("a.jsonl", "", "holds no rows"),
    (
        "a.csv",
        "path,label\na.jpg,7\nb.jpg,1.5\n",
        r"a\.csv, column label, line 3: 1\.5 has a fraction",
    ),
    (
        "a.csv",
        "path,label\na,7\nb,007\nc,a\n",
        r"are numbers \(a\.csv, line 2\) and names \(a\.csv, line \d\)",
    ),
    (
        "a.jsonl",
        '[{"path": "000.jpg"}]',
        r"holds no rows that can be read; the first: a\.jsonl/000001: expected an object",
    ),
    ("a.csv", MANY_COLUMNS, "70 columns besides image and label"),
]


def test_what_is_not_certain_is_an_error(photos: Path) -> None:
    for name, text, message in UNCERTAIN:
        with pytest.raises(PackError, match=message):
            list_sources(write_text(photos / name, text), 0)


def test_columns_that_are_not_there(photos: Path, tmp_path: Path) -> None:
    source = write_lines(photos / "a.jsonl", *ROWS)
    mistakes: list[tuple[dict[str, Any], str]] = [
        (
            {"image_column": "pic"},
            "--image-column pic: .* has no such column; expected one of Year, caption",
        ),
        ({"label_column": "class"}, "--label-column class: .* expected one of Year"),
        ({"fields": {"a": "b"}}, "--field a=b: .* expected one of Year"),
        ({"fields": {"a": "caption:bytes"}}, "rows that name their images hold no bytes"),
        ({"split": "train"}, "split: .*a.jsonl has no column of splits; leave it out"),
    ]
    for options, message in mistakes:
        with pytest.raises(PackError, match=message):
            fastpipe.pack(source, tmp_path / "packed", **options)
        assert not (tmp_path / "packed").exists()


def test_options_without_effect_are_errors(photos: Path, tmp_path: Path) -> None:
    folder = rf"it has no effect on a folder of images \({photos}\)"
    for option, value, message in (
        ("split", "train", f"{photos} has no splits; leave it out"),
        ("image_root", "/", f"{folder}; leave it out"),
        ("label_column", "x", f"{folder}: the names of class folders are the labels. Leave it out"),
    ):
        with pytest.raises(PackError, match=f"^{option}: {message}$"):
            fastpipe.pack(photos, tmp_path / "packed", **{option: value})


# Rows that hold no sample, the names under which they are listed, and why; they follow 12 sound rows.
REJECTED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"path": "gone.jpg"},
        "gone.jpg",
        "no such file in the image root; --image-root says where the images are (a.jsonl/",
    ),
    ({"path": ""}, "a.jsonl/000014", "column path: expected the path of an image, got none"),
    ({"label": "ant"}, "a.jsonl/000015", "column path: expected the path of an image, got none"),
    ({"path": [7]}, "a.jsonl/000016", "column path: expected the path of an image, got [7]"),
    ({"path": "a\0b"}, "a.jsonl/000017", "expected the path of an image"),
    ({"path": "\ud800"}, "a.jsonl/000018", "expected the path of an image"),
    ({"path": "x" * 5000}, "a.jsonl/000019", "expected the path of an image"),
    ({"path": "."}, ".", "not a regular file"),
    (
        {"path": "000.jpg", "label": [1]},
        "000.jpg#2",
        "label: expected a whole number or the name of a class, got [1]",
    ),
    (
        {"path": "000.jpg", "label": 0.5},
        "000.jpg#3",
        "label: expected a whole number or the name of a class, got 0.5",
    ),
    ({"path": "000.jpg", "caption": 7}, "000.jpg#4", "field caption: expected a text"),
    (
        {"path": "000.jpg", "objects": {"bbox": [[1, 2]]}},
        "000.jpg#5",
        "field objects: expected boxes of four numbers",
    ),
    (
        {"path": "000.jpg", "seg": "gone.png"},
        "000.jpg#6",
        "field seg: gone.png: no such file in the image root",
    ),
    ({"path": "000.jpg", "seg": 5}, "000.jpg#7", "field seg: expected the path of a file, got 5"),
]


def test_rows_that_cannot_be_are_listed(photos: Path, tmp_path: Path) -> None:
    sound = [
        {"path": f"{number:03d}.jpg", "label": "ant", "caption": "a", "objects": None}
        for number in range(12)
    ]
    source = write_lines(photos / "a.jsonl", *sound, *(row for row, _, _ in REJECTED))
    fields = {"caption": "caption:text", "objects": "objects:boxes", "seg": "seg:mask"}
    summary = fastpipe.pack(source, tmp_path / "packed", fields=fields)
    reasons = dict(summary.tally.rejected)
    assert sorted(reasons) == sorted(name for _, name, _ in REJECTED)
    for _, name, reason in REJECTED:
        assert reason in reasons[name]
    assert summary.info["samples"] == 12


def test_an_image_in_several_rows_is_several_samples(photos: Path, tmp_path: Path) -> None:
    rows = [
        {"path": path, "caption": text}
        for path, text in [("000.jpg", "a"), ("000.jpg", "b"), ("./000.jpg", "c")]
    ]
    shutil.copy(photos / "001.jpg", photos / "000.jpg#2")
    rows.append({"path": "000.jpg#2", "caption": "d"})
    fastpipe.pack(write_lines(photos / "a.jsonl", *rows), tmp_path / "packed")
    found = by_path(tmp_path / "packed", "caption", "image")
    texts = {path: text for path, (text, _) in found.items()}
    assert texts == {"000.jpg": "a", "000.jpg#2": "b", "000.jpg#3": "c", "000.jpg#2#2": "d"}
    assert found["000.jpg#2"][1].shape[-1] == 40
    assert found["000.jpg#2#2"][1].shape[-1] == 41


def test_paths_are_relative_to_the_image_root(photos: Path, tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    rows = [{"path": path} for path in ("000.jpg", ".//001.jpg", str(photos / "002.jpg"))]
    source = write_lines(lists / "a.jsonl", *rows)
    fastpipe.pack(source, tmp_path / "packed", image_root=photos)
    assert sorted(paths_of(tmp_path / "packed")) == ["000.jpg", "001.jpg", "002.jpg"]
    rows = [{"path": path} for path in ("../photos/000.jpg", str(photos / "002.jpg"))]
    fastpipe.pack(write_lines(lists / "b.jsonl", *rows), tmp_path / "other")
    assert sorted(paths_of(tmp_path / "other")) == sorted(
        ["../photos/000.jpg", str(photos / "002.jpg")]
    )
    with pytest.raises(PackError, match="--image-root says where the images are"):
        fastpipe.pack(source, tmp_path / "third", image_root=tmp_path / "nowhere")


def test_files_of_masks_and_second_images(photos: Path, tmp_path: Path) -> None:
    (photos / "more").mkdir()
    masks = [
        np.random.default_rng(n).integers(0, 60_000, (30, 40 + n)).astype(np.uint16)
        for n in range(12)
    ]
    for number, mask in enumerate(masks):
        Image.fromarray(mask).save(photos / f"more/{number:03d}.png")
        (photos / f"more/{number:03d}.jpg").write_bytes(
            jpeg_bytes((40 + number, 30), seed=100 + number)
        )
    rows = [
        {
            "path": f"{n:03d}.jpg",
            "seg": f"more/{n:03d}.png" if n else None,
            "next": f"more/{n:03d}.jpg",
        }
        for n in range(12)
    ]
    source = write_lines(photos / "a.jsonl", *rows)
    fastpipe.pack(source, tmp_path / "packed", fields=["seg=seg:mask", "next=next:image"])
    masks[0][:] = 0  # that sample has none
    for path, (mask, second) in by_path(tmp_path / "packed", "seg", "next").items():
        np.testing.assert_array_equal(np.asarray(mask), masks[int(path[:3])])
        expected = pillow((photos / "more" / path).read_bytes())
        np.testing.assert_array_equal(np.asarray(second.permute(1, 2, 0)), expected)
    assert fastpipe.pack(
        source, tmp_path / "packed", fields=["seg=seg:mask", "next=next:image"]
    ).already_packed


def write_masked(folder: Path, scale: int = 1) -> Path:
    """A manifest of 12 photos with captions and masks."""
    for number in range(12):
        size = (scale * (40 + number), scale * 30)
        (folder / f"{number:03d}.jpg").write_bytes(jpeg_bytes(size, quality=95, seed=number))
        Image.new("L", size, number).save(folder / f"{number:03d}.png")
    rows = [
        {"path": f"{n:03d}.jpg", "seg": f"{n:03d}.png", "caption": f"text {n}"} for n in range(12)
    ]
    return write_lines(folder / "a.jsonl", *rows)


@pytest.fixture
def masked(photos: Path) -> Path:
    return write_masked(photos)


FIELDS = ["seg=seg:mask", "caption"]


def other_caption(source: Path) -> None:
    source.write_text(source.read_text().replace("text 3", "TEXT 3"))


def other_mask(source: Path, value: int = 99) -> None:
    path = source.parent / "003.png"
    with Image.open(path) as mask:
        size = mask.size
    Image.new("L", size, value).save(path)


def other_mask_of_the_same_time(source: Path) -> None:
    before = (source.parent / "003.png").stat()
    other_mask(source, 98)
    os.utime(source.parent / "003.png", ns=(before.st_atime_ns, before.st_mtime_ns))


def one_row_less(source: Path) -> None:
    source.write_text("".join(source.read_text().splitlines(keepends=True)[:-1]))


CHANGES: list[Edit] = [other_caption, other_mask, other_mask_of_the_same_time, one_row_less]


def test_changed_rows_and_masks_are_seen_and_others_are_the_same_source(
    masked: Path, tmp_path: Path
) -> None:
    fastpipe.pack(masked, tmp_path / "packed", fields=FIELDS)
    os.utime(masked)
    os.chmod(masked.parent / "003.png", 0o600)
    assert fastpipe.pack(masked, tmp_path / "packed", fields=FIELDS).already_packed
    masked.write_text("".join(reversed(masked.read_text().splitlines(keepends=True))))
    assert fastpipe.pack(masked, tmp_path / "packed", fields=FIELDS).already_packed
    for edit in CHANGES:
        edit(masked)
        with pytest.raises(PackError, match="the source files have changed"):
            fastpipe.pack(masked, tmp_path / "packed", fields=FIELDS)
        fastpipe.pack(masked, tmp_path / "packed", fields=FIELDS, overwrite=True)
        assert fastpipe.pack(masked, tmp_path / "packed", fields=FIELDS).already_packed


@pytest.mark.parametrize("edit", [other_caption, other_mask, one_row_less])
def test_an_interrupted_pack_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photos: Path, edit: Edit
) -> None:
    """It keeps the shards that have not changed, and gives the bytes of an undisturbed pack."""
    masked = write_masked(photos, scale=8)  # large photos, for several shards
    options: dict[str, Any] = {"fields": FIELDS, "shard_size": 100_000, "workers": 1}
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "clear", lambda _: None)
        patched.setattr("fastpipe.packing.job.summary.publish_dataset", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fastpipe.pack(masked, tmp_path / "packed", **options)
    finished = len(list((tmp_path / "packed" / ".pack").glob("*.done")))
    assert finished > 2
    edit(masked)
    summary = fastpipe.pack(masked, tmp_path / "packed", **options)
    # One row less, of so few, changes the size of shards; else only the shard of the row that changed is made again.
    assert edit is one_row_less or summary.resumed == finished - 1
    fastpipe.pack(masked, tmp_path / "whole", **options)
    assert shard_bytes(tmp_path / "packed") == shard_bytes(tmp_path / "whole")


def test_a_mask_that_changes_while_it_is_packed(
    masked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastpipe.packing.job import threads

    def then(*arguments: Any, **options: Any) -> object:
        listing = list_sources(*arguments, **options)
        other_mask(masked)
        return listing

    with monkeypatch.context() as patched:
        patched.setattr(threads, "list_sources", then)
        with pytest.raises(PackError, match=r"003\.png has changed while packing"):
            fastpipe.pack(masked, tmp_path / "packed", fields=FIELDS)
    fastpipe.pack(masked, tmp_path / "packed", fields=FIELDS)
    assert verify(tmp_path / "packed").sound


def test_repair_takes_the_manifest_and_the_image_root(masked: Path, tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    source = shutil.move(masked, lists / "a.jsonl")
    command = (
        "pack",
        source,
        tmp_path / "packed",
        "--image-root",
        masked.parent,
        "--field",
        "seg=seg:mask",
    )
    succeeded(*command, "--field", "caption", "--exif", "apply", "--max-size", "35")
    before = shard_bytes(tmp_path / "packed")
    damage(tmp_path / "packed", 5)
    assert (
        f"--image-root {masked.parent}"
        in fp("verify", tmp_path / "packed", "--repair", source).stderr
    )
    assert "--image-root needs --repair" in failed(
        2, "verify", tmp_path / "packed", "--image-root", lists
    )
    succeeded("verify", tmp_path / "packed", "--repair", source, "--image-root", masked.parent)
    assert shard_bytes(tmp_path / "packed") == before


def splits(root: Path) -> Path:
    flat_photos(root / "images")
    for name in ("train", "val", "my-test_v2"):
        write_lines(
            root / f"{name}.jsonl",
            {"path": "images/000.jpg"},
            {"path": f"images/{len(name):03d}.jpg"},
        )
    return root


def test_a_folder_of_manifests_needs_a_choice(tmp_path: Path) -> None:
    root = splits(tmp_path / "data")
    mistakes: list[tuple[dict[str, str], str]] = [
        ({}, r"may be several kinds of source: jsonl, imagefolder\. --format picks one"),
        ({"format": "jsonl"}, r"my-test_v2\.jsonl, train\.jsonl, val\.jsonl; pass one of them"),
        ({"split": "dev"}, r"^split: .* has the splits my.*, got .dev.; pass one of them"),
        ({"format": "jsonl", "split": ""}, "^split: expected the name of a split, got ''"),
        ({"format": "csv"}, "holds no file of the format csv"),
    ]
    for options, words in mistakes:
        with pytest.raises(PackError, match=words):
            fastpipe.pack(root, tmp_path / "packed", **options)
    fastpipe.pack(root, tmp_path / "packed", split="test")
    assert sorted(paths_of(tmp_path / "packed")) == ["images/000.jpg", "images/010.jpg"]
    fastpipe.pack(root, tmp_path / "train", split="train")
    assert sorted(paths_of(tmp_path / "train")) == ["images/000.jpg", "images/005.jpg"]
    fastpipe.pack(root, tmp_path / "folders", format="imagefolder")
    assert PackedIndex(tmp_path / "folders").classes == ["images"]


def test_a_table_without_images_does_not_count(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "photos2").mkdir()
    shutil.copytree(photos, tmp_path / "photos2/bee")
    shutil.move(photos, tmp_path / "photos2/ant")
    write_text(tmp_path / "photos2/scores.csv", "name,score\na,1\n")
    summary = fastpipe.pack(tmp_path / "photos2", tmp_path / "packed")
    assert summary.stray == ["scores.csv"]
    assert summary.info["classes"] == ["ant", "bee"]


def test_unknown_kinds_and_formats(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^format: "):
        fastpipe.pack(photos, tmp_path / "packed", format="cvs")
    with pytest.raises(ConfigError, match="--field a=c: expected each name of a field once"):
        fastpipe.pack(photos, tmp_path / "packed", fields=["a=b", "a=c"])
    with pytest.raises(PackError, match="expected the folders images and labels"):
        fastpipe.pack(photos, tmp_path / "packed", format="yolo")


def test_annotations_of_coco_alone_are_named(tmp_path: Path) -> None:
    rows = [{"id": 1, "image_id": 7, "category_id": 2, "bbox": [0, 0, 4, 4], "iscrowd": 0}]
    (tmp_path / "annotations.json").write_text(json.dumps(rows))
    with pytest.raises(PackError, match=r"a list of COCO's annotations .* lacks the images"):
        fastpipe.pack(tmp_path / "annotations.json", tmp_path / "packed")


def test_other_rows_with_the_columns_of_annotations_are_packed(tmp_path: Path) -> None:
    """Contests have such tables, whose ids are the names of files without their endings."""
    rows = []
    for number in range(3):
        (tmp_path / f"b6{number}d.jpg").write_bytes(jpeg_bytes((40, 30), seed=number))
        rows.append({"image_id": f"b6{number}d", "category_id": 2, "bbox": [0, 0, 4, 4]})
    write_lines(tmp_path / "train.jsonl", *rows)
    assert fastpipe.pack(tmp_path / "train.jsonl", tmp_path / "packed").info["samples"] == 3


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("n=id:integer", "--field n=id:integer: 'integer' is no kind of a field; .*mean 'int'"),
        ("n=id:flots", "expected one of int, floats, .*did you mean 'floats'"),
        ("n=number:int", "has no such column; expected one of"),
        ("n=number:integer", "has no such column; expected one of"),
    ],
)
def test_a_kind_that_there_is_not(photos: Path, tmp_path: Path, field: str, words: str) -> None:
    table = write_text(photos / "list.jsonl", "".join(f"{json.dumps(row)}\n" for row in ROWS))
    with pytest.raises(PackError, match=words):
        fastpipe.pack(table, tmp_path / "packed", fields=[field])


@pytest.mark.parametrize("column", ["split", "Partition"])
def test_splits_of_any_name(photos: Path, tmp_path: Path, column: str) -> None:
    lines = [f"path,label,{column}"]
    for number in range(12):
        lines.append(f"{number:03d}.jpg,{LABELS[number % 3]},{'AAB'[number % 3]}")
    table = write_text(photos / "list.csv", "\n".join(lines) + "\n")
    fastpipe.pack(table, tmp_path / "packed", split="A")
    data = fastpipe.open(tmp_path / "packed")
    assert len(data) == 8
    assert dict(data.fields) == {}
    with pytest.raises(PackError, match=rf"its column '{column}' has A, B, and not 'C'"):
        fastpipe.pack(table, tmp_path / "other", split="C")
    write_text(table, "path,label\n000.jpg,ant\n001.jpg,bee\n")
    with pytest.raises(PackError, match="has no column of splits; leave it out"):
        fastpipe.pack(table, tmp_path / "other", split="A")
