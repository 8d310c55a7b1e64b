"""A file of text in any encoding -> the same as UTF-8.

Files are UTF-8, with or without BOM, unless a user says otherwise. UTF-16 and UTF-32 (Excel's "Unicode text",
PowerShell's output) are told by their first bytes: no other text begins so.
"""

from __future__ import annotations

import codecs
import io
from typing import Any, BinaryIO, cast

from fastpipe.errors import PackError, readable

HINT = "--encoding says another one, such as cp1252 of Excel on Windows"
_PIECE_BYTES = 1 << 16
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # it begins as UTF-16's does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def as_utf8(file: BinaryIO, encoding: str | None, name: str) -> BinaryIO:
    """The file as UTF-8; `encoding` None: as its first bytes tell. PackError, on reading: it has other bytes."""
    encoding = encoding or _told_by(cast("io.BufferedReader", file).peek(4)[:4])
    if encoding is None:
        return file
    return io.BufferedReader(_Recoded(file, encoding, name), _PIECE_BYTES)


def _told_by(head: bytes) -> str | None:
    """The encoding that the first bytes of a file tell; None: UTF-8, or any other."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    if len(head) == 4 and head[1] == head[3] == 0 and head[0] and head[2]:
        return "utf-16-le"
    if len(head) == 4 and head[0] == head[2] == 0 and head[1] and head[3]:
        return "utf-16-be"
    return None


class _Recoded(io.RawIOBase):
    """Text in any encoding as UTF-8, a piece at a time."""

    def __init__(self, file: BinaryIO, encoding: str, name: str) -> None:
        super().__init__()
        self._file, self._encoding, self._name = file, encoding, name
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._waiting = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._waiting and not self._ended:
            piece = self._file.read(_PIECE_BYTES)
            self._ended = not piece
            try:
                text = self._decoder.decode(piece, final=self._ended)
            except UnicodeError as problem:
                raise PackError(
                    f"{readable(self._name)}: expected text in {self._encoding} ({problem}); {HINT}"
                ) from problem
            self._waiting = text.encode("utf-8", "surrogatepass")
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._waiting))
        view[:count] = self._waiting[:count]
        self._waiting = self._waiting[count:]
        return count
