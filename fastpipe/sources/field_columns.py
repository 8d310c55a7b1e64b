"""`--field` of a user -> the fields that are asked for, and the columns of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from fastpipe.dataset.format.fields import KINDS, check_name
from fastpipe.errors import ConfigError


class FieldColumn(NamedTuple):
    """A field that a user asks for.

    Attributes:
        name: of the field.
        column: of the source.
        kind: of the values; None: as the source has them.
    """

    name: str
    column: str
    kind: str | None = None

    def columns_of(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The columns of a table that make the field.

        A field of kind "classes" may have several columns of 0 and 1, as "a,b", or a pattern.
        """
        known = list(columns)
        if self.column in known or self.kind != "classes":
            return (self.column,)
        chosen = []
        for part in self.column.split(","):
            pattern = part.strip()
            matches = [
                name for name in known if name == pattern or fnmatchcase(name, pattern)
            ]
            # A name that no column has stays, so that it is refused.
            chosen += matches or [pattern]
        return tuple(dict.fromkeys(chosen))

    def __str__(self) -> str:
        text = f"--field {self.name}={self.column}"
        return f"{text}:{self.kind}" if self.kind else text


def parse_fields(fields: object) -> tuple[FieldColumn, ...]:
    parsed: dict[str, FieldColumn] = {}
    for name, column in _names_and_columns(fields):
        try:
            check_name(name)
            if name in parsed:
                raise ValueError("expected each name of a field once, got it twice")
            if not isinstance(column, str):
                raise ValueError(f"expected the name of a column, got {column!r}")
        except ValueError as problem:
            raise ConfigError(f"--field {name}={column}: {problem}") from None
        # The name of a column may have a colon in it.
        before, colon, kind = column.rpartition(":")
        has_kind = colon and kind in KINDS
        parsed[name] = (
            FieldColumn(name, before, kind) if has_kind else FieldColumn(name, column)
        )
    return tuple(parsed.values())


def _names_and_columns(fields: object) -> list[tuple[Any, Any]]:
    if isinstance(fields, Mapping):
        return list(fields.items())
    texts: list[Any] | None = None
    if isinstance(fields, Iterable) and not isinstance(fields, (str, bytes)):
        texts = list(fields)
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise ConfigError(
            "fields: expected names of fields and their columns, such as {'caption': 'text'} or "
            f"['caption=text'], got {fields!r}"
        )
    pairs = []
    for text in texts:
        name, equals, column = text.partition("=")
        pairs.append((name, column if equals else name))
    return pairs
