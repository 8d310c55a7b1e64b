"""A JSON file of any size -> its entries one by one, so that memory holds only one of them."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from fastpipe.errors import PackError, readable
from fastpipe.sources.encodings import ENCODING_HINT, open_as_utf8
from fastpipe.sources.files import SourcePath, open_unchanged

_MAX_ENTRY_CHARACTERS = 16 << 20
_CHUNK_BYTES = 1 << 20
# A value is complete where one of these follows it. At the end of a chunk, a number may go on.
_AFTER_VALUE = frozenset(" \t\r\n,:]}")
_SPACES = re.compile(r"[ \t\r\n]*")


def object_entries(path: SourcePath) -> Iterator[tuple[str, int, Any]]:
    """The entries of all lists of a JSON object: name of the list, number in it, and value.

    A value that is not a list has the number -1. PackError: the file cannot be parsed.
    """
    try:
        with open_unchanged(path) as file:
            parser = _Parser(file)
            for _ in parser.items("{", "}"):
                name = parser.value()
                if not isinstance(name, str):
                    raise ValueError(f"expected a name, got {name!r:.60}")
                parser.take(":")
                if parser.peek() != "[":
                    yield name, -1, parser.value()
                    continue
                for number, _ in enumerate(parser.items("[", "]")):
                    yield name, number, parser.value()
            parser.take("")
    except (ValueError, RecursionError) as problem:
        raise PackError(
            f"{readable(path)} is damaged or not a JSON object with lists, as COCO has them: "
            f"{problem}"
        ) from problem


def array_entries(path: SourcePath, encoding: str | None = None) -> Iterator[Any]:
    """The entries of a file that is a JSON array. PackError: the file cannot be parsed."""
    try:
        with open_unchanged(path) as file:
            parser = _Parser(open_as_utf8(file, encoding, str(path)))
            for _ in parser.items("[", "]"):
                yield parser.value()
            parser.take("")
    except (ValueError, RecursionError) as problem:
        hint = ""
        if isinstance(problem, UnicodeDecodeError):
            hint = f". {ENCODING_HINT}"
        raise PackError(
            f"{readable(path)} is damaged or not a JSON array: {problem}{hint}"
        ) from problem


class _Parser:
    """Parses a JSON text from start to end, a chunk of the file at a time."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._parse = json.JSONDecoder(parse_constant=_parse_constant).raw_decode
        # A piece of the file; what is parsed of it goes with the next chunk.
        self._text = ""
        self._position = 0  # of the next character in `_text`
        self._dropped_characters = 0  # of the file, before `_text`
        self._is_at_end = False

    def items(self, start: str, end: str) -> Iterator[None]:
        """Takes the brackets and commas of an object or array; the caller takes each item."""
        self.take(start)
        if self.peek() == end:
            self.take(end)
            return
        while True:
            yield
            if self.take(",", end) == end:
                return

    def peek(self) -> str:
        """The next character that is not a space, which stays; "" at the end of the file."""
        while True:
            spaces = _SPACES.match(self._text, self._position)
            self._position = spaces.end()  # type: ignore[union-attr]  # it always matches
            if self._position < len(self._text) or not self._read_chunk():
                return self._text[self._position : self._position + 1]

    def take(self, *expected: str) -> str:
        """Takes the next character, which must be one of these; "" is the end of the file."""
        character = self.peek()
        if character not in expected:
            names = " or ".join(map(repr, expected))
            if expected == ("",):
                names = "no more text"
            position = self._dropped_characters + self._position
            raise ValueError(
                f"expected {names} at character {position:,}, got {character!r}"
            )
        self._position += 1
        return character

    def value(self) -> Any:
        """Takes the next value. ValueError: it is damaged, cut off or too long."""
        self.peek()
        while True:
            problem = ""
            try:
                value, end = self._parse(self._text, self._position)
            except ValueError as error:
                # The value is damaged, or only its start is read. Not the error itself is kept:
                # it would keep the text in memory.
                problem = str(getattr(error, "msg", error))
            else:
                if self._is_at_end or self._text[end : end + 1] in _AFTER_VALUE:
                    self._position = end
                    return value

            if len(self._text) - self._position > _MAX_ENTRY_CHARACTERS:
                problem = (
                    f"{problem or 'a long number'}; expected entries of at most "
                    f"{_MAX_ENTRY_CHARACTERS:,} characters"
                )
            elif self._read_chunk() or not problem:
                continue
            position = self._dropped_characters + self._position
            raise ValueError(f"{problem}, at character {position:,} or behind it")

    def _read_chunk(self) -> bool:
        """Drops what is parsed and reads on; False at the end of the file."""
        rest = self._text[self._position :]
        # A long value is parsed anew after each chunk. Twice the text each time keeps that linear.
        data = self._file.read(max(_CHUNK_BYTES, len(rest)))
        self._dropped_characters += self._position
        self._text = rest + self._decode(data, not data)
        self._position = 0
        self._is_at_end = not data
        return bool(data)


def _parse_constant(name: str) -> float | None:
    """NaN means a missing value, as pandas writes it; Infinity and -Infinity are numbers."""
    if name == "NaN":
        return None
    return float(name)
