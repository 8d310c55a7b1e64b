"""A tar file -> its members, from header to header, and why one is not a file.

Python's tarfile takes a header that it cannot read for the end of the archive, and accepts extended
headers of any size. See also Note [two readings] in `tar_header`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from fastpipe.dataset.format.tar_writer import BLOCK, padded
from fastpipe.errors import PackError, readable
from fastpipe.sources.files import SourcePath, open_regular
from fastpipe.sources.tars.tar_header import (
    EXTENDED,
    FILES,
    FOLDER,
    KINDS_WITHOUT_BYTES,
    LINKS,
    OLD_SPARSE,
    Header,
    cut_at_nul,
    is_sparse,
    parse_extended,
    parse_header,
)

# The limit of an extended header. macOS and GNU tar put a file's attributes there, which are small;
# Python's tarfile reads any size into memory.
MAX_EXTENSION_BYTES = 1 << 20
# Zeros may follow the end. Most programs fill a record of 10,240 bytes.
_MAX_PADDING_BYTES = 1 << 20
# A read fetches at least this much: the headers, the label and the note of a small sample.
_WINDOW_BYTES = 4096
# os.fsdecode does the same with these, but more slowly.
_NAME_ENCODING = sys.getfilesystemencoding()
_NAME_ERRORS = sys.getfilesystemencodeerrors()
# The first bytes of gzip, bzip2, xz, zstd, lz4 and zip.
_COMPRESSED = re.compile(
    rb"\x1f\x8b|BZh[1-9]1AY&SY|\xfd7zXZ\0|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18|PK\x03\x04"
)


class Member(NamedTuple):
    """One member of a tar."""

    name: str  # bytes that are not UTF-8 are Python's surrogates
    header_bytes: int  # offset of its first header
    offset_bytes: int  # of its content
    size_bytes: int
    is_folder: bool
    # Why it is not a file that can be read; None: a file or a folder.
    problem: str | None


class TarFile(contextlib.AbstractContextManager["TarFile"]):
    """An open tar file, read by ranges.

    `state` is that of its opening. PackError: as of `open_regular`.
    """

    def __init__(self, path: SourcePath) -> None:
        self.path = path
        self._file = open_regular(path)
        self.state = self._file.state
        # The bytes that were read last, and their offset.
        self._window = b""
        self._window_offset = 0

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file; fewer where it ends before."""
        start = offset - self._window_offset
        if start < 0 or start + size > len(self._window):
            try:
                window_bytes = max(size, _WINDOW_BYTES)
                self._window = self._file.read_at(window_bytes, offset)
            except OSError as problem:
                raise PackError(
                    f"{readable(self.path)} cannot be read: {problem.strerror}"
                ) from problem
            self._window_offset = offset
            start = 0
        return self._window[start : start + size]

    def members(self) -> Iterator[Member]:
        """All members in order.

        PackError: the file is damaged, cut off, compressed or not a tar, or programs read it in
        different ways.
        """
        offset = 0
        header = None
        try:
            while True:
                first_header = offset
                # Extended headers stand before the header of their member, and override it.
                records: dict[bytes, bytes] = {}
                header = self._header(offset)
                while header is not None and header.kind in EXTENDED:
                    self._add_records(records, header, offset + BLOCK)
                    offset += BLOCK + padded(header.size_bytes, BLOCK)
                    header = self._header(offset)
                if header is None:
                    break
                member = self._member(first_header, offset, header, records)
                yield member
                offset = member.offset_bytes + padded(member.size_bytes, BLOCK)

            # The archive ends behind an extended header.
            if offset != first_header:
                raise ValueError(
                    "expected the member that belongs to the extended header, got a block of zeros"
                )
            self._check_end(offset)
        except ValueError as problem:
            # The first header tells best what is wrong with a file that is no tar.
            if offset == 0 and _COMPRESSED.match(self.read(0, BLOCK)):
                raise compressed_error(self.path) from problem
            begins_as_tar = offset > 0 or header is not None
            if not begins_as_tar and not self.path.name.lower().endswith(".tar"):
                raise PackError(
                    f"{readable(self.path)} is not a source that fastpipe reads: expected a folder of "
                    "images, a tar, or a file such as .csv, .jsonl, .json, .parquet or .arrow. Pass "
                    "the folder of your images"
                ) from problem
            raise PackError(
                f"{readable(self.path)} is not a tar file, or is damaged: at byte {offset}, "
                f"{problem}. Download or write it again, or remove it from the source"
            ) from problem

    def _header(self, offset: int) -> Header | None:
        """The header at an offset; None at the end of the archive."""
        return parse_header(self._read_fully(offset, BLOCK, "a header or the end"))

    def _add_records(
        self, records: dict[bytes, bytes], header: Header, offset: int
    ) -> None:
        """Adds the records of an extended header, whose content is at `offset`."""
        size = header.size_bytes
        if size > MAX_EXTENSION_BYTES:
            raise ValueError(
                f"expected an extended header of at most {MAX_EXTENSION_BYTES:,} bytes, got "
                f"{size:,}"
            )
        new = parse_extended(
            header.kind, self._read_fully(offset, size, "an extended header")
        )
        # Programs do not agree on which of two counts. See Note [two readings].
        if not records.keys().isdisjoint(new):
            raise ValueError(
                "expected one extended header of each type, and one name, before a member"
            )
        records.update(new)

    def _member(
        self,
        first_header: int,
        offset: int,
        header: Header,
        records: dict[bytes, bytes],
    ) -> Member:
        """The member whose own header is at `offset`; `records` are of its extended headers."""
        written_name = records.get(b"path", header.name)
        name = written_name.decode(_NAME_ENCODING, _NAME_ERRORS)
        size_bytes = int(records.get(b"size", header.size_bytes))
        offset += BLOCK
        # The header of an old sparse file may go on over several blocks.
        is_continued = header.is_continued
        while is_continued:
            block = self._read_fully(offset, BLOCK, "the header of a sparse file")
            is_continued = block[504] != 0
            offset += BLOCK

        # Old tars mark folders by the slash at the end of their name alone.
        kind = header.kind
        if kind == b"\0" and (header.name.endswith(b"/") or name.endswith("/")):
            kind = FOLDER
        # Some programs skip these bytes, and others read headers there. See Note [two readings].
        if size_bytes and kind in KINDS_WITHOUT_BYTES:
            raise ValueError(
                f"expected 0 bytes after the header of {KINDS_WITHOUT_BYTES[kind]}, got "
                f"{size_bytes:,}"
            )
        # It is checked here, and not when the member is read, which may be hours later.
        if offset + size_bytes > self.state.size_bytes:
            raise self._cut_off_error(
                f"member {shorten_name(name)}", offset + size_bytes
            )

        problem = None
        if kind == OLD_SPARSE or (records and is_sparse(records)):
            problem = "a sparse file; add it to the tar without tar's option --sparse"
        elif kind not in FILES and kind != FOLDER:
            problem = _describe_other_kind(kind, header)
        return Member(name, first_header, offset, size_bytes, kind == FOLDER, problem)

    def _check_end(self, offset: int) -> None:
        """The end is two blocks of zeros, then nothing but padding. See Note [two readings]"""
        rest = self.state.size_bytes - offset
        size = min(max(rest, 2 * BLOCK), _MAX_PADDING_BYTES)
        padding = self._read_fully(
            offset, size, "the two blocks of zeros that end a tar"
        )
        # Another archive, joined with cat, would begin here, and most programs would not see it.
        zero_count = size - len(padding.lstrip(b"\0"))
        if zero_count < size or rest > size:
            raise ValueError(
                f"expected only zeros after the end of the tar, {2 * BLOCK:,} to "
                f"{_MAX_PADDING_BYTES:,}, got {rest:,} bytes, zeros to byte "
                f"{offset + zero_count}; if cat has joined tars, join them with tar -A instead"
            )

    def _read_fully(self, offset: int, size: int, content: str) -> bytes:
        """As `read`; ValueError where the file ends before."""
        data = self.read(offset, size)
        if len(data) < size:
            raise self._cut_off_error(content, offset + size)
        return data

    def _cut_off_error(self, content: str, end: int) -> ValueError:
        return ValueError(
            f"expected {content} up to byte {end}; the file ends at byte {self.state.size_bytes}"
        )


def _describe_other_kind(kind: bytes, header: Header) -> str:
    """Why a member that is neither file nor folder cannot be packed."""
    description = KINDS_WITHOUT_BYTES.get(kind, f"of type {kind.decode('latin1')!a}")
    if kind in LINKS:
        target = os.fsdecode(cut_at_nul(header.link_field))
        description += f" to {shorten_name(target)}"
    return (
        f"{description}, not a file; to store the files that links point to, use tar "
        "--dereference"
    )


def compressed_error(path: SourcePath) -> PackError:
    """The error for a file of which ranges cannot be read."""
    return PackError(
        f"{readable(path)} is compressed, so fastpipe cannot read single members from it; "
        "unpack it (gunzip, bunzip2, unxz, zstd -d, lz4 -d, unzip) and pack the tar or its files"
    )


def shorten_name(name: str, max_characters: int = 120) -> str:
    """A name that may hold anything, for messages: one line, short, no byte a terminal acts on."""
    encoded = os.fsencode(name[: max_characters + 1])
    quoted = ascii(encoded.decode("utf-8", "backslashreplace"))
    text = quoted[1:-1]
    if len(text) > max_characters:
        return text[:max_characters] + "..."
    return text
