"""Fields of classes that columns of texts hold -> with what separates the classes in a text, and their names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fastpipe.errors import PackError
from fastpipe.sources.column_kinds import class_names
from fastpipe.sources.likely import separator_of
from fastpipe.sources.listing import Assumption, SourceField
from fastpipe.sources.options import SourceOptions


def settled_classes(
    fields: Sequence[SourceField], texts: Mapping[str, Collection[str]], how: SourceOptions
) -> tuple[tuple[SourceField, ...], list[Assumption]]:
    """Fields of classes with the names that are in the texts of their columns, and what separates these there."""
    assumed: list[Assumption] = []
    settled = []
    for each in fields:
        found = [
            text
            for text in texts.get(each.column, ())
            if not each.columns and each.kind == "classes"
        ]
        if found:
            separator = how.separator or separator_of(
                [text for text in found if not text.startswith("[")]
            )
            each = each._replace(names=class_names(found, separator), separator=separator)
            if separator and how.separator is None:
                words = f"field {each.name}: classes in column {each.column!r} are separated by {separator!r}"
                assumed.append(Assumption(words, f"--separator '{separator}'"))
        settled.append(each)
    if how.separator is not None and not any(each.separator for each in settled):
        raise PackError(
            "--separator: no field of classes has texts; --field NAME=COLUMN:classes makes one"
        )
    return tuple(settled), assumed
