"""Class folders that are numbers; files that systems and programs leave among pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.photo_trees import labels_of, packed_labels, photos
from support.sources.tars import write_tar

import fastpipe

JUNK = (
    *(
        "__MACOSX/cat/._1.jpg",
        "cat/._1.jpg",
        "cat/.DS_Store",
        "cat/deep/.ipynb_checkpoints/1-checkpoint.jpg",
    ),
    *(
        "cat/Thumbs.db",
        "dog/desktop.ini",
        "dog/@eaDir/2.jpg/SYNOPHOTO_THUMB_M.jpg",
        ".DS_Store",
        "Thumbs.db",
    ),
    *("cat/__MACOSX/._x", "dog/.gitkeep", "._dog/2.jpg"),
)


def junk(root: Path) -> None:
    for path in JUNK:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"junk")


@becomes(
    "class folders `1` to `10`",
    "sorted as texts, and named: '10' is label 1",
    "--classes-from FILE",
)
def test_class_folders_that_are_numbers(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *(f"{number}/{number}.jpg" for number in range(1, 11)))
    summary = fastpipe.pack(source, tmp_path / "packed")
    data = fastpipe.open(tmp_path / "packed")
    assert data.classes == ["1", "10", *map(str, range(2, 10))]
    assert [str(each) for each in summary.assumed] == [
        "labels: classes that are whole numbers are sorted as texts: '10' is label 1 (--classes-from FILE)"
    ]


@becomes(
    "class folders `0` to `10` in a tar, or without packing", "the same, in the log of a loader"
)
def test_numbers_in_tars_and_without_packing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = photos(tmp_path / "src", *(f"{number}/{number}.jpg" for number in range(11)))
    write_tar(
        tmp_path / "a.tar",
        {f"{each}/{each}.jpg": (source / f"{each}/{each}.jpg").read_bytes() for each in range(11)},
    )
    (assumed,) = fastpipe.pack(tmp_path / "a.tar", tmp_path / "packed").assumed
    assert "'10' is label 2" in assumed.text
    fastpipe.open(source)
    assert "'10' is label 2" in caplog.text


@becomes("class folders `0`, `1`, `2`, or `000`, `001`", "their numbers, with nothing to say")
@becomes(
    "class folders `1`, `2`, `3`", "the labels 0, 1, 2, and this is named", "--classes-from FILE"
)
def test_class_folders_that_begin_at_1(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "1/a.jpg", "2/b.jpg", "3/c.jpg")
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert "are numbered from 0: '1' is label 0" in assumed.text
    assert (
        "a folder with other classes has other numbers, unless both are packed with" in assumed.text
    )
    for number, names in enumerate((("0", "1", "2"), ("000", "001", "002"))):
        source = photos(tmp_path / f"src-{number}", *(f"{name}/{name}.jpg" for name in names))
        assert fastpipe.pack(source, tmp_path / str(number)).assumed == ()


@becomes(
    "`__MACOSX`, `._*`, `.ipynb_checkpoints`, `Thumbs.db`, `desktop.ini`, `@eaDir` at any depth",
    "passed over",
)
def test_what_systems_leave_behind(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "cat/1.jpg", "dog/2.jpg")
    junk(source)
    classes, labels = packed_labels(source, tmp_path / "packed")
    assert (classes, labels) == (["cat", "dog"], {"cat/1.jpg": 0, "dog/2.jpg": 1})
    data = fastpipe.open(source)
    assert (data.classes, labels_of(data)) == (classes, labels)


@becomes(
    "`cat/.@__thumb/`, `cat/.Trash-1000/`, and other folders with a dot in class folders, also in a tar; "
    "`@Recycle/`, `lost+found/` beside them",
    "left out; the summary counts those with a dot",
)
def test_folders_of_storage_and_trash(tmp_path: Path) -> None:
    paths = ("cat/1.jpg", "dog/2.jpg", "cat/.Trash-1000/files/1.jpg", "dog/deep/.thumbnails/1.jpg")
    source = photos(tmp_path / "src", *paths, "@Recycle/1.jpg", "lost+found/1.jpg")
    members = {path: (source / path).read_bytes() for path in paths}
    write_tar(tmp_path / "a.tar", {**members, "@Recycle/1.jpg": members[paths[0]]})
    for number, data in enumerate((source, tmp_path / "a.tar")):
        packed = tmp_path / f"packed-{number}"
        assumed = fastpipe.pack(data, packed).assumed
        assert [str(each) for each in assumed] == [
            "folders whose names begin with a dot: 2, such as cat/.Trash-1000; they are left out"
        ]
        opened = fastpipe.open(packed)
        assert (opened.classes, labels_of(opened)) == (["cat", "dog"], {paths[0]: 0, paths[1]: 1})


@becomes("the same in a tar", "passed over")
def test_what_systems_leave_behind_in_a_tar(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "cat/1.jpg", "dog/2.jpg")
    members = {path: (source / path).read_bytes() for path in ("cat/1.jpg", "dog/2.jpg")}
    write_tar(tmp_path / "a.tar", {"./._cat": b"junk", **members, **dict.fromkeys(JUNK, b"junk")})
    assert packed_labels(tmp_path / "a.tar", tmp_path / "packed") == (
        ["cat", "dog"],
        {"cat/1.jpg": 0, "dog/2.jpg": 1},
    )
    samples = {
        "a.jpg": members["cat/1.jpg"],
        "._a.jpg": b"junk",
        "__MACOSX/._a.jpg": b"junk",
        "a.cls": b"0",
    }
    write_tar(tmp_path / "b.tar", samples)
    summary = fastpipe.pack(tmp_path / "b.tar", tmp_path / "other")
    assert (summary.info["samples"], summary.tally.rejected, summary.dropped) == (1, [], {})


@becomes("a `__MACOSX` folder beside `train/` and `val/`", "passed over", "--split")
def test_junk_beside_splits(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/cat/1.jpg", "val/cat/2.jpg")
    for path in ("__MACOSX/train/._cat", "train/.DS_Store", "val/._cat"):
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(b"junk")
    assert packed_labels(source, tmp_path / "packed", split="val") == (["cat"], {"cat/2.jpg": 0})
