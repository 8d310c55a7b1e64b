"""Tests of tar files that were made to do harm: named errors or rejected members; nothing is written outside DST."""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running.soak import Tried, long_form, times
from support.sources.pack_sources import files, jpeg_bytes
from support.sources.tars import END, header, member, pax, write_tar

from fastpipe.dataset.format import tar_writer as tar
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError
from fastpipe.packing.job.threads import pack
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import Source

JPEG = jpeg_bytes((16, 12))
GOOD = member("good.jpg", JPEG) + member("good.cls", b"1")

NAMES = [
    b"../../planted.jpg",
    b"..",
    b"a/../../planted.jpg",
    b"/planted.jpg",
    b"//planted.jpg",
    b"/etc/passwd",
    b"a\\..\\planted.jpg",
    b"C:\\planted.jpg",
    b"a\x1b[2Jb.jpg",
    b"a\nb.jpg",
    b"a\x7fb.jpg",
    "a\x85b.jpg".encode(),
    b"",
    b".",
    b"a/",
    b"x" * 1025,
    b"x/" * 5000 + b"1.jpg",
]
HARMLESS = [
    b"pipe:touch planted",
    b"; touch planted",
    b"$(touch planted).jpg",
    b"-rf",
    b"~/planted.jpg",
    b"a b\xff.jpg",
]


def long_named(name: bytes, data: bytes = JPEG) -> list[bytes]:
    """Members of this name, in each of the ways in which a tar can name one."""
    ways = []
    if name:
        ways.append(pax(path=name) + member("a", data))
        ways.append(member("@LongLink", name + b"\0", b"L") + member("a", data))
    if len(name) <= 100:
        ways.append(member(name, data))
    return ways


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "a.tar", {"x/1.cls": b"1", "x/1.jpg": JPEG})


def listed(source: Path) -> list[Source] | str:
    """The sources, without times, or the error."""
    try:
        return [
            each._replace(mtime_ns=0, ctime_ns=0, archive_bytes=0)
            for each in list_sources(source, 0).sources
        ]
    except PackError as problem:
        return str(problem)


def test_cut_short_anywhere(source: Path, tried: Tried) -> None:
    whole, true = source.read_bytes(), listed(source)
    end = len(whole.rstrip(b"\0"))
    end += -end % tar.BLOCK + len(END)  # behind that is only padding
    edges = (end - 1, end, *range(0, len(whole), tar.BLOCK))
    lengths = sorted({*range(0, len(whole), times(7, 1)), *edges}, reverse=True)
    for length in lengths:
        os.truncate(source, length)
        found = listed(source)
        if length >= end:
            assert found == true
        else:
            assert isinstance(found, str), length
            assert f"{source} " in found
            assert re.search(r"at byte \d+", found)
    harmless = sum(length >= end for length in lengths)
    tried("an imported tar truncated at every byte", len(lengths) - harmless, "a named error")
    tried("an imported tar truncated in the zeros behind its end", harmless, "the same samples")


def headers_of(whole: bytes) -> Iterator[int]:
    for at in range(0, len(whole), tar.BLOCK):
        if whole[at + 257 : at + 262] == b"ustar":
            yield at


def test_a_bit_of_a_header_flipped(source: Path, tried: Tried) -> None:
    whole, true = source.read_bytes(), listed(source)
    places = [
        8 * byte + bit
        for at in headers_of(whole)
        for byte in range(at, at + 512)
        for bit in range(8)
    ]
    places = places[:: times(7, 1)]
    tolerated = set()
    with open(source, "r+b", buffering=0) as file:
        for place in places:
            at = place // 8
            os.pwrite(file.fileno(), bytes([whole[at] ^ 1 << place % 8]), at)
            found = listed(source)
            os.pwrite(file.fileno(), whole[at : at + 1], at)
            if not isinstance(found, str):
                assert found == true
                tolerated.add(at % tar.BLOCK)
    assert tolerated <= set(range(148, 156))  # a space for a zero behind the checksum's digits
    tried(
        "one bit of an imported tar's headers flipped",
        len(places),
        "a named error, or no difference",
    )


@pytest.mark.parametrize("labelled", [True, False])
def test_names_that_lead_elsewhere(tmp_path: Path, labelled: bool, tried: Tried) -> None:
    parts = [part for name in NAMES for part in long_named(name)]
    good = GOOD if labelled else member("x/good.jpg", JPEG)
    (tmp_path / "a.tar").write_bytes(b"".join(parts) + good + END)
    before = files(tmp_path)
    summary = pack(tmp_path / "a.tar", tmp_path / "deep" / "packed")
    assert (summary.info["samples"], len(summary.tally.rejected)) == (1, len(parts))
    outside = {
        name: data for name, data in files(tmp_path).items() if not name.startswith("deep/packed/")
    }
    assert outside == before
    written = "dataset.json index.npy rejected.jsonl shard-000000.tar sources.npy"
    assert " ".join(sorted(os.listdir(tmp_path / "deep" / "packed"))) == written
    told = (tmp_path / "deep" / "packed" / "rejected.jsonl").read_text("utf-8")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", told)
    assert max(map(len, told.splitlines())) < 500
    with tarfile.open(tmp_path / "deep" / "packed" / "shard-000000.tar") as packed:
        assert all(
            re.fullmatch(r"\d{6}-\d{8}\.(cls|jpg|json)", each.name) and each.isreg()
            for each in packed
        )
    tried(
        "names in an imported tar: absolute, .., control characters, too long",
        len(parts),
        "rejected by name",
    )


