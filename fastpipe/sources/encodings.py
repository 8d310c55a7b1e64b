"""A text file in any encoding -> the same file in UTF-8.

Files are UTF-8, with or without BOM, unless the user says otherwise. UTF-16 and UTF-32 (Excel's
"Unicode text", PowerShell's output) are recognised by their first bytes, with which no other text
begins.
"""

from __future__ import annotations

import codecs
import io
from typing import Any, BinaryIO, cast

from fastpipe.errors import PackError, readable

ENCODING_HINT = "--encoding says another one, such as cp1252 of Excel on Windows"
_PIECE_BYTES = 1 << 16
# UTF-32 stands first, because its little-endian mark begins like that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def open_as_utf8(file: BinaryIO, encoding: str | None, name: str) -> BinaryIO:
    """Returns a file with the same text in UTF-8. By default its first bytes say the encoding.

    Raises:
        PackError: later, on reading, if the file has other bytes.
    """
    encoding = encoding or detect_encoding(cast("io.BufferedReader", file).peek(4)[:4])
    if encoding is None:
        return file
    return io.BufferedReader(_Utf8File(file, encoding, name), _PIECE_BYTES)


def detect_encoding(head: bytes) -> str | None:
    """The encoding of a file with these first four bytes; None for UTF-8 or any other."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    if len(head) < 4:
        return None
    # Without a mark: of two ASCII characters in UTF-16, every second byte is zero.
    zeros = [byte == 0 for byte in head]
    if zeros == [False, True, False, True]:
        return "utf-16-le"
    if zeros == [True, False, True, False]:
        return "utf-16-be"
    return None


class _Utf8File(io.RawIOBase):
    """Reads a text file in some encoding as UTF-8, a piece at a time."""

    def __init__(self, file: BinaryIO, encoding: str, name: str) -> None:
        super().__init__()
        self._file = file
        self._encoding = encoding
        self._name = name
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._waiting = b""
        self._is_at_end = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        # A piece may be a part of one character, of which nothing is decoded yet.
        while not self._waiting and not self._is_at_end:
            self._waiting = self._read_piece()
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._waiting))
        view[:count] = self._waiting[:count]
        self._waiting = self._waiting[count:]
        return count

    def _read_piece(self) -> bytes:
        piece = self._file.read(_PIECE_BYTES)
        self._is_at_end = not piece
        try:
            text = self._decoder.decode(piece, final=self._is_at_end)
        except UnicodeError as problem:
            raise PackError(
                f"{readable(self._name)}: expected text in {self._encoding} ({problem}); "
                f"{ENCODING_HINT}"
            ) from problem
        # UTF-7 can hold half of a surrogate pair. The reader of this file refuses it, as it does
        # with other bytes that are not UTF-8.
        return text.encode("utf-8", "surrogatepass")
