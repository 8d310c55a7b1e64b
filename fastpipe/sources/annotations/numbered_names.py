"""Names of classes by number, as a file writes them -> a list of names, one for each number."""

from __future__ import annotations

from collections.abc import Mapping


def list_numbered_names(names: Mapping[int, str]) -> tuple[str, ...]:
    """The names in the order of their numbers, from 0 on; "" for a number without a name."""
    name_count = max(names, default=-1) + 1
    return tuple(names.get(number, "") for number in range(name_count))