def test_names_are_never_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tars").mkdir()
    parts = b"".join(
        member(b"x/n/%d" % number + name, JPEG) for number, name in enumerate(HARMLESS)
    )
    for name in ("pipe:touch planted.tar", "$(touch planted).tar", "-.tar"):
        (tmp_path / "tars" / name).write_bytes(parts + END)
    assert pack(Path("tars"), tmp_path / "packed").info["samples"] == 3 * len(HARMLESS)
    assert pack(Path("tars") / "-.tar", tmp_path / "one").info["samples"] == len(HARMLESS)
    assert sorted(os.listdir(tmp_path)) == ["one", "packed", "tars"]


def test_links_and_devices_are_rejected_by_name(tmp_path: Path, tried: Tried) -> None:
    (tmp_path / "secret.jpg").write_bytes(JPEG)
    target = os.fsencode(tmp_path / "secret.jpg")
    parts = [
        member("a.jpg", b"", b"2", link=target) + member("a.cls", b"0"),
        member("b.jpg", b"", b"1", link=target) + member("b.cls", b"0"),
        member("c.jpg", b"", b"1", link=b"good.jpg") + member("c.cls", b"0"),
        member("d.jpg", b"", b"3") + member("d.cls", b"0"),
        member("e.jpg", b"", b"4") + member("e.cls", b"0"),
        member("f.jpg", b"", b"6") + member("f.cls", b"0"),
        member("g.jpg", JPEG) + member("g.cls", b"", b"2", link=b"good.cls"),
        header("h.jpg", len(JPEG), b"S") + JPEG + tar.padding(len(JPEG)) + member("h.cls", b"0"),
        pax(GNU__sparse__name=b"good.jpg", GNU__sparse__realsize=b"9")
        + member("i.jpg", b"0\n")
        + member("i.cls", b"0"),
        pax(size=b"0") + header("j.jpg", 5) + member("j.cls", b"0"),
    ]
    (tmp_path / "a.tar").write_bytes(b"".join(parts) + GOOD + END)
    summary = pack(tmp_path / "a.tar", tmp_path / "packed")
    assert summary.info["samples"] == 1
    reasons = dict(summary.tally.rejected)
    words = [
        "a symbolic link",
        "a hard link",
        "a hard link",
        "a character device",
        "a block device",
        "a pipe",
    ]
    words += ["a symbolic link", "a sparse file", "a sparse file", "empty file"]
    for key, expected in zip("abcdefghij", words, strict=True):
        told = [reason for path, reason in reasons.items() if path.startswith(f"{key}.")]
        assert any(expected in reason for reason in told), (key, reasons)
    tried(
        "links, devices, pipes and sparse files in an imported tar", len(parts), "rejected by name"
    )


def test_pictures_of_gigabytes_are_never_read(tmp_path: Path) -> None:
    """A hole of 4 GiB, in a tar and in a folder."""
    (tmp_path / "source" / "x").mkdir(parents=True)
    (tmp_path / "source" / "x" / "good.jpg").write_bytes(JPEG)
    (tmp_path / "source" / "x" / "hole.jpg").touch()
    os.truncate(tmp_path / "source" / "x" / "hole.jpg", 2**32)
    tar_file = tmp_path / "a.tar"
    tar_file.write_bytes(member("x/good.jpg", JPEG) + header("x/hole.jpg", 2**32))
    os.truncate(tar_file, tar_file.stat().st_size + 2**32 + len(END))
    for number, source in enumerate((tmp_path / "source", tar_file)):
        summary = pack(source, tmp_path / str(number))
        assert summary.tally.rejected == [
            ("x/hole.jpg", "4,294,967,296 bytes; expected at most 4,294,967,295")
        ]


def test_a_label_may_be_large_and_the_list_of_classes_is_bounded(
    tmp_path: Path, tried: Tried
) -> None:
    parts = (
        member("a.jpg", JPEG)
        + member("a.cls", b"999999")
        + member("b.jpg", JPEG)
        + member("b.cls", b"1000000")
    )
    (tmp_path / "a.tar").write_bytes(parts + END)
    listing = list_sources(tmp_path / "a.tar", 0)
    assert (len(listing.classes), listing.classes[-1]) == (1_000_000, "999999")
    assert [source.label for source in listing.sources if source.problem is None] == [999_999]
    if not long_form():
        return
    summary = pack(tmp_path / "a.tar", tmp_path / "packed")
    assert len(summary.tally.rejected) == 1
    index = PackedIndex(tmp_path / "packed")
    assert (index.classes[-1], index.records["label"].tolist()) == ("999999", [999999])
    tried("labels of a million classes in an imported tar", 1, "packed and opened")
