"""The headers of a tar's members -> name, kind and size. No byte is trusted.

Note [two readings]
Where programs read a header in different ways, one of them sees members that another does not. Such
a tar is refused: sizes of members that have no bytes, two names for one member, names and sizes in
global headers, anything behind the end.

Sources: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header"; GNU tar, "Basic
Tar Format".
"""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple

from fastpipe.dataset.format.tar_writer import BLOCK

# The header has the type of its member as a letter.
FILES = frozenset([b"0", b"\0", b"7"])
FOLDER = b"5"
OLD_SPARSE = b"S"
KINDS_WITHOUT_BYTES = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    FOLDER: "a folder",
    b"6": "a pipe (fifo)",
}
LINKS = frozenset([b"1", b"2"])
# Extended headers stand before the member that they belong to.
_GLOBAL_PAX = b"g"
_LONG_NAME = b"L"
_LONG_LINK = b"K"
EXTENDED = frozenset([b"x", b"X", _GLOBAL_PAX, _LONG_NAME, _LONG_LINK])

_CHECKSUM = slice(148, 156)
# Old programs write spaces before a number, and a space or a NUL behind it.
_OCTAL = re.compile(rb" *([0-7]*)[ \0]*")
_DECIMAL = re.compile(rb"[0-9]{1,19}")
_RECORD_LENGTH = re.compile(rb"([1-9][0-9]{0,8}) ")
# Keywords of sparse files in GNU's and star's forms.
_SPARSE = re.compile(rb"GNU\.sparse\..*|SCHILY\.realsize", re.DOTALL)


class Header(NamedTuple):
    kind: bytes  # the type's letter
    name: bytes  # with ustar's prefix
    link_field: bytes  # where a link points
    size_bytes: int  # of the data behind the header
    is_continued: bool  # the header of an old sparse file goes on in the next block


def parse_header(block: bytes) -> Header | None:
    """Parses a block of 512 bytes; None if all are zeros. ValueError: not a header, or damaged."""
    stored_field = block[_CHECKSUM]
    # The low half of adler32 is 1 plus the sum of the bytes, modulo 65,521, which the sum of half a
    # block cannot reach. There may be millions of headers, and Python's `sum` takes four times as
    # long.
    half = BLOCK // 2
    first_sum = (zlib.adler32(block[:half]) & 0xFFFF) - 1
    second_sum = (zlib.adler32(block[half:]) & 0xFFFF) - 1
    byte_sum = first_sum + second_sum
    if byte_sum == 0:
        return None
    # The checksum was made with spaces in its own field.
    checksum = byte_sum - sum(stored_field) + 8 * ord(" ")
    stored = _parse_number(stored_field, "tar header with a checksum")
    if stored != checksum and stored != _signed_checksum(block, checksum):
        raise ValueError(
            f"expected a tar header with checksum {checksum:o} (octal), got {stored:o}"
        )

    magic = block[257:263]
    if magic[:5] != b"ustar" and magic != bytes(6):
        raise ValueError(
            f"expected a tar header of format ustar, GNU or V7, got {magic!r}"
        )
    name = cut_at_nul(block[:100])
    kind = block[156:157]
    if block[345]:
        if magic == b"ustar\0":
            name = cut_at_nul(block[345:500]) + b"/" + name
        elif kind != OLD_SPARSE:
            # Python's tarfile takes the times of tar --incremental there for the prefix.
            raise ValueError(
                f"expected no prefix of the name in a header of format {magic!r}"
            )
    size_bytes = _parse_number(block[124:136], "size")
    is_continued = kind == OLD_SPARSE and block[482] != 0
    return Header(kind, name, block[157:257], size_bytes, is_continued)


def _signed_checksum(block: bytes, checksum: int) -> int:
    """The checksum of some old programs, which added up bytes as signed numbers."""
    # A signed byte over 127 counts 256 less. The field of the checksum has spaces.
    without_checksum = block[:148] + block[156:]
    negative_count = sum(byte > 127 for byte in without_checksum)
    return checksum - 256 * negative_count


def parse_extended(kind: bytes, data: bytes) -> dict[bytes, bytes]:
    """Keywords and values of an extended header, such as "path" and "size".

    A keyword such as b"=x" marks the kind of the header, so that two headers of one kind have a
    keyword in common: the caller refuses them.

    ValueError: it is damaged, or programs read it in different ways.
    """
    marker = {b"=" + kind.lower(): b""}
    if kind == _LONG_LINK:
        return marker
    if kind == _LONG_NAME:
        # Without a NUL, Python's tarfile reads on to the end of the block.
        if b"\0" not in data:
            raise ValueError(
                f"expected a long name that ends with a NUL in its {len(data):,} bytes, got none"
            )
        records = {b"path": cut_at_nul(data)}
    else:
        records = _parse_pax_records(data)

    if kind == _GLOBAL_PAX:
        # Names and sizes here would apply to every member, in programs that read them.
        for keyword in records:
            if keyword in (b"path", b"size", b"linkpath") or _SPARSE.fullmatch(keyword):
                shown_keyword = ascii(keyword[:40].decode("latin1"))
                raise ValueError(f"expected no {shown_keyword} in a global pax header")
        return {}
    if b"path" in records and not records[b"path"]:
        raise ValueError("expected a name in the extended header, got an empty name")
    size = records.get(b"size", b"0")
    if not _DECIMAL.fullmatch(size):
        raise ValueError(
            f"expected a size in decimal digits in the pax header, got {size[:40]!r}"
        )
    return records | marker


def is_sparse(records: dict[bytes, bytes]) -> bool:
    """Whether the records of an extended header are those of a sparse file."""
    return any(_SPARSE.fullmatch(keyword) for keyword in records)


def cut_at_nul(field: bytes) -> bytes:
    """The bytes of a field up to the first NUL."""
    return field.partition(b"\0")[0]


def _parse_pax_records(data: bytes) -> dict[bytes, bytes]:
    """Keyword -> value; of equal keywords the last. ValueError: they do not fill the header."""
    records: dict[bytes, bytes] = {}
    start = 0
    while start < len(data):
        record = b""
        length = _RECORD_LENGTH.match(data, start)
        if length is not None:
            # The length counts all of the record: its own digits, the space and the newline.
            end = start + int(length[1])
            if end <= len(data) and data[end - 1 : end] == b"\n":
                record = data[length.end() : end - 1]
        keyword, equals, value = record.partition(b"=")
        if not keyword or not equals:
            raise ValueError(
                "expected a pax record 'LENGTH KEYWORD=VALUE' and a newline, got "
                f"{data[start : start + 40]!r}"
            )
        records[keyword] = value
        start = end
    return records


def _parse_number(field: bytes, name: str) -> int:
    """Octal digits, or GNU's base-256: the first bit is set, and the other bytes are the number."""
    if field[0] == 0x80:
        value = int.from_bytes(field[1:], "big")
        # Offsets in files are signed numbers of 64 bits.
        if value < 2**63:
            return value
    else:
        digits = _OCTAL.fullmatch(field)
        if digits is not None:
            return int(digits[1] or b"0", 8)
    raise ValueError(
        f"expected a {name} from 0 to 2**63 - 1, in octal or base-256, got {field!r}"
    )
