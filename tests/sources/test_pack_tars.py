"""Tests of packing tar files: image folders in a tar, WebDataset's shards, and shards of our own."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import webdataset
from support.datasets.packed import packed_jpeg
from support.programs.cli_run import failed
from support.sources.listed import paths_of
from support.sources.pack_sources import (
    assert_same_pixels,
    digests,
    jpeg_bytes,
    saved,
    write_folder,
)
from support.sources.tars import END, member, tar_of_folder, write_tar

from fastpipe.dataset.format.layout import MAX_CLASSES
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import SourceField
from fastpipe.sources.tars.tar_reader import Member, TarFile
from fastpipe.tools.verify.verification import verify

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


@pytest.mark.parametrize(("under", "shuffle"), [("", True), ("photos", False)])
def test_a_tar_of_an_image_folder_gives_the_bytes_that_the_folder_gives(
    folder: Path, tmp_path: Path, under: str, shuffle: bool
) -> None:
    tar = tar_of_folder(folder, tmp_path / f"{under or 'a'}.tar", under)
    options = PackOptions(shuffle=shuffle, workers=2)
    expected, found = (
        pack(folder, tmp_path / "one", options),
        pack(tar, tmp_path / "other", options),
    )
    assert digests(tmp_path / "one") == digests(tmp_path / "other")
    assert found.info["classes"] == ["ant", "bee", "cow", "owl"]
    assert [Path(name).name for name in found.stray] == expected.stray == ["README"]
    assert found.tally.rejected == expected.tally.rejected
    assert pack(folder, tmp_path / "other", options).already_packed


def test_the_only_class_of_a_tar_may_have_folders(tmp_path: Path) -> None:
    for path in ("cat/a/1.jpg", "cat/b/2.jpg"):
        (tmp_path / "source" / path).parent.mkdir(parents=True)
        (tmp_path / "source" / path).write_bytes(JPEG)
    assert pack(tmp_path / "source", tmp_path / "packed").info["classes"] == ["cat"]
    (tmp_path / "a").mkdir()
    for number, name in enumerate(("a.tar", "cats.tar", "a/cat.0x.tar")):
        tar = tar_of_folder(tmp_path / "source", tmp_path / name, "")
        assert pack(tar, tmp_path / str(number)).info["classes"] == ["cat"]
        assert digests(tmp_path / str(number)) == digests(tmp_path / "packed")


def test_a_folder_that_the_tars_are_called_after_is_no_class(tmp_path: Path) -> None:
    for names in (
        ["cat.tar"],
        ["Cat.TAR"],
        ["cat-000.tar", "cat-001.tar"],
        ["cat_1.tar", "cat2.tar"],
    ):
        tars = tmp_path / names[0].removesuffix(".tar")
        tars.mkdir()
        for number, name in enumerate(names):
            write_tar(tars / name, {f"cat/a/{number}.jpg": JPEG, f"cat/b/{number}.jpg": JPEG})
        assert list_sources(tars, 0).classes == ["a", "b"]
        assert list_sources(tars / names[0], 0).classes == ["a", "b"]


def web(folder: Path, labels: list[int], **more: bytes) -> Path:
    """What webdataset's own writer makes: two shards, pictures, labels, and members of other kinds."""
    folder.mkdir(exist_ok=True)
    with webdataset.ShardWriter(
        str(folder / "train-%03d.tar"), maxcount=-(-len(labels) // 2), verbose=0
    ) as writer:
        for number, label in enumerate(labels):
            kind = "png" if number == 1 else "jpg"
            picture = saved("PNG") if number == 1 else jpeg_bytes((40 + number, 30), seed=number)
            writer.write({"__key__": f"part/{number:04d}", kind: picture, "cls": label, **more})
    return folder


def test_webdataset_shards(tmp_path: Path) -> None:
    labels = [3, 0, 3, 2, 7, 0, 1]
    source = web(tmp_path / "web", labels, json=b"{}", **{"seg.mask.mp3": b"x"})
    summary = pack(source, tmp_path / "packed")
    index = PackedIndex(tmp_path / "packed")
    assert index.classes == [str(label) for label in range(8)]
    assert index.class_counts == [2, 1, 1, 2, 0, 0, 0, 1]
    assert summary.dropped == {}
    assert {field.name: field.kind for field in index.fields.values()} == {
        "json": "json",
        "seg_mask": "bytes",
    }
    assert summary.info["counts"]["png"] == {"PNG": 1}
    for sample, path in enumerate(paths_of(tmp_path / "packed")):
        shard, part, name = path.split("/")
        number = int(name.split(".")[0])
        assert (shard, part) == (f"train-00{number // 4}.tar", "part")
        assert index.records["label"][sample] == labels[number]
        if number != 1:
            assert_same_pixels(
                packed_jpeg(index, sample), jpeg_bytes((40 + number, 30), seed=number)
            )
    assert verify(tmp_path / "packed").sound


def sources_of(tar: Path) -> dict[str, str | int]:
    """Path -> label, or why it is rejected."""
    found = {each.path: each.problem or each.label for each in list_sources(tar, 0).sources}
    assert len(found) == len(list_sources(tar, 0).sources)
    return found


def test_labels(tmp_path: Path) -> None:
    texts = {
        "a": b"0",
        "b": b" 12\n",
        "c": b"-1",
        "d": b"cat",
        "e": b"1e3",
        "f": b"",
        "g": b"1_0",
        "h": b"9" * 70,
    }
    texts |= {
        "i": b"%d" % MAX_CLASSES,
        "j": b"99999999999999999999",
        "k": b"1.0",
        "l": "٣".encode(),
    }
    members = {
        f"{key}{ending}": data
        for key, text in texts.items()
        for ending, data in ((".jpg", JPEG), (".cls", text))
    }
    found = {
        path[:5]: what for path, what in sources_of(write_tar(tmp_path / "a.tar", members)).items()
    }
    assert (found.pop("a.jpg"), found.pop("b.jpg")) == (0, 12)
    expected = f"expected a whole number from 0 to {MAX_CLASSES - 1:,}, in decimal digits"
    assert all(expected in str(reason) for reason in found.values())
    assert "its label is 'cat'" in str(found["d.jpg"])
    assert len(found) == 10
    assert list_sources(tmp_path / "a.tar", 0).classes == [str(label) for label in range(13)]


def test_tars_without_labels_are_walked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        write_tar(
            tmp_path / f"{number}.tar", {"1.jpg": JPEG, "1.txt": b"a", "2.jpg": JPEG, "2.txt": b"b"}
        )
    walks, members = [], TarFile.members

    def noted(tar: TarFile) -> Iterator[Member]:
        walks.append(tar.path.name)
        return members(tar)

    monkeypatch.setattr(TarFile, "members", noted)
    listing = list_sources(tmp_path, 0)
    assert sorted(walks) == ["0.tar", "1.tar"]
    paths = [f"{tar}.tar/{number}.jpg" for tar in range(2) for number in (1, 2)]
    assert sorted(source.path for source in listing.sources) == paths
    assert [(field.name, field.kind) for field in listing.fields] == [("txt", "text")]
    # A hidden folder makes them no image folder.
    write_tar(tmp_path / "2.tar", {".x/3.jpg": JPEG, "3.jpg": JPEG})
    assert len(list_sources(tmp_path, 0).sources) == 6


def test_members_of_one_key_are_a_sample(tmp_path: Path) -> None:
    members = {
        "one.jpg": JPEG,
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
        "one.cls": b"1",  # not next to its picture, as in tars that are not sorted
    }
    found = sources_of(write_tar(tmp_path / "a.tar", members))
    places = {path.split(" (at")[0]: path for path in found}
    assert found.pop("b/three.JPEG") == 2
    assert found.pop("b.c/five.jpg") == 4
    assert found.pop("one.jpg") == 1
    assert "with this key, got 2 and 1" in str(found[places["two.jpg"]])
    assert "got 0 and 1" in str(found[places["four.cls"]])
    assert len(found) == 2
    assert list_sources(tmp_path / "a.tar", 0).dropped == {"without extension": 2}
    assert list_sources(tmp_path / "a.tar", 0).fields == (
        SourceField("seg", "mask", column="seg.png"),
    )


def test_equal_names_never_overwrite_one_another(tmp_path: Path) -> None:
    tars = tmp_path / "tars"
    tars.mkdir()
    for name in ("a", "b"):
        write_tar(tars / f"{name}.tar", {"x/1.jpg": JPEG, "x/1.png": saved("PNG")})
    assert len(pack(tars, tmp_path / "packed").tally.rejected) == 0
    assert PackedIndex(tmp_path / "packed").class_counts == [4]
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
    assert (len(dropped), dropped["kind0"], dropped["other"], sum(dropped.values())) == (
        101,
        1,
        200,
        300,
    )


def test_tars_beside_folders_are_named_where_the_folders_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "source" / "logs").mkdir(parents=True)
    write_tar(tmp_path / "source" / "a.tar", {"a.jpg": JPEG, "a.cls": b"0"})
    with pytest.raises(
        PackError,
        match=r"none of the 0 files .* also holds tars, but if there are folders, fastpipe does not read tars",
    ):
        pack(tmp_path / "source", tmp_path / "packed")


