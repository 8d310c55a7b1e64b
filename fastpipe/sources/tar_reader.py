"""A tar file -> its members, from header to header: names, places, sizes, and what is against them. No byte is trusted.

Python's tarfile takes a header that it cannot read for the end of the archive, and extended headers of any size.

Note [two readings]
Where programs read a header in different ways, one of them sees members that another does not. Such a tar is refused:
sizes of what has no bytes, two names for one member, names and sizes in global headers, anything behind the end.

Sources: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header"; GNU tar, "Basic Tar Format".
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.format.tar_writer import BLOCK, padded
from fastpipe.sources.files import SourcePath, open_regular

MOST_EXTENSION_BYTES = (
    1 << 20
)  # of an extended header: macOS and GNU tar put a file's attributes there
_MOST_PADDING_BYTES = 1 << 20  # behind the end; a record is 10,240 bytes with most programs
_WINDOW_BYTES = 4096  # read at once: a small sample's headers, label and note

_FOLDER = b"5"
_OLD_SPARSE, _GLOBAL_PAX, _LONG_NAME, _LONG_LINK = b"S", b"g", b"L", b"K"
_EXTENSIONS = frozenset([b"x", b"X", _GLOBAL_PAX, _LONG_NAME, _LONG_LINK])
_WITHOUT_BYTES = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    _FOLDER: "a folder",
    b"6": "a pipe (fifo)",
}
# gzip, bzip2, xz, zstd, lz4, zip
_COMPRESSED = re.compile(
    rb"\x1f\x8b|BZh[1-9]1AY&SY|\xfd7zXZ\0|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18|PK\x03\x04"
)

_CHECKSUM = slice(148, 156)
_OCTAL = re.compile(rb" *([0-7]*)[ \0]*")
_DECIMAL = re.compile(rb"[0-9]{1,19}")
_RECORD_LENGTH = re.compile(rb"([1-9][0-9]{0,8}) ")
_SPARSE = re.compile(
    rb"GNU\.sparse\..*|SCHILY\.realsize", re.DOTALL
)  # keywords in GNU's and star's forms


class _Header(NamedTuple):
    """What is read of a header."""

    kind: bytes  # the type's letter
    name: bytes  # with ustar's prefix
    link: bytes  # where a link points
    size_bytes: int  # of what follows
    continued: bool  # an old sparse file's header goes on in the next block


class Member(NamedTuple):
    """One member of a tar."""

    name: str  # bytes that are not UTF-8 are Python's surrogates
    header_bytes: int  # where its first header begins
    offset_bytes: int
    size_bytes: int
    is_folder: bool
    problem: str | None  # why it is no file to be read; None: it is one, or a folder


class TarFile(contextlib.AbstractContextManager["TarFile"]):
    """An open tar file, read by ranges; its state is of its opening. PackError: as of `open_regular`."""

    def __init__(self, path: SourcePath) -> None:
        self.path, self._file = path, open_regular(path)
        self.state = self._file.state
        self._window, self._window_at = b"", 0

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, at: int, size: int) -> bytes:
        """Bytes of the file; fewer where it ends before."""
        place = at - self._window_at
        if place < 0 or place + size > len(self._window):
            try:
                self._window, self._window_at, place = (
                    self._file.read_at(max(size, _WINDOW_BYTES), at),
                    at,
                    0,
                )
            except OSError as problem:
                raise PackError(
                    f"{readable(str(self.path))} cannot be read: {problem.strerror}"
                ) from problem
        return self._window[place : place + size]

    def members(self) -> Iterator[Member]:
        """All members in order. PackError: it is damaged, cut off, compressed, no tar, or can be read in two ways."""
        at, changes = 0, dict[bytes, bytes]()
        try:
            while True:
                start, changes = at, {}
                while (
                    header := _parse(self._all(at, BLOCK, "a header or the end"))
                ) and header.kind in _EXTENSIONS:
                    if (size := header.size_bytes) > MOST_EXTENSION_BYTES:
                        raise ValueError(
                            f"expected an extended header of at most {MOST_EXTENSION_BYTES:,} bytes, got {size:,}"
                        )
                    found = _changes(header.kind, self._all(at + BLOCK, size, "an extended header"))
                    if changes.keys() & found.keys():
                        raise ValueError(
                            "expected one extended header of each type, and one name, before a member"
                        )
                    changes |= found
                    at += BLOCK + padded(header.size_bytes, BLOCK)
                if header is None:
                    break
                member = self._member(start, at, header, changes)
                yield member
                at = member.offset_bytes + padded(member.size_bytes, BLOCK)
            if at != start:
                raise ValueError(
                    "expected the member that belongs to the extended header, got a block of zeros"
                )
            self._check_end(at)
        except ValueError as problem:
            if at == 0 and _COMPRESSED.match(self.read(0, BLOCK)):
                raise compressed(self.path) from problem
            raise PackError(
                f"{readable(str(self.path))} is not a tar file, or is damaged: at byte {at}, {problem}. Download or "
                "write it again, or remove it from the source"
            ) from problem

    def _member(self, start: int, at: int, header: _Header, changes: dict[bytes, bytes]) -> Member:
        name = os.fsdecode(changes.get(b"path", header.name))
        size_bytes = int(changes.get(b"size", header.size_bytes))
        offset, continued = at + BLOCK, header.continued
        while continued:
            continued = self._all(offset, BLOCK, "the header of a sparse file")[504] != 0
            offset += BLOCK
        kind = header.kind
        if kind == b"\0" and (header.name.endswith(b"/") or name.endswith("/")):
            kind = _FOLDER  # as before POSIX
        what = _WITHOUT_BYTES.get(kind)
        if what is not None and size_bytes:  # Note [two readings]
            raise ValueError(f"expected 0 bytes after the header of {what}, got {size_bytes:,}")
        if offset + size_bytes > self.state.size_bytes:
            raise self._cut_off(f"member {shown(name)}", offset + size_bytes)
        problem = None
        if kind == _OLD_SPARSE or (changes and any(map(_SPARSE.fullmatch, changes))):
            problem = "a sparse file; add it to the tar without tar's option --sparse"
        elif kind not in (b"0", b"\0", b"7", _FOLDER):
            what = what or f"of type {kind.decode('latin1')!a}"
            target = f" to {shown(os.fsdecode(_text(header.link)))}" if kind in (b"1", b"2") else ""
            problem = f"{what}{target}, not a file; to store the files that links point to, use tar --dereference"
        return Member(name, start, offset, size_bytes, kind == _FOLDER, problem)

    def _check_end(self, at: int) -> None:
        """Two blocks of zeros, then nothing but padding. Note [two readings]"""
        rest = self.state.size_bytes - at
        size = min(max(rest, 2 * BLOCK), _MOST_PADDING_BYTES)
        padding = self._all(at, size, "the two blocks of zeros that end a tar")
        zeros = size - len(padding.lstrip(b"\0"))
        if zeros < size or rest > size:
            raise ValueError(
                f"expected only zeros after the end of the tar, {2 * BLOCK:,} to {_MOST_PADDING_BYTES:,}, got {rest:,} "
                f"bytes, zeros to byte {at + zeros}; if cat has joined tars, join them with tar -A instead"
            )

    def _all(self, at: int, size: int, what: str) -> bytes:
        """As `read`; ValueError where the file ends before."""
        data = self.read(at, size)
        if len(data) < size:
            raise self._cut_off(what, at + size)
        return data

    def _cut_off(self, what: str, end: int) -> ValueError:
        return ValueError(
            f"expected {what} up to byte {end}; the file ends at byte {self.state.size_bytes}"
        )


def compressed(path: SourcePath) -> PackError:
    """The error for a file of which ranges cannot be read."""
    return PackError(
        f"{readable(str(path))} is compressed, so fastpipe cannot read single members from it; unpack it (gunzip, "
        "bunzip2, unxz, zstd -d, lz4 -d, unzip) and pack the tar or its files"
    )


def shown(name: str, most: int = 120) -> str:
    """A name that may hold anything, for messages: in one line, short, with no byte that a terminal acts on."""
    words = ascii(os.fsencode(name[: most + 1]).decode("utf-8", "backslashreplace"))[1:-1]
    return words if len(words) <= most else words[:most] + "..."


def _parse(block: bytes) -> _Header | None:
    """Reads a header of 512 bytes; None: they are zeros. ValueError: it is none, or a damaged one."""
    stored = block[_CHECKSUM]
    # adler32 sums bytes modulo 65,521, in C; half a block's sum is below that.
    total = (
        (zlib.adler32(block[: BLOCK // 2]) & 0xFFFF)
        + (zlib.adler32(block[BLOCK // 2 :]) & 0xFFFF)
        - 2
    )
    if not total:
        return None
    total += 8 * ord(" ") - sum(stored)
    said = _number(stored, "tar header with a checksum")
    # Some old programs added bytes up as signed ones.
    if said != total and said != total - 256 * sum(
        byte > 127 for byte in block[:148] + block[156:]
    ):
        raise ValueError(f"expected a tar header with checksum {total:o} (octal), got {said:o}")
    magic = block[257:263]
    if magic[:5] != b"ustar" and magic != bytes(6):
        raise ValueError(f"expected a tar header of format ustar, GNU or V7, got {magic!r}")
    name = _text(block[:100])
    kind = block[156:157]
    if block[345] and magic == b"ustar\0":
        name = _text(block[345:500]) + b"/" + name
    elif (
        block[345] and kind != _OLD_SPARSE
    ):  # tarfile takes the times of tar --incremental there for the prefix
        raise ValueError(f"expected no prefix of the name in a header of format {magic!r}")
    size_bytes = _number(block[124:136], "size")
    return _Header(kind, name, block[157:257], size_bytes, kind == _OLD_SPARSE and block[482] != 0)


def _changes(kind: bytes, data: bytes) -> dict[bytes, bytes]:
    """An extended header's keywords and values, and "=" and its type, so that two of a type meet."""
    itself = {b"=" + kind.lower(): b""}
    if kind == _LONG_LINK:
        return itself
    if kind == _LONG_NAME and b"\0" not in data:  # tarfile reads on, to the end of the block
        raise ValueError(
            f"expected a long name that ends with a NUL in its {len(data):,} bytes, got none"
        )
    found = {b"path": _text(data)} if kind == _LONG_NAME else _pax_records(data)
    if kind == _GLOBAL_PAX:
        for keyword in found:  # it would apply to every member
            if keyword in (b"path", b"size", b"linkpath") or _SPARSE.fullmatch(keyword):
                raise ValueError(
                    f"expected no {keyword[:40].decode('latin1')!a} in a global pax header"
                )
        return {}
    if not found.get(b"path", b"-"):
        raise ValueError("expected a name in the extended header, got an empty name")
    if not _DECIMAL.fullmatch(size := found.get(b"size", b"0")):
        raise ValueError(f"expected a size in decimal digits in the pax header, got {size[:40]!r}")
    return found | itself


def _pax_records(data: bytes) -> dict[bytes, bytes]:
    """Keyword -> value; of equal keywords the last. ValueError: they do not fill the header exactly."""
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        length = _RECORD_LENGTH.match(data, at)
        end = at + int(length[1]) if length else at
        keyword, equals, value = (
            data[length.end() : end - 1].partition(b"=") if length else (b"", b"", b"")
        )
        if not (keyword and equals) or end > len(data) or data[end - 1 : end] != b"\n":
            raise ValueError(
                f"expected a pax record 'LENGTH KEYWORD=VALUE' and a newline, got {data[at : at + 40]!r}"
            )
        records[keyword] = value
        at = end
    return records


def _number(field: bytes, what: str) -> int:
    """Octal digits, or GNU's base-256: a set first bit, and bytes."""
    if field[0] == 0x80:
        value = int.from_bytes(field[1:], "big")
        if value < 2**63:
            return value
    elif (digits := _OCTAL.fullmatch(field)) is not None:
        return int(digits[1] or b"0", 8)
    raise ValueError(f"expected a {what} from 0 to 2**63 - 1, in octal or base-256, got {field!r}")


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]
