"""`--field` of a user -> the fields that are asked for, and the columns of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from fastpipe.dataset.format.fields import KINDS, check_name, describe_kind
from fastpipe.errors import ConfigError, PackError


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

    def written(self) -> str:
        """As the user writes it: NAME=COLUMN:KIND."""
        if self.kind is None:
            return f"{self.name}={self.column}"
        return f"{self.name}={self.column}:{self.kind}"

    def columns_of(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The columns of a table that make the field.

        A field of kind "classes" may have several columns of 0 and 1, as "a,b", or a pattern.
        """
        known = list(columns)
        if self.column in known or self.kind != "classes":
            return (self.column,)
        chosen: dict[str, None] = {}  # in place of a set, as it keeps the order
        for part in self.column.split(","):
            pattern = part.strip()
            fits_none = True
            for name in known:
                # A column may be called "a[1]", which as a pattern means "a1".
                if name == pattern or fnmatchcase(name, pattern):
                    chosen[name] = None
                    fits_none = False
            # A name that no column has stays, so that it is refused.
            if fits_none:
                chosen[pattern] = None
        return tuple(chosen)

    def check_kind(self, columns: Iterable[str]) -> None:
        """Raises PackError if it is COLUMN:WORD, of one of the columns and a word that is no kind.

        For a field whose column the source does not have.
        """
        column, colon, word = self.column.rpartition(":")
        if colon and column in columns:
            raise PackError(
                f"{self}: {word!r} is no kind of a field; {describe_kind(word)}"
            )

    def __str__(self) -> str:
        return f"--field {self.written()}"


def parse_fields(fields: object) -> tuple[FieldColumn, ...]:
    """Parses fields as a user gives them; see `parse_source_options`. ConfigError: one is wrong."""
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
        # The name of a column may have a colon in it: only a kind behind the last one counts.
        before, colon, kind = column.rpartition(":")
        if colon and kind in KINDS:
            parsed[name] = FieldColumn(name, before, kind)
        else:
            parsed[name] = FieldColumn(name, column)
    return tuple(parsed.values())


def _names_and_columns(fields: object) -> list[tuple[Any, Any]]:
    """The name of each field, with the text that says its column and perhaps its kind."""
    if isinstance(fields, Mapping):
        return list(fields.items())
    expected = ConfigError(
        "fields: expected names of fields and their columns, such as {'caption': 'text'} or "
        f"['caption=text'], got {fields!r}"
    )
    # A single text would be read as a list of its characters.
    if not isinstance(fields, Iterable) or isinstance(fields, (str, bytes)):
        raise expected
    pairs = []
    for text in fields:
        if not isinstance(text, str):
            raise expected
        name, equals, column = text.partition("=")
        if not equals:
            column = name  # "caption" is short for "caption=caption"
        pairs.append((name, column))
    return pairs
