"""A column of labels that are fractions -> how to pack it as a field, for a regression."""

from __future__ import annotations

from fastpipe.sources.column_names import field_name
from fastpipe.sources.options import quote_for_shell

# A field's name where the name of its column means something else, as "label" does.
_SCORE = "score"


def describe_fraction(column: str, row: str, value: str, is_chosen: bool) -> str:
    """Says that a label has a fraction, and what to pass.

    Args:
        column: of labels, as "data/ages.csv, column age".
        row: of the value, as "ages.csv, line 2".
        value: the value.
        is_chosen: whether the user has chosen the column for the labels.
    """
    table, _, name = column.rpartition(", column ")
    file, _, line = row.rpartition(", ")
    # The rows may be those of several files in a folder.
    place = line if table.endswith(file) else row
    field = name if field_name(name) == name else _SCORE
    pair = f"{field}={name}"
    leave_out = ""
    if is_chosen:
        leave_out = "leave --label-column out (label_column=) and "
    return (
        f"{column}, {place}: {value} has a fraction; expected classes, as whole numbers or names. For a "
        f"regression {leave_out}pass --field {quote_for_shell(pair)} (fields=[{pair!r}]); batches have it "
        f"with fields=('image', {field!r}) of fastpipe.loader"
    )
