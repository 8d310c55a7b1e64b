"""A user's lists of labels, where each sample has one value -> an error that says where lists go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastpipe.errors import ConfigError
from fastpipe.pages import name_page

_LISTS = (list, tuple, set, frozenset)
WAYS_OF_SEVERAL_LABELS = (
    "For several labels of a sample, pack a field of kind 'classes' (fastpipe pack --field "
    "tags=COLUMN:classes, or fastpipe.Writer(fields={'tags': 'classes'})), or give a packed dataset a "
    "row of 0 and 1 for each sample: data.with_column('tags', rows). See "
    f"{name_page('multi-label')}"
)


def refuse_lists(method: str, given: Any) -> None:
    """Raises ConfigError if each sample has a list of names, or lists have several lengths.

    `method` begins the message. For `with_column`, lists of one length are an array.
    """
    lists = list(_lists_in(given))
    if not lists:
        return
    first = lists[0]
    lengths = {len(values) for values in lists}
    are_no_rows = len(lengths) > 1 or isinstance(first, (set, frozenset))
    if method == "with_labels":
        has_names = any(isinstance(value, str) for value in first)
        if are_no_rows or has_names:
            raise ConfigError(
                f"with_labels: a sample has one label, got a {type(first).__name__}: "
                f"{first!r:.60}. {WAYS_OF_SEVERAL_LABELS}"
            )
    elif are_no_rows:
        raise ConfigError(
            f"{method}: expected a value or a row of one length for each sample, got "
            f"{type(first).__name__}s of {min(lengths)} to {max(lengths)} values. "
            f"{WAYS_OF_SEVERAL_LABELS}"
        )


def _lists_in(given: Any) -> Iterator[Any]:
    """The lists and sets among a user's values, of which an array of numbers or texts has none."""
    dtype = str(getattr(given, "dtype", "object"))
    if dtype != "object" or not hasattr(given, "__iter__"):
        return
    yield from (value for value in given if isinstance(value, _LISTS))
