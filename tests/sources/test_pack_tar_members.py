"""Tests of sources.tar_reader: it reads what tarfile reads, and refuses what can be read in two ways."""

from __future__ import annotations

import io
import random
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.running.soak import Tried, times
from support.sources.tars import END, header, member, pax, sealed

from fastpipe.dataset.format import tar_writer as tar
from fastpipe.errors import PackError
from fastpipe.sources.tars.tar_reader import MAX_EXTENSION_BYTES, Member, TarFile

Found = list[tuple[str, int, int, bool]]

NAMES = st.one_of(
    st.from_regex(r"[a-z]{1,8}(/[a-z0-9.]{1,9}){0,3}", fullmatch=True),
    st.text(
        st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="/"),
        min_size=1,
        max_size=30,
    ),
    st.from_regex(r"[ab]{90,130}(/[cd]{90,130}){0,2}", fullmatch=True),
)
KINDS = st.sampled_from(
    [tarfile.REGTYPE] * 4 + [tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE]
)
FIELDS = (range(100), range(124, 136), range(156, 157), range(257, 265), range(345, 355))
MEMBERS = st.lists(st.tuples(NAMES, KINDS, st.integers(0, 1500)), max_size=6)
FORMATS = st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


def written(members: list[tuple[str, bytes, int]], form: int) -> bytes:
    """A tar by Python's tarfile, but for what it cannot write in that format."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for name, kind, size in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "elsewhere" * (kind == tarfile.SYMTYPE)
            info.size = size if info.isreg() else 0
            try:
                archive.addfile(info, io.BytesIO(b"x" * size))
            except ValueError:  # too long for ustar
                continue
    return file.getvalue()


def ours(file: Path) -> Found:
    """Files and folders, with the place of their content."""
    with TarFile(file) as opened:
        found = [each for each in opened.members() if each.problem is None]
        return [
            (each.name.rstrip("/"), each.offset_bytes, each.size_bytes, each.is_folder)
            for each in found
        ]


def theirs(file: Path) -> Found:
    with tarfile.open(file, "r:") as archive:
        files = [each for each in archive if (each.isreg() or each.isdir()) and not each.issparse()]
        return [
            (each.name.rstrip("/"), each.offset_data, each.size, each.isdir()) for each in files
        ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tars") / "one.tar"


@settings(max_examples=25)
@given(members=MEMBERS, form=FORMATS)
def test_what_tarfile_writes_is_read_as_tarfile_reads_it(
    place: Path, members: list[tuple[str, bytes, int]], form: int
) -> None:
    place.write_bytes(written(members, form))
    assert ours(place) == theirs(place)


def test_what_both_take_is_the_same_to_both(place: Path, tried: Tried) -> None:
    """Bytes of headers changed, and the checksum made right again: nothing but the fields speaks against them."""
    draw = random.Random(5)
    pax_members = [
        ("a/" + "b" * 120, b"0", 700),
        ("c.jpg", b"0", 30),
        ("d", b"5", 0),
        ("ö" * 70, b"0", 513),
    ]
    gnu_members = [("e", b"2", 0), ("f.cls", b"0", 1), ("g" * 150, b"0", 5), ("h", b"0", 2000)]
    first = written(pax_members, tarfile.PAX_FORMAT).rstrip(b"\0")
    whole = first + tar.padding(len(first)) + written(gnu_members, tarfile.GNU_FORMAT)
    blocks = [
        at for at in range(0, len(whole), tar.BLOCK) if whole[at + 257 : at + 262] == b"ustar"
    ]
    errors: list[str] = []
    for _ in range(count := times(600, 100_000)):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 1, 2, 3))):
            at, field = draw.choice(blocks), draw.choice(FIELDS)
            if whole[at + 156] in b"xL" and draw.random() < 0.3:
                field = range(tar.BLOCK, tar.BLOCK + 30)  # what the extended header says
            data[at + draw.choice(field)] = draw.choice(
                (0, 128, 255, *b"014578 \n=xgLKSV25/", draw.randrange(256))
            )
            data[at : at + tar.BLOCK] = sealed(bytes(data[at : at + tar.BLOCK]))
        place.write_bytes(data)
        try:
            found = ours(place)
        except PackError as problem:
            errors.append(str(problem))
            continue
        assert found == theirs(place)
    assert len(errors) < 0.9 * count
    assert all(str(place) in words and "at byte" in words for words in errors)
    tried(
        "fields of an imported tar's headers changed, checksum right",
        count,
        "a named error, or as tarfile reads it",
    )


def members_of(place: Path, *parts: bytes) -> list[Member]:
    place.write_bytes(b"".join(parts))
    with TarFile(place) as opened:
        return list(opened.members())


def refused(place: Path, at: int, words: str, *parts: bytes) -> None:
    with pytest.raises(PackError) as caught:
        members_of(place, *parts)
    assert words in str(caught.value)
    assert f"at byte {at}" in str(caught.value)
    assert str(place) in str(caught.value)
    assert len(str(caught.value)) < 800


GOOD = member("good.jpg", b"x" * 600)


# What stands before the damage, the damage, and words of the error.
DAMAGED: list[tuple[bytes, bytes, str]] = [
    (b"", member("a", b"x", checksum=b"000000\0 "), "expected a tar header with checksum"),
    (b"", member("a", b"x", magic=b"mustar\0"), "format ustar, GNU or V7"),
    (b"", header("a", b"\xff" * 12), "expected a size from 0 to 2**63 - 1"),
    (b"", header("a", b"\x80" + b"\xff" * 11), "expected a size from 0 to 2**63 - 1"),
    (b"", header("a", b"-0000000001\0"), "expected a size from 0 to 2**63 - 1"),
    (b"", header("a", b"0000000008x\0"), "expected a size from 0 to 2**63 - 1"),
    (b"", header("a", 2**33 - 1), "the file ends at byte"),
    (b"", header("a", b"\x80" + (2**62).to_bytes(11, "big")), "the file ends at byte"),
    (pax(size=b"9" * 19), header("a"), "the file ends at byte"),
    (b"", pax(size=b"-1") + header("a"), "expected a size in decimal digits"),
    (b"", pax(size=b"1e3") + header("a"), "expected a size in decimal digits"),
    (b"", pax(size=b"") + header("a"), "expected a size in decimal digits"),
    (b"", pax(path=b"") + member("a"), "got an empty name"),
    (b"", member("a", b"x", b"1"), "expected 0 bytes after the header of a hard link, got 1"),
    (b"", member("a", b"x", b"2"), "expected 0 bytes after the header of a symbolic link, got 1"),
    (b"", member("a", b"x", b"5"), "expected 0 bytes after the header of a folder, got 1"),
    (b"", member("a/", b"x", b"\0"), "expected 0 bytes after the header of a folder, got 1"),
    (pax(size=b"1"), member("a", b"", b"6"), "a pipe (fifo), got 1"),
    (
        pax(path=b"a"),
        pax(path=b"b") + member("c"),
        "expected one extended header of each type, and one name",
    ),
    (
        pax(path=b"a"),
        member("@LongLink", b"b\0", b"L") + member("c"),
        "each type, and one name, before a member",
    ),
    (b"", member("@LongLink", b"b", b"L") + member("c"), "a long name that ends with a NUL"),
    (b"", pax(b"g", path=b"a"), "expected no 'path' in a global pax header"),
    (b"", pax(b"g", size=b"1"), "expected no 'size' in a global pax header"),
    (
        b"",
        pax(b"g", GNU__sparse__major=b"1"),
        "expected no 'GNU.sparse.major' in a global pax header",
    ),
    (b"", member("pax", b"7 a=b\n", b"x") + member("a"), "expected a pax record"),
    (b"", member("pax", b"99999999 a=b\n", b"x") + member("a"), "expected a pax record"),
    (b"", member("pax", b"6 a=bc", b"x") + member("a"), "expected a pax record"),
    (
        b"",
        header("pax", MAX_EXTENSION_BYTES + 1, b"x"),
        "of at most 1,048,576 bytes, got 1,048,577",
    ),
    (b"", header("pax", 2**33 - 1, b"g"), "an extended header of at most"),
    (b"", header("@LongLink", 2**33 - 1, b"L"), "an extended header of at most"),
    (b"", header("pax", 5000, b"x"), "expected an extended header up to byte"),
    (b"", member("a", magic=b"ustar  \0", prefix=b"12345"), "expected no prefix"),
    (
        b"",
        header("a", 0, b"S", more=b"\1") + b"\1" * 512,
        "expected the header of a sparse file up to byte",
    ),
    (pax(path=b"a"), b"", "got a block of zeros"),
]


def test_what_is_damaged_or_can_be_read_in_two_ways(place: Path) -> None:
    for before, part, words in DAMAGED:
        cut_off = "ends at byte" in words or "up to byte" in words
        refused(place, len(GOOD + before), words, GOOD, before, part, b"" if cut_off else END)


# What stands behind the last member in place of the end, and words of the error.
ENDS = [
    (b"", "the file ends at byte 1536"),
    (END[:512], "expected the two blocks of zeros"),
    (END[:1000], "expected the two blocks of zeros"),
    (END[:512] + GOOD, "expected only zeros after the end of the tar, 1,024 to 1,048,576"),
    (END + GOOD + END, "join them with tar -A"),
    (END + bytes(5000) + b"x", "expected only zeros after the end of the tar"),
    (END + bytes(1 << 20), "1,049,600 bytes"),
]


def test_how_a_tar_ends(place: Path) -> None:
    for rest, words in ENDS:
        refused(place, len(GOOD), words, GOOD, rest)
    whole_blocks = member("b", b"1" * 512)
    refused(place, len(GOOD + whole_blocks), "expected a header or the end", GOOD, whole_blocks)
    assert len(members_of(place, GOOD, END)) == 1
    assert len(members_of(place, GOOD, END, bytes(9000))) == 1
    assert len(members_of(place, GOOD, END, bytes((1 << 20) - len(END)))) == 1
    assert members_of(place, END) == []


def test_names_and_sizes_of_extended_headers(place: Path) -> None:
    found = members_of(
        place,
        member("a", b"1" * 700, prefix=b"deep/er"),
        pax(path="ö/b".encode(), size=b"600", comment=b"x=\n")
        + header("short")
        + b"2" * 600
        + tar.padding(600),
        member("@LongLink", b"c" * 300 + b"\0", b"L")
        + member("@LongLink", b"d\0", b"K")
        + member("c", b"3"),
        header("base-256", b"\x80" + (5).to_bytes(11, "big")) + b"4" * 5 + tar.padding(5),
        pax(b"g", comment=b"of git") + member("e", magic=bytes(8)),
        member("folder/", b"", b"\0"),
        END,
    )
    assert [each.name for each in found] == [
        "deep/er/a",
        "ö/b",
        "c" * 300,
        "base-256",
        "e",
        "folder/",
    ]
    assert [each.size_bytes for each in found] == [700, 600, 1, 5, 0, 0]
    assert [each.is_folder for each in found] == [False] * 5 + [True]
    whole = place.read_bytes()
    content = [whole[each.offset_bytes : each.offset_bytes + each.size_bytes] for each in found]
    assert content == [b"1" * 700, b"2" * 600, b"3", b"4" * 5, b"", b""]


NO_FILES = [
    (member("a", b"", b"1", link=b"/etc/passwd"), "a hard link to /etc/passwd, not a file"),
    (
        member("a", b"", b"2", link=b"../../x\x1b[2J"),
        r"a symbolic link to ../../x\x1b[2J, not a file",
    ),
    (member("a", b"", b"3"), "a character device, not a file"),
    (member("a", b"", b"4"), "a block device, not a file"),
    (member("a", b"", b"6"), "a pipe (fifo), not a file"),
    (member("a", b"xyz", b"Z"), "of type 'Z', not a file"),
    (member("a", b"xyz", b"\x1b"), r"of type '\x1b', not a file"),
    (
        header("a", 3, b"S", more=b"\1")
        + bytes(504)
        + b"\1"
        + bytes(7)
        + bytes(512)
        + b"xyz"
        + tar.padding(3),
        "sparse",
    ),
    (
        pax(GNU__sparse__major=b"1", GNU__sparse__minor=b"0") + member("a", b"1\n0\n3\n"),
        "a sparse file",
    ),
    (pax(GNU__sparse__map=b"0,3", GNU__sparse__size=b"999") + member("a", b"xyz"), "a sparse file"),
    (pax(SCHILY__realsize=b"99999") + member("a", b"xyz"), "a sparse file"),
]


def test_what_is_no_file_is_passed_over(place: Path) -> None:
    for part, words in NO_FILES:
        first, second = members_of(place, part, GOOD, END)
        assert words in (first.problem or "")
        assert (second.name, second.problem) == ("good.jpg", None)
