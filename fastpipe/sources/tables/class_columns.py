"""Fields of classes in columns of texts -> the same with their separator and class names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fastpipe.errors import PackError
from fastpipe.sources.field_values import class_names
from fastpipe.sources.listing import Assumption, SourceField
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.likely import find_separator


def settle_classes(
    fields: Sequence[SourceField],
    texts: Mapping[str, Collection[str]],
    options: SourceOptions,
) -> tuple[tuple[SourceField, ...], list[Assumption]]:
    """The fields, those of classes with names and separator; and the separators that are assumed.

    Args:
        fields: all fields of the source.
        texts: column -> all of its different texts.
        options: whose separator counts, if the user gives one.

    Raises:
        PackError: the user gives a separator, but no field of classes has texts.
    """
    assumptions = []
    settled = []
    for field in fields:
        column_texts: Collection[str] = ()
        # A field of several columns has a class in the name of each, and no texts.
        if field.kind == "classes" and not field.columns:
            column_texts = texts.get(field.column, ())
        if not column_texts:
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
        settled.append(field._replace(names=names, separator=separator))

    if options.separator is not None and not any(field.separator for field in settled):
        raise PackError(
            "no field of classes has texts; --field NAME=COLUMN:classes makes one",
            option="separator",
        )
    return tuple(settled), assumptions
