"""A block of a tar file -> its header's fields; the bytes of an extended header -> what it changes. Nothing is guessed.

Python's tarfile takes a header that it cannot read for the end of the archive, and extended headers of any size.

Sources: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header"; GNU tar, "Basic Tar Format".
"""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple

from fastpipe.format.tar_writer import BLOCK

FILES = frozenset([b"0", b"\0", b"7"])
FOLDER = b"5"
OLD_SPARSE = b"S"
PAX, GLOBAL_PAX, LONG_NAME, LONG_LINK = frozenset([b"x", b"X"]), b"g", b"L", b"K"
EXTENSIONS = PAX | {GLOBAL_PAX, LONG_NAME, LONG_LINK}
# What has no bytes of its own; a header that gives it some is read in two ways.
WITHOUT_BYTES = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    FOLDER: "a folder",
    b"6": "a pipe (fifo)",
}
LINKS = frozenset([b"1", b"2"])

_CHECKSUM = slice(148, 156)
_OCTAL = re.compile(rb" *([0-7]*)[ \0]*")
_DECIMAL = re.compile(rb"[0-9]{1,19}")
_RECORD_LENGTH = re.compile(rb"([1-9][0-9]{0,8}) ")


class Header(NamedTuple):
    """What is read of a header.

    Attributes:
        kind: the type's letter.
        name, link: bytes of the fields, up to their first NUL; the name with ustar's prefix.
        size_bytes: of what follows.
        continued: an old sparse file's header goes on in the next block.
    """

    kind: bytes
    name: bytes
    link: bytes
    size_bytes: int
    continued: bool


def parse(block: bytes) -> Header | None:
    """Reads a header.

    Args:
        block: 512 bytes.

    Returns:
        The header, or None for a block of zeros.

    Raises:
        ValueError: it is no header, or a damaged one; the message says what was expected and what is there.
    """
    stored = block[_CHECKSUM]
    # adler32 sums bytes modulo 65,521, in C; half a block's sum is below that.
    total = (zlib.adler32(block[: BLOCK // 2]) & 0xFFFF) + (zlib.adler32(block[BLOCK // 2 :]) & 0xFFFF) - 2
    if not total:
        return None
    total += 8 * ord(" ") - sum(stored)
    said = _number(stored, "tar header with a checksum")
    if said != total:
        # Some old programs added bytes up as signed ones.
        high_bytes = sum(byte > 127 for byte in block) - sum(byte > 127 for byte in stored)
        if said != total - 256 * high_bytes:
            raise ValueError(f"expected a tar header with checksum {total:o} (octal), got {said:o}")
    magic = block[257:263]
    if magic[:5] != b"ustar" and magic != bytes(6):
        raise ValueError(f"expected a tar header of format ustar, GNU or V7, got {magic!r}")
    name = _text(block[:100])
    kind = block[156:157]
    if block[345] and magic == b"ustar\0":
        name = _text(block[345:500]) + b"/" + name
    elif block[345] and kind != OLD_SPARSE:  # tar --incremental puts times there, and tarfile takes them for the prefix
        raise ValueError(f"expected no prefix of the name in a header of format {magic!r}")
    size_bytes = _number(block[124:136], "size")
    return Header(kind, name, _text(block[157:257]), size_bytes, kind == OLD_SPARSE and block[482] != 0)


def continues(block: bytes) -> bool:
    """Whether a further block of an old sparse file's header is followed by one more."""
    return block[504] != 0


class Changes:
    """What the extended headers before a member change in its own header.

    Attributes:
        name, size_bytes: in place of the header's; None: the header's.
        sparse: its bytes are those of a sparse file, in one of GNU's or star's forms.
    """

    def __init__(self) -> None:
        self.name: bytes | None = None
        self.size_bytes: int | None = None
        self.sparse = False
        self._kinds: set[bytes] = set()

    def take(self, kind: bytes, data: bytes) -> None:
        """Adds an extended header of one of the kinds above.

        Raises:
            ValueError: it is damaged, or it can be read in two ways.
        """
        kind = b"x" if kind in PAX else kind
        if kind in self._kinds and kind != GLOBAL_PAX:
            raise ValueError(f"expected one extended header of type {kind.decode()!r} before a member, got two")
        self._kinds.add(kind)
        if kind == LONG_LINK:
            return
        if kind == LONG_NAME and b"\0" not in data:  # tarfile reads on, to the end of the block
            raise ValueError(f"expected a long name that ends with a NUL in its {len(data):,} bytes, got none")
        for keyword, value in ({b"path": _text(data)} if kind == LONG_NAME else pax_records(data)).items():
            sparse = keyword.startswith(b"GNU.sparse.") or keyword == b"SCHILY.realsize"
            if kind == GLOBAL_PAX and (sparse or keyword in (b"path", b"size", b"linkpath")):
                raise ValueError(
                    f"expected no {keyword.decode()!r} in a global pax header, because it would apply to every member"
                )
            if keyword == b"path":
                if self.name is not None or not value:
                    what = "two" if value else "an empty name"
                    raise ValueError(f"expected one name in the extended headers before a member, got {what}")
                self.name = value
            elif keyword == b"size":
                if not _DECIMAL.fullmatch(value):
                    raise ValueError(f"expected a size in decimal digits in the pax header, got {value[:40]!r}")
                self.size_bytes = int(value)
            self.sparse |= sparse


def pax_records(data: bytes) -> dict[bytes, bytes]:
    """The records of a pax extended header, keyword -> value; of equal keywords the last.

    Raises:
        ValueError: they do not fill it exactly.
    """
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        length = _RECORD_LENGTH.match(data, at)
        end = at + int(length[1]) if length else at
        keyword, equals, value = data[length.end() : end - 1].partition(b"=") if length else (b"", b"", b"")
        if not (keyword and equals) or end > len(data) or data[end - 1 : end] != b"\n":
            raise ValueError(f"expected a pax record 'LENGTH KEYWORD=VALUE' and a newline, got {data[at : at + 40]!r}")
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
