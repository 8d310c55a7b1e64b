"""A tar file -> its members, from header to header: names, places, sizes, and what is against them. No byte is trusted.

Note [two readings]
Where programs read a header in different ways, one of them sees members that another does not. Such a tar is refused:
sizes of what has no bytes, two names for one member, names and sizes in global headers, anything behind the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.format.tar_writer import BLOCK, padded
from fastpipe.packing.source import tar_headers as headers
from fastpipe.packing.source.files import SourcePath, opened

MOST_EXTENSION_BYTES = 1 << 20  # of an extended header: macOS and GNU tar put a file's attributes there
MOST_PADDING_BYTES = 1 << 20  # behind the end; a record is 10,240 bytes with most programs

_WINDOW_BYTES = 4096  # read at once: a small sample's headers, label and note
_COMPRESSED = {
    b"\x1f\x8b": "gzip: gunzip or pigz -d",
    b"BZh": "bzip2: bunzip2",
    b"\xfd7zXZ\0": "xz: unxz",
    b"\x28\xb5\x2f\xfd": "zstd: zstd -d",
    b"\x04\x22\x4d\x18": "lz4: lz4 -d",
    b"PK\x03\x04": "zip: unzip",
}


class Member(NamedTuple):
    """One member of a tar.

    Attributes:
        name: as it stands there; bytes that are not UTF-8 as Python's surrogates.
        header_bytes: where its first header begins.
        offset_bytes, size_bytes: of its content.
        is_folder: it is one.
        problem: why it is no file to be read; None: it is one, or a folder.
    """

    name: str
    header_bytes: int
    offset_bytes: int
    size_bytes: int
    is_folder: bool
    problem: str | None


class TarFile:
    """An open tar file, read by ranges. Close it, or use it in a `with`.

    Attributes:
        path: of the file.
        state: when it was opened.

    Raises:
        PackError: it is no regular file, or cannot be opened.
    """

    def __init__(self, path: SourcePath) -> None:
        self.path = path
        try:
            self._file = opened(path)
        except OSError as problem:
            raise PackError(f"{readable(str(path))} cannot be opened: {problem.strerror}") from problem
        self.state = self._file.state
        self._window, self._window_at = b"", 0
        if not self.state.is_regular:
            self.close()
            raise PackError(
                f"{readable(str(path))} is not a regular file; expected a tar file, because fastpipe reads no streams"
            )

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> TarFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, at: int, size: int) -> bytes:
        """Bytes of the file; fewer where it ends before.

        Raises:
            PackError: the disk refuses.
        """
        place = at - self._window_at
        if place < 0 or place + size > len(self._window):
            try:
                self._window, self._window_at, place = self._file.read_at(max(size, _WINDOW_BYTES), at), at, 0
            except OSError as problem:
                raise PackError(f"{readable(str(self.path))} cannot be read: {problem.strerror}") from problem
        return self._window[place : place + size]

    def members(self) -> Iterator[Member]:
        """All members in order.

        Raises:
            PackError: the file is damaged, cut off, compressed, no tar, or can be read in two ways.
        """
        at = 0
        while True:
            start, changes = at, headers.Changes()
            while (header := self._header(at)) is not None and header.kind in headers.EXTENSIONS:
                body = self._extension(at, header)
                try:
                    changes.take(header.kind, body)
                except ValueError as problem:
                    raise self._refuse(at, str(problem)) from problem
                at += BLOCK + padded(header.size_bytes, BLOCK)
            if header is None:
                break
            member = self._member(start, at, header, changes)
            yield member
            at = member.offset_bytes + padded(member.size_bytes, BLOCK)
        if at != start:
            raise self._refuse(at, "expected the member that belongs to the extended header, got a block of zeros")
        self._check_end(at)

    def _header(self, at: int) -> headers.Header | None:
        block = self.read(at, BLOCK)
        try:
            if len(block) < BLOCK:
                expected = "expected a header, or the two blocks of zeros that end a tar"
                raise ValueError(f"{expected}; the file ends at byte {self.state.size_bytes}")
            return headers.parse(block)
        except ValueError as problem:
            if at == 0:
                raise self._no_tar(block, str(problem)) from problem
            raise self._refuse(at, str(problem)) from problem

    def _no_tar(self, start: bytes, problem: str) -> PackError:
        path = readable(str(self.path))
        for magic, words in _COMPRESSED.items():
            if start.startswith(magic):
                name, _, command = words.partition(": ")
                return PackError(
                    f"{path} is compressed ({name}), so fastpipe cannot read single members from it; unpack it "
                    f"({command}) and pack the tar or folder"
                )
        expected = "Expected a folder with one folder of images for each class, or tar files"
        return PackError(f"{path} is not a tar file, or is damaged: at byte 0, {problem}. {expected}")

    def _extension(self, at: int, header: headers.Header) -> bytes:
        if header.size_bytes > MOST_EXTENSION_BYTES:
            expected = f"expected an extended header of at most {MOST_EXTENSION_BYTES:,} bytes"
            raise self._refuse(at, f"{expected}, got {header.size_bytes:,}")
        body = self.read(at + BLOCK, header.size_bytes)
        if len(body) < header.size_bytes:
            raise self._cut_off(at, "an extended header", at + BLOCK + header.size_bytes)
        return body

    def _member(self, start: int, at: int, header: headers.Header, changes: headers.Changes) -> Member:
        name = os.fsdecode(header.name if changes.name is None else changes.name)
        size_bytes = header.size_bytes if changes.size_bytes is None else changes.size_bytes
        offset = at + BLOCK
        continued = header.continued
        while continued:
            block = self.read(offset, BLOCK)
            if len(block) < BLOCK:
                raise self._cut_off(at, "the header of a sparse file", offset + BLOCK)
            offset, continued = offset + BLOCK, headers.continues(block)
        kind = header.kind
        if kind == b"\0" and (header.name.endswith(b"/") or name.endswith("/")):
            kind = headers.FOLDER  # as before POSIX
        what = headers.WITHOUT_BYTES.get(kind)
        if what is not None and size_bytes:  # Note [two readings]
            expected = f"expected 0 bytes after the header of {what}"
            raise self._refuse(at, f"{expected}, got {size_bytes:,}; programs disagree where the next member starts")
        if offset + size_bytes > self.state.size_bytes:
            raise self._cut_off(at, f"member {shown(name)}", offset + size_bytes)
        problem = _problem(kind, header, changes)
        return Member(name, start, offset, size_bytes, kind == headers.FOLDER, problem)

    def _check_end(self, at: int) -> None:
        """Two blocks of zeros, then nothing but padding. Note [two readings]"""
        rest = self.state.size_bytes - at
        if rest < 2 * BLOCK:
            expected = "expected the two blocks of zeros that end a tar"
            raise self._refuse(at, f"{expected}; the file ends at byte {self.state.size_bytes}")
        padding = self.read(at, min(rest, MOST_PADDING_BYTES))
        other = len(padding) - len(padding.lstrip(b"\0"))
        if other < 2 * BLOCK:
            raise self._refuse(at, f"expected two blocks of zeros, the end of the tar; byte {at + other} is not 0")
        if other < len(padding) or rest > MOST_PADDING_BYTES:
            got = f"other bytes, the first at byte {at + other}" if other < len(padding) else f"{rest:,} bytes"
            words = f"expected only zeros after the end of the tar, at most {MOST_PADDING_BYTES:,} bytes, got {got}"
            raise self._refuse(at, words, "If cat joined several tars into this file, join them with tar -A instead")

    def _cut_off(self, at: int, what: str, end: int) -> PackError:
        return self._refuse(at, f"expected {what} up to byte {end}; the file ends at byte {self.state.size_bytes}")

    def _refuse(self, at: int, problem: str, what_to_do: str = "") -> PackError:
        todo = what_to_do or "Download or write it again, or remove it from the source"
        return PackError(f"{readable(str(self.path))} cannot be used, at byte {at}: {problem}. {todo}")


def shown(name: str, most: int = 120) -> str:
    """A name that may hold anything, for messages: in one line, short, with no byte that a terminal acts on."""
    words = ascii(os.fsencode(name[: most + 1]).decode("utf-8", "backslashreplace"))[1:-1]
    return words if len(words) <= most else words[:most] + "..."


def _problem(kind: bytes, header: headers.Header, changes: headers.Changes) -> str | None:
    if changes.sparse or kind == headers.OLD_SPARSE:
        return "a sparse file; add it to the tar without tar's option --sparse"
    if kind in headers.FILES or kind == headers.FOLDER:
        return None
    what = headers.WITHOUT_BYTES.get(kind, f"of type {kind.decode('latin1')!a}")
    target = f" to {shown(os.fsdecode(header.link))}" if kind in headers.LINKS else ""
    return f"{what}{target}, not a file; to store the files that links point to, use tar's option --dereference"
