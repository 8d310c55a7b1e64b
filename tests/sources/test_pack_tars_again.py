"""Tests of packs from tar files that are stopped, repeated, repaired, or whose tars change."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.programs.cli_run import succeeded
from support.sources.pack_sources import jpeg_bytes, write_large_folder
from support.sources.tars import member, write_tar

import fastpipe
from fastpipe.dataset.format.layout import DATASET_FILE
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import DatasetError, PackError
from fastpipe.packing.job import threads
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.source_bytes import read_source
from fastpipe.tools.verify.verification import verify

SHARDS = PackOptions(shard_size=100_000, workers=2)


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    """Two WebDataset tars, with a sample that is rejected, a duplicate and another member."""
    pictures = [
        file.read_bytes() for file in sorted(write_large_folder(tmp_path / "made").rglob("*.jpg"))
    ]
    folder = tmp_path / "tars"
    folder.mkdir()
    for number in range(2):
        members = {}
        for place, picture in enumerate(pictures[number::2]):
            members |= {
                f"{place:04d}.cls": b"%d" % (place % 5),
                f"{place:04d}.jpg": picture,
                f"{place:04d}.txt": b"a",
            }
        write_tar(
            folder / f"{number}.tar",
            members | {"bad.jpg": b"no picture", "bad.cls": b"1", "alone.jpg": b""},
        )
    shutil.rmtree(tmp_path / "made")
    return folder


def test_a_tar_of_another_size_is_another_one(tars: Path, tmp_path: Path) -> None:
    """Its time is easily kept, by cp -p or rsync."""
    source = next(
        each
        for each in list_sources(tars, 0).sources
        if each.problem is None and each.archive == "1.tar"
    )
    times = (tars / "1.tar").stat()
    assert read_source(tars, source)
    with open(tars / "1.tar", "ab") as file:
        file.write(bytes(512))
    os.utime(tars / "1.tar", ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(PackError, match=r"1\.tar has changed while packing"):
        read_source(tars, source)


def test_a_finished_pack_has_nothing_to_do_until_a_tar_has_changed(
    tars: Path, tmp_path: Path
) -> None:
    assert len(pack(tars, tmp_path / "packed", SHARDS).tally.rejected) == 4
    os.utime(tars / "1.tar")
    assert pack(tars, tmp_path / "packed", SHARDS).already_packed
    content = bytearray((tars / "1.tar").read_bytes())
    content[content.index(b"\xff\xd8\xff") + 200] ^= 1
    (tars / "1.tar").write_bytes(content)
    with pytest.raises(PackError, match="the source files have changed"):
        pack(tars, tmp_path / "packed", SHARDS)


def when_listed(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Does something when a pack has listed its source, and has read nothing yet."""
    listed = threads.list_sources

    def then(root: Path, seed: int, **options: Any) -> object:
        listing = listed(root, seed, **options)
        do()
        return listing

    monkeypatch.setattr(threads, "list_sources", then)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda tar: os.truncate(tar, 20_000),
            "has changed while packing",
        ),  # and it ends before its members do
        (lambda tar: os.truncate(tar, 2_000_000), "has changed while packing"),
        (
            lambda tar: tar.unlink(),
            r"has changed .* has disappeared \(No such file.* shards are kept",
        ),
    ],
    ids=["shorter", "longer", "gone"],
)
def test_a_tar_that_changes_while_it_is_packed(
    tars: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    words: str,
) -> None:
    when_listed(monkeypatch, lambda: change(tars / "1.tar"))
    with pytest.raises(PackError, match=rf"1\.tar {words}"):
        pack(tars, tmp_path / "packed")
    assert not (tmp_path / "packed" / DATASET_FILE).exists()


