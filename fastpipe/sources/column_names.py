"""Names of columns -> names of fields, and text for messages."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from fastpipe.dataset.format.fields import RESERVED
from fastpipe.errors import first_names, readable

_MAX_NAME_CHARACTERS = 64  # of a field
_MAX_NAMES_SHOWN = 20  # in a message


def field_name(column: str, other_names: Container[str] = ()) -> str:
    """The name of a field that is called like a column or ending.

    If another field has the name, or it means something else, _ or a number follows it.
    """
    # Some characters stay free for the "_" or the number behind the name.
    name = re.sub(r"[^a-z0-9_]", "_", column)[:60]
    if not name[:1].isalpha():
        name = f"field_{name}"[:60]
    free_name = name
    number = 1
    while free_name in other_names or free_name in RESERVED:
        number += 1
        if len(free_name) < _MAX_NAME_CHARACTERS:
            free_name = f"{free_name}_"
        else:
            free_name = f"{name[:55]}_{number}"
    return free_name


def describe_columns(columns: Iterable[str]) -> str:
    """The names of columns for a message, sorted."""
    names = [readable(column) for column in sorted(columns)]
    if not names:
        return "none"
    return first_names(names, _MAX_NAMES_SHOWN)
