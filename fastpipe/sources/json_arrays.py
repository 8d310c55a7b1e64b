"""A JSON file with an object of long lists, such as COCO's -> the entries of these lists, one after the other."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from fastpipe.errors import PackError, readable
from fastpipe.sources.files import SourcePath, open_unchanged

MOST_ENTRY_CHARACTERS = 16 << 20
_PIECE_BYTES = 1 << 20
_BEHIND = tuple(" \t\r\n,:]}")  # a value
_SPACE = re.compile(r"[ \t\r\n]*")


def entries(path: SourcePath) -> Iterator[tuple[str, int, Any]]:
    """List, number and value of each entry of an object's lists; -1: the value is no list. One is held at a time."""
    try:
        with open_unchanged(path) as file:
            text = _Text(file)
            for _ in text.each("{", "}"):
                if not isinstance(name := text.value(), str):
                    raise ValueError(f"expected a name, got {name!r:.60}")
                text.take(":")
                if text.next() != "[":
                    yield name, -1, text.value()
                    continue
                for number, _ in enumerate(text.each("[", "]")):
                    yield name, number, text.value()
            text.take("")  # there is no more text
    except (ValueError, RecursionError) as problem:
        raise PackError(
            f"{readable(str(path))} is damaged or no JSON object with lists, as COCO has them: {problem}"
        ) from problem


class _Text:
    """A file's text from the place on at which it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._parse = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._before = 0  # characters
        self._ended = False

    def each(self, start: str, end: str) -> Iterator[None]:
        """Stops before each entry of an object or list, whose reader takes it."""
        self.take(start)
        found = self.take(end) if self.next() == end else ","
        while found != end:
            yield
            found = self.take(",", end)

    def next(self) -> str:
        """The next character that is no space, which is not taken; "" at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def take(self, *expected: str) -> str:
        """Takes the next character, which must be one of these."""
        if (found := self.next()) not in expected:
            wanted = " or ".join(repr(each) if each else "no more text" for each in expected)
            place = self._before + self._at
            raise ValueError(f"expected {wanted} at character {place:,}, got {found!r}")
        self._at += 1
        return found

    def value(self) -> Any:
        self.next()
        while True:
            try:
                value, end = self._parse(self._text, self._at)
            except ValueError as problem:  # it is damaged, or ends in the middle
                why = str(getattr(problem, "msg", problem))  # the error itself would keep the text in memory
            else:
                if self._ended or self._text[end : end + 1] in _BEHIND:
                    self._at = end
                    return value
                why = ""  # a number may go on
            if len(self._text) - self._at > MOST_ENTRY_CHARACTERS:
                why = f"{why or 'a long number'}; expected entries of at most {MOST_ENTRY_CHARACTERS:,} characters"
            elif self._more() or not why:
                continue
            raise ValueError(f"{why}, at character {self._before + self._at:,} or behind it")

    def _more(self) -> bool:
        """Reads on: twice as much as is there, so that a long value is not tried too often."""
        left = self._text[self._at :]
        data = self._file.read(max(_PIECE_BYTES, len(left)))
        self._before += self._at
        self._text, self._at = left + self._decode(data, not data), 0
        self._ended = not data
        return bool(data)
