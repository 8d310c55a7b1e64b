"""Tests of packing tar files: image folders in a tar, WebDataset's shards, and shards of our own."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import webdataset
from support.checkout import PHOTOS
from support.datasets.packed import packed_jpeg
from support.programs.cli_run import failed
from support.sources.pack_sources import (
    assert_same_pixels,
    digests,
    jpeg_bytes,
    saved,
    write_folder,
    write_large_folder,
)
from support.sources.tars import END, member, tar_of_folder, write_tar

from fastpipe.errors import PackError
from fastpipe.format.index import Index
from fastpipe.format.layout import MOST_CLASSES
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import SourceField
from fastpipe.sources.tar_reader import Member, TarFile
from fastpipe.verify.verification import verify

JPEG = jpeg_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An image folder with an empty class and files that are rejected or have no class."""
    root = write_folder(tmp_path / "photos")
    (root / "bee" / "deep").mkdir()
    (root / "bee" / "deep" / "1.png").write_bytes(saved("PNG"))
    (root / "ant" / "ö.txt").write_bytes(b"words")
    (root / "owl").mkdir()
    (root / "README").write_bytes(b"beside")
    return root


@pytest.mark.parametrize("under", ["", "photos"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_tar_of_an_image_folder_gives_the_bytes_that_the_folder_gives(
    folder: Path, tmp_path: Path, under: str, shuffle: bool
) -> None:
    tar = tar_of_folder(folder, tmp_path / f"{under or 'a'}.tar", under)
    options = PackOptions(shuffle=shuffle, workers=2)
    expected, found = pack(folder, tmp_path / "one", options), pack(tar, tmp_path / "other", options)
    assert digests(tmp_path / "one") == digests(tmp_path / "other")
    assert found.info["classes"] == ["ant", "bee", "cow", "owl"]
    assert [Path(name).name for name in found.stray] == expected.stray == ["README"]
    assert found.tally.rejected == expected.tally.rejected
    assert pack(folder, tmp_path / "other", options).already_packed


@pytest.mark.parametrize("name", ["a.tar", "cats.tar", "a/cat.0x.tar"])
def test_the_only_class_of_a_tar_may_have_folders(tmp_path: Path, name: str) -> None:
    for path in ("cat/a/1.jpg", "cat/b/2.jpg"):
        (tmp_path / "source" / path).parent.mkdir(parents=True)
        (tmp_path / "source" / path).write_bytes(JPEG)
    tar = tmp_path / name
    tar.parent.mkdir(exist_ok=True)
    tar_of_folder(tmp_path / "source", tar, "")
    for source, packed in ((tmp_path / "source", "one"), (tar, "other")):
        assert pack(source, tmp_path / packed).info["classes"] == ["cat"]
    assert digests(tmp_path / "one") == digests(tmp_path / "other")


@pytest.mark.parametrize("names", [["cat.tar"], ["Cat.TAR"], ["cat-000.tar", "cat-001.tar"], ["cat_1.tar", "cat2.tar"]])
def test_a_folder_that_the_tars_are_called_after_is_no_class(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "tars").mkdir()
    for number, name in enumerate(names):
        write_tar(tmp_path / "tars" / name, {f"cat/a/{number}.jpg": JPEG, f"cat/b/{number}.jpg": JPEG})
    assert list_sources(tmp_path / "tars", 0).classes == ["a", "b"]
    assert list_sources(tmp_path / "tars" / names[0], 0).classes == ["a", "b"]


@pytest.mark.photos
def test_real_photos_in_a_tar(tmp_path: Path) -> None:
    if not PHOTOS.is_dir():
        pytest.skip(f"no photos at {PHOTOS}")
    subprocess.run(["tar", "cf", tmp_path / "photos.tar", "-C", PHOTOS.parent, PHOTOS.name], check=True, timeout=60)
    pack(PHOTOS, tmp_path / "one")
    pack(tmp_path / "photos.tar", tmp_path / "other")
    assert digests(tmp_path / "one") == digests(tmp_path / "other")
    again = pack(tmp_path / "one", tmp_path / "again").info
    assert again["classes"] == Index(tmp_path / "one").classes
    assert (again["samples"], again["counts"]["rejected"]) == (300, 0)
    before, after = Index(tmp_path / "one"), Index(tmp_path / "again")
    paths = notes(tmp_path / "one")
    for sample, source in enumerate(notes(tmp_path / "again")[:40]):
        number = paths.index(source)
        assert_same_pixels(packed_jpeg(after, sample), packed_jpeg(before, number))
        assert after.records["label"][sample] == before.records["label"][number]


def notes(dataset: Path) -> list[str]:
    """The path of each sample's source, in order."""
    found: list[str] = []
    for shard in Index(dataset).shards:
        with tarfile.open(shard.path) as tar:
            contents = [tar.extractfile(each) for each in tar if each.name.endswith(".json")]
            found += [json.load(content)["path"] for content in contents if content is not None]
    return found


def web(folder: Path, labels: list[int], **more: bytes) -> Path:
    """What webdataset's own writer makes: two shards, pictures, labels, and members of other kinds."""
    folder.mkdir(exist_ok=True)
    with webdataset.ShardWriter(str(folder / "train-%03d.tar"), maxcount=-(-len(labels) // 2), verbose=0) as writer:
        for number, label in enumerate(labels):
            kind = "png" if number == 1 else "jpg"
            picture = saved("PNG") if number == 1 else jpeg_bytes((40 + number, 30), seed=number)
            writer.write({"__key__": f"part/{number:04d}", kind: picture, "cls": label, **more})
    return folder


def test_webdataset_shards(tmp_path: Path) -> None:
    labels = [3, 0, 3, 2, 7, 0, 1]
    source = web(tmp_path / "web", labels, json=b"{}", **{"seg.mask.mp3": b"x"})
    summary = pack(source, tmp_path / "packed")
    index = Index(tmp_path / "packed")
    assert index.classes == [str(label) for label in range(8)]
    assert index.class_counts == [2, 1, 1, 2, 0, 0, 0, 1]
    assert summary.dropped == {}
    assert {field.name: field.kind for field in index.fields.values()} == {"json": "json", "seg_mask": "bytes"}
    assert summary.info["counts"]["png"] == {"PNG": 1}
    for sample, path in enumerate(notes(tmp_path / "packed")):
        shard, part, name = path.split("/")
        number = int(name.split(".")[0])
        assert (shard, part) == (f"train-00{number // 4}.tar", "part")
        assert index.records["label"][sample] == labels[number]
        if number != 1:
            assert_same_pixels(packed_jpeg(index, sample), jpeg_bytes((40 + number, 30), seed=number))
    assert verify(tmp_path / "packed").sound


def test_packed_shards_are_a_source(tmp_path: Path) -> None:
    source = write_large_folder(tmp_path / "source")
    pack(source, tmp_path / "one", PackOptions(shard_size=100_000))
    summary = pack(tmp_path / "one", tmp_path / "other")
    one, other = Index(tmp_path / "one"), Index(tmp_path / "other")
    assert other.classes == one.classes == ["class-0", "class-1"]
    assert summary.dropped == {}, "its own notes are written anew"
    paths = notes(tmp_path / "one")
    numbers = [paths.index(path) for path in notes(tmp_path / "other")]
    assert sorted(numbers) == list(range(24))
    for sample, number in enumerate(numbers):
        assert_same_pixels(packed_jpeg(other, sample), packed_jpeg(one, number))
    np.testing.assert_array_equal(other.records["label"], one.records["label"][numbers])


def sources_of(tar: Path) -> dict[str, str | int]:
    """Path -> label, or why it is rejected."""
    found = {each.path: each.problem or each.label for each in list_sources(tar, 0).sources}
    assert len(found) == len(list_sources(tar, 0).sources)
    return found


def test_labels(tmp_path: Path) -> None:
    texts = {"a": b"0", "b": b" 12\n", "c": b"-1", "d": b"cat", "e": b"1e3", "f": b"", "g": b"1_0", "h": b"9" * 70}
    texts |= {"i": b"%d" % MOST_CLASSES, "j": b"99999999999999999999", "k": b"1.0", "l": "٣".encode()}
    members = {
        f"{key}{ending}": data for key, text in texts.items() for ending, data in ((".jpg", JPEG), (".cls", text))
    }
    found = {path[:5]: what for path, what in sources_of(write_tar(tmp_path / "a.tar", members)).items()}
    assert (found.pop("a.jpg"), found.pop("b.jpg")) == (0, 12)
    expected = f"expected a whole number from 0 to {MOST_CLASSES - 1:,}, in decimal digits"
    assert all(expected in str(reason) for reason in found.values())
    assert "its label is 'cat'" in str(found["d.jpg"])
    assert len(found) == 10
    assert list_sources(tmp_path / "a.tar", 0).classes == [str(label) for label in range(13)]


def test_tars_without_labels_are_walked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        write_tar(tmp_path / f"{number}.tar", {"1.jpg": JPEG, "1.txt": b"a", "2.jpg": JPEG, "2.txt": b"b"})
    walks, members = [], TarFile.members

    def noted(tar: TarFile) -> Iterator[Member]:
        walks.append(tar.path.name)
        return members(tar)

    monkeypatch.setattr(TarFile, "members", noted)
    listing = list_sources(tmp_path, 0)
    assert sorted(walks) == ["0.tar", "1.tar"]
    assert sorted(source.path for source in listing.sources) == [
        "0.tar/1.jpg",
        "0.tar/2.jpg",
        "1.tar/1.jpg",
        "1.tar/2.jpg",
    ]
    assert [(field.name, field.kind) for field in listing.fields] == [("txt", "text")]
    # A hidden folder makes them no image folder.
    write_tar(tmp_path / "2.tar", {".x/3.jpg": JPEG, "3.jpg": JPEG})
    assert len(list_sources(tmp_path, 0).sources) == 6


def test_grouping_is_that_of_webdataset(tmp_path: Path) -> None:
    members = {
        "one.jpg": JPEG,  # no label
        "two.jpg": JPEG,
        "two.png": JPEG,
        "two.cls": b"1",
        "b/three.JPEG": JPEG,
        "b/three.seg.png": JPEG,
        "b/three.CLS": b"2",
        "four.cls": b"3",
        "b.c/five.jpg": JPEG,
        "b.c/five.cls": b"4",
        "__key__": b"",
        ".hidden.jpg": JPEG,
        "one.cls": b"1",  # not next to its picture
    }
    found = sources_of(write_tar(tmp_path / "a.tar", members))
    places = {path.split(" (at")[0]: path for path in found}
    assert found.pop("b/three.JPEG") == 2
    assert found.pop("b.c/five.jpg") == 4
    assert "one label (KEY.cls) with this key, got 1 and 0" in str(found[places["one.jpg"]])
    assert "with this key, got 2 and 1" in str(found[places["two.jpg"]])
    assert "got 0 and 1" in str(found[places["four.cls"]])
    assert "got 0 and 1" in str(found[places["one.cls"]])
    assert len(found) == 4
    assert list_sources(tmp_path / "a.tar", 0).dropped == {"without extension": 2}
    assert list_sources(tmp_path / "a.tar", 0).fields == (SourceField("seg", "mask", column="seg.png"),)


def test_equal_names_never_overwrite_one_another(tmp_path: Path) -> None:
    tars = tmp_path / "tars"
    tars.mkdir()
    for name in ("a", "b"):
        write_tar(tars / f"{name}.tar", {"x/1.jpg": JPEG, "x/1.png": saved("PNG")})
    assert len(pack(tars, tmp_path / "packed").tally.rejected) == 0
    assert Index(tmp_path / "packed").class_counts == [4]
    once = member("x/1.jpg", JPEG) + member("x/1.png", saved("PNG"))
    (tars / "b.tar").write_bytes(2 * once + END)
    summary = pack(tars, tmp_path / "twice")
    assert summary.info["samples"] == 4
    assert [reason for _, reason in summary.tally.rejected] == [
        "an earlier member has the same name: unpacking the tar would overwrite it"
    ] * 2


def test_members_of_many_kinds_are_counted_together(tmp_path: Path) -> None:
    members = {"a.jpg": JPEG, "a.cls": b"0"} | {f"a.kind{number}": b"" for number in range(300)}
    listing = list_sources(write_tar(tmp_path / "a.tar", members), 0)
    dropped = listing.dropped
    assert listing.fields == ()  # so many are no fields
    assert (len(dropped), dropped["kind0"], dropped["other"], sum(dropped.values())) == (101, 1, 200, 300)


def test_tars_beside_folders_are_named_where_the_folders_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "source" / "logs").mkdir(parents=True)
    write_tar(tmp_path / "source" / "a.tar", {"a.jpg": JPEG, "a.cls": b"0"})
    with pytest.raises(
        PackError,
        match=r"none of the 0 files .* also holds tars, but if there are folders, fastpipe does not read tars",
    ):
        pack(tmp_path / "source", tmp_path / "packed")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pipe:cat x.tar", "fastpipe runs no command, reads no streams"),
        ("ftp://example.org/x.tar", "has the scheme ftp://, which fastpipe cannot read"),
        ("-", "fastpipe runs no command, reads no streams"),
        ("train-{000..009}.tar", "expands no braces"),
        ("gone.tar", "does not exist; expected a folder with one folder of images for each class, a tar file"),
    ],
)
def test_streams_and_patterns_are_refused(
    tmp_path: Path, name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in failed(2 if "://" in name else 1, "pack", name, "packed")
    assert not list(tmp_path.iterdir())


def gzipped(folder: Path) -> None:
    subprocess.run(["gzip", folder / "a.tar"], check=True, timeout=60)


def disguised(folder: Path) -> None:
    gzipped(folder)
    (folder / "a.tar.gz").rename(folder / "a.tar")


def no_tar(folder: Path) -> None:
    (folder / "a.tar").write_bytes(JPEG)


def dotted(folder: Path) -> None:
    write_tar(folder / "a.tar", {"photo.v1.jpg": JPEG, "photo.v2.jpg": JPEG})


def films(folder: Path) -> None:
    write_tar(folder / "a.tar", {"1.mp4": b"film", "2.mp4": b"film"})


def pipe(folder: Path) -> None:
    (folder / "a.tar").unlink()
    os.mkfifo(folder / "a.tar")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (gzipped, r"a\.tar\.gz is compressed, .* unpack it \(gunzip"),
        (disguised, r"a\.tar is compressed, .* unpack it \(gunzip"),
        (no_tar, r"a\.tar is not a tar file, or is damaged: at byte 0, expected a tar header"),
        (pipe, r"a\.tar is not a regular file"),
        (dotted, r"no image in its tars: the endings of the members are v1\.jpg, v2\.jpg\. .* begins at the first dot"),
        (films, r"no image in its tars: the endings of the members are mp4\."),
    ],
)
def test_what_is_no_source(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    write_tar(source / "a.tar", {"a/1.jpg": JPEG})
    make(source)
    with pytest.raises(PackError, match=words):
        pack(source, tmp_path / "packed")
    assert os.listdir(tmp_path) == ["source"]