def test_streams_and_patterns_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, words in {
        "pipe:cat x.tar": "fastpipe runs no command, reads no streams",
        "ftp://example.org/x.tar": "has the scheme ftp://, which fastpipe cannot read",
        "-": "fastpipe runs no command, reads no streams",
        "train-{000..009}.tar": "is a pattern of several files",
        "*.tar": "To pack all tars of the folder pass .",
        "gone/{0..9}.tar": "expands no braces",
        "gone.tar": "expected a folder of images, one folder for each class; a tar file",
    }.items():
        assert words in failed(2 if "://" in name else 1, "pack", name, "packed")
        assert not list(tmp_path.iterdir())


# What a file of the source is: its name and its bytes, and why that is no source.
NO_SOURCES: list[tuple[str, bytes, str]] = [
    ("a.tar.gz", gzip.compress(b"a tar"), r"a\.tar\.gz is compressed, .* unpack it \(gunzip"),
    ("a.tar", gzip.compress(b"a tar"), r"a\.tar is compressed, .* unpack it \(gunzip"),
    ("a.tar", JPEG, r"a\.tar is not a tar file, or is damaged: at byte 0, expected a tar header"),
    (
        "a.tar",
        member("photo.v1.jpg", JPEG) + member("photo.v2.jpg", JPEG) + END,
        r"no image in its tars: the endings of the members are v1\.jpg, v2\.jpg\. .* begins at the first dot",
    ),
    (
        "a.tar",
        member("1.mp4", b"film") + member("2.mp4", b"film") + END,
        r"no image in its tars: the endings of the members are mp4\.",
    ),
    (
        "a.tar",
        b"".join(member(f"1.x{number:02d}", b"film") for number in range(12)) + END,
        r"the endings of the members are x00, .*, x09\. ",
    ),
]


def test_what_is_no_source(tmp_path: Path) -> None:
    for number, (name, data, words) in enumerate(NO_SOURCES):
        source = tmp_path / str(number)
        source.mkdir()
        (source / name).write_bytes(data)
        with pytest.raises(PackError, match=words):
            pack(source, tmp_path / "packed")
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes" / "a.tar")
    with pytest.raises(PackError, match=r"a\.tar is not a regular file"):
        pack(tmp_path / "pipes", tmp_path / "packed")
    assert not (tmp_path / "packed").exists()
