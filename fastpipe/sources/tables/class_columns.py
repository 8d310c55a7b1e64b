"""Fields of classes in columns of texts -> the same with their separator and class names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from fastpipe.errors import PackError
from fastpipe.sources.field_values import class_names
from fastpipe.sources.listing import Assumption, SourceField
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.likely import find_separator


class ClassTexts(NamedTuple):
    """The classes in a column, where they are texts."""

    texts: Collection[str] = ()  # all different ones, each of one class or several
    items: Collection[str] = ()  # all different ones in lists, each of one class


def settle_classes(
    fields: Sequence[SourceField],
    texts: Mapping[str, ClassTexts],
    options: SourceOptions,
) -> tuple[tuple[SourceField, ...], list[Assumption]]:
    """The fields, those of classes with names and separator; and the separators that are assumed.

    Args:
        fields: all fields of the source.
        texts: a column -> the texts in it.
        options: whose separator counts, if the user gives one.

    Raises:
        PackError: the user gives a separator, but no field of classes has texts.
    """
    assumptions = []
    settled = []
    for field in fields:
        column_texts: Collection[str] = ()
        items: Collection[str] = ()
        # A field of several columns has a class in the name of each, and no texts.
        if field.kind == "classes" and not field.columns:
            column_texts, items = texts.get(field.column, ClassTexts())
        if not column_texts:
            if items:
                field = field._replace(names=tuple(sorted(items)))
            settled.append(field)
            continue
        separator = options.separator
        if separator is None:
            # The items of a list are separated already.
            unlisted_texts = [text for text in column_texts if text[:1] != "["]
            separator = find_separator(unlisted_texts)
            if separator:
                text = (
                    f"field {field.name}: classes in column {field.column!r} are separated by "
                    f"{separator!r}"
                )
                assumptions.append(Assumption(text, f"--separator '{separator}'"))
        names = class_names(column_texts, separator)
        if items:
            names = tuple(sorted({*names, *items}))
        settled.append(field._replace(names=names, separator=separator))

    if options.separator is not None and not any(field.separator for field in settled):
        raise PackError(
            "no field of classes has texts; --field NAME=COLUMN:classes makes one",
            option="separator",
        )
    return tuple(settled), assumptions
