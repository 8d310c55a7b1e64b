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
        is_of_texts = field.kind == "classes" and not field.columns
        column_texts = texts.get(field.column, ()) if is_of_texts else ()
        if column_texts:
            separator = options.separator
            if separator is None:
                separator = find_separator(
                    [text for text in column_texts if text[:1] != "["]
                )
                if separator:
                    text = (
                        f"field {field.name}: classes in column {field.column!r} are separated by "
                        f"{separator!r}"
                    )
                    assumptions.append(Assumption(text, f"--separator '{separator}'"))
            names = class_names(column_texts, separator)
            field = field._replace(names=names, separator=separator)
        settled.append(field)

    if options.separator is not None and not any(field.separator for field in settled):
        raise PackError(
            "--separator: no field of classes has texts; --field NAME=COLUMN:classes makes one"
        )
    return tuple(settled), assumptions
