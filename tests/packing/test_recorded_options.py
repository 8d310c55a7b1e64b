"""The options that decide labels and boxes: whether a dataset is up to date, and what `fastpipe add` takes over."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.sources.pack_sources import write_folder
from support.sources.turned import photos

import fastpipe
from fastpipe.dataset.format.description import SELF_CHECKSUM, with_self_checksum
from fastpipe.errors import PackError
from fastpipe.packing.job.other_options import describe_other_options
from fastpipe.packing.shard.options import PackOptions


def yolo(root: Path, *orientations: int, label: int = 0, names: tuple[str, ...] = ("cat",)) -> Path:
    """Turned photos, each with a box of the photo as it is shown."""
    photos(root / "images")
    for file in (root / "images").iterdir():
        if int(file.stem) not in orientations:
            file.unlink()
    (root / "labels").mkdir()
    (root / "classes.txt").write_text("\n".join(names) + "\n")
    for orientation in orientations:
        (root / "labels" / f"{orientation}.txt").write_text(f"{label} 0.25 0.125 0.5 0.25\n")
    return root


def boxes(packed: Path) -> dict[str, Any]:
    """Key -> boxes and their labels."""
    data = fastpipe.open(packed).with_fields(("key", "boxes"))  # type: ignore[attr-defined]
    return {
        sample["key"]: (sample["boxes"].tolist(), sample["boxes_labels"].tolist())
        for sample in data
    }


def as_older_versions_wrote(packed: Path) -> None:
    """Takes out of dataset.json what was not recorded before boxes were of the image as shown."""
    file = packed / "dataset.json"
    stat, info = file.stat(), json.loads(file.read_text())
    del info["packs"][0]["options"]["coordinates"]
    file.write_bytes(
        with_self_checksum({name: value for name, value in info.items() if name != SELF_CHECKSUM})[
            1
        ]
    )
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_boxes_of_an_older_version_are_not_up_to_date(tmp_path: Path) -> None:
    source, packed = yolo(tmp_path / "yolo", 1, 6), tmp_path / "packed"
    fastpipe.pack(source, packed)
    assert fastpipe.pack(source, packed).already_packed
    as_older_versions_wrote(packed)
    with pytest.raises(
        PackError,
        match="with boxes of the images as stored; now it would be with boxes of the images as shown",
    ):
        fastpipe.pack(source, packed)
    (tmp_path / "more").mkdir()
    grown = fastpipe.add(yolo(tmp_path / "more" / "yolo", 3), packed)
    assert "boxes: an older version packed 1 images that EXIF turns" in str(grown.assumed[0])


def test_images_that_nothing_turns_are_up_to_date(tmp_path: Path) -> None:
    source, packed = yolo(tmp_path / "yolo", 1), tmp_path / "packed"
    fastpipe.pack(source, packed)
    as_older_versions_wrote(packed)
    assert fastpipe.pack(source, packed).already_packed


def test_added_boxes_are_read_as_the_others(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    fastpipe.pack(yolo(tmp_path / "yolo", 6, label=1), packed, coordinates="stored", first_label=1)
    before = boxes(packed)
    assert before["6.jpg"][1] == [0]
    grown = fastpipe.add(yolo(tmp_path / "more", 8, label=1), packed)
    assert [str(each) for each in grown.assumed] == [
        "--coordinates stored: as the dataset was packed (--coordinates VALUE)",
        "--first-label 1: as the dataset was packed (--first-label VALUE)",
    ]
    # Both photos are stored as 40 x 20, and the shares of their boxes are equal.
    assert boxes(packed) == {"6.jpg": ([[0, 0, 20, 5]], [0]), "8.jpg": ([[0, 0, 20, 5]], [0])}
    info = fastpipe.open(packed).index.info
    assert info["packs"][1]["options"]["source"] == {"coordinates": "stored", "first_label": 1}


def test_an_option_that_differs_from_the_dataset_is_told(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    fastpipe.pack(yolo(tmp_path / "yolo", 6), packed, coordinates="stored")
    grown = fastpipe.add(yolo(tmp_path / "more", 8), packed, coordinates="shown")
    assert "--coordinates shown: as given; the dataset was packed with stored" in map(
        str, grown.assumed
    )


def test_a_source_without_boxes_takes_over_what_it_has(tmp_path: Path) -> None:
    """A folder of classes has neither option."""
    packed = tmp_path / "packed"
    table = tmp_path / "a.csv"
    photos(tmp_path / "photos")
    table.write_text("path,name\nphotos/1.jpg,cat\nphotos/2.jpg,dog\n")
    fastpipe.pack(table, packed, label_column="name", fields=[])
    (tmp_path / "dog").mkdir()
    photos(tmp_path / "more/dog")
    grown = fastpipe.add(tmp_path / "more", packed)
    assert grown.added == 8
    only_class, copies = grown.assumed
    assert "all images are of the class dog, the only folder" in only_class.text
    assert copies.text.startswith("copies: 2 images that are added now are in the dataset already")
    table.write_text("path,name\nphotos/3.jpg,dog\n")
    grown = fastpipe.add(table, packed, fields=[], unlisted="drop")
    inherited, copies = map(str, grown.assumed)
    assert inherited == "--label-column name: as the dataset was packed (--label-column VALUE)"
    assert copies.startswith("copies: 1 image that is added now is in the dataset already")
    data = fastpipe.open(packed)
    assert data.classes[data["label"][list(data["key"]).index("photos/3.jpg")]] == "dog"


def test_another_split_is_named_as_the_user_writes_it(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write_folder(tmp_path / "photos" / split)
    fastpipe.pack(tmp_path / "photos", tmp_path / "packed", split="train")
    words = (
        r"holds a different dataset: it was packed with --split train; now it would be with --split val "
        r"\(split='val'\)\. Choose another folder"
    )
    with pytest.raises(PackError, match=words):
        fastpipe.pack(tmp_path / "photos", tmp_path / "packed", split="val")


def table_with_scores(folder: Path) -> Path:
    photos(folder / "photos")
    rows = [{"path": f"photos/{number}.jpg", "score": 0.5} for number in (1, 2)]
    (folder / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "table.jsonl"


def test_other_fields_are_named_as_the_user_writes_them(tmp_path: Path) -> None:
    table = table_with_scores(tmp_path)

    def refused(packed: str, *fields: str) -> str:
        with pytest.raises(PackError) as error:
            fastpipe.pack(table, tmp_path / packed, fields=list(fields) or None, unlisted="drop")
        return str(error.value)

    fastpipe.pack(table, tmp_path / "chosen", fields=["score=score"], unlisted="drop")
    text = refused("chosen")
    assert "it was packed with --field score=score" in text
    assert "now it would be without --field (fields=None)" in text
    text = refused("chosen", "a=score")
    assert "with the fields score (floats), with --field score=score; now it would be" in text
    assert "with the fields a (floats), with --field a=score (fields=['a=score'])" in text
    fastpipe.pack(table, tmp_path / "all", unlisted="drop")
    assert "it was packed without --field" in refused("all", "score=score")


@pytest.mark.parametrize(
    "options",
    [
        "all",
        {"source": "folder"},
        {"source": {"fields": {"score": "score"}}},
        {"source": {"classes_from": {"labels": 3}}},
        {"fields": ["score"]},
        {"classes": 3},
    ],
)
def test_options_of_another_program_are_no_error_of_their_own(options: Any) -> None:
    words = "it was packed with options that this fastpipe does not know"
    assert describe_other_options(options, PackOptions().shaping()) == words