def test_a_packed_dataset_that_is_damaged_is_no_source(tars: Path, tmp_path: Path) -> None:
    pack(tars, tmp_path / "one", SHARDS)
    shards = sorted(path.name for path in (tmp_path / "one").glob("*.tar"))

    def refused(words: str) -> None:
        with pytest.raises((PackError, DatasetError), match=words):
            pack(tmp_path / "one", tmp_path / "two")
        assert not (tmp_path / "two").exists()

    described = tmp_path / "one" / DATASET_FILE
    whole = described.read_bytes()
    described.write_bytes(whole.replace(b'"3"', b'"7"'))
    refused("dataset.json has changed since it was written: expected hash")
    described.write_bytes(whole.replace(b"{", b"[", 1))
    refused("not valid JSON")
    described.unlink()
    (tmp_path / "one" / ".pack").mkdir()
    refused("unfinished pack")
    described.write_bytes(whole)
    (tmp_path / "one" / ".pack").rmdir()
    (tmp_path / "one" / shards[1]).rename(tmp_path / "away")
    refused(f"{shards[1]}: No such file")
    (tmp_path / "away").rename(tmp_path / "one" / shards[1])
    shutil.rmtree(tmp_path / "one" / "fields")
    described.write_text('{"of": "another program"}')  # then these are tars like any others
    assert pack(tmp_path / "one", tmp_path / "two").info["classes"] == ["0", "1", "2", "3", "4"]


def test_the_command_says_what_was_left_out(tars: Path, tmp_path: Path) -> None:
    for tar in tars.iterdir():
        tar.write_bytes(member("note", b"x") + tar.read_bytes())
    text = succeeded("pack", tars, tmp_path / "packed")
    assert "2 without extension: members that are neither an image nor a label" in text
    assert "1.tar/alone.jpg (at byte" in text
    told = json.loads(succeeded("pack", tars / "0.tar", tmp_path / "one", "--json"))
    assert told["members_left_out"] == {"without extension": 1}
    assert {entry["path"].split(" ")[0] for entry in told["rejected"]} == {"alone.jpg", "bad.jpg"}
    assert PackedIndex(tmp_path / "one").class_counts == [3, 3, 2, 2, 2]


def test_shards_of_two_datasets_are_one_source_with_the_names_of_both(tmp_path: Path) -> None:
    """Their labels are numbers of their own: 0 is another class in each."""
    (tmp_path / "both").mkdir()
    for name, classes in (("one", "abc"), ("two", "bcd")):
        for number, letter in enumerate(classes):
            folder = tmp_path / name / letter
            folder.mkdir(parents=True)
            (folder / f"{name}.jpg").write_bytes(jpeg_bytes(seed=10 * ord(letter) + number))
        pack(tmp_path / name, tmp_path / f"packed-{name}")
        shutil.copy(
            tmp_path / f"packed-{name}" / "shard-000000.tar", tmp_path / "both" / f"{name}.tar"
        )
    pack(tmp_path / "both", tmp_path / "merged")
    for data in (tmp_path / "merged", tmp_path / "both", tmp_path / "both" / "*.tar"):
        opened = fastpipe.open(data)
        assert (opened.classes, opened.class_counts) == (["a", "b", "c", "d"], [1, 2, 2, 1])
    letters = {
        int(fastpipe.open(tmp_path / f"packed-{name}").index.records["identity"][sample]): label
        for name in ("one", "two")
        for sample, label in enumerate(labels_of(tmp_path / f"packed-{name}"))
    }
    merged = fastpipe.open(tmp_path / "merged").index.records["identity"]
    assert [letters[int(each)] for each in merged] == labels_of(tmp_path / "merged")
    assert verify(tmp_path / "merged").sound
    (tmp_path / "both" / "two.tar").unlink()
    alone = pack(tmp_path / "both", tmp_path / "alone").info
    assert alone["classes"] == ["a", "b", "c"], (
        "the shards of one dataset keep its labels and names"
    )


def labels_of(dataset: Path) -> list[str]:
    """The class's name of each sample."""
    data = fastpipe.open(dataset)
    return [data.classes[label] for label in data["label"]]
