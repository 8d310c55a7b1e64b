"""Conversations about pictures, as data for vision-language models has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

_NAMES = ("conversations", "conversation", "messages", "turns")
# In a conversation it stands for a picture.
_PLACE = "<image>"


def conversation_names(names: Iterable[str]) -> list[str]:
    """Those of some columns or fields that are called like conversations."""
    return [name for name in names if name.lower() in _NAMES]


def describe_miscount(values: dict[str, Any], lists: list[str]) -> str | None:
    """Why the places for pictures in a conversation do not fit its pictures; None if they do.

    Args:
        values: of the sample, by field.
        lists: the fields of its pictures.
    """
    count = 0
    for name in lists:
        value = values.get(name)
        count += len(value) if isinstance(value, list) else int(bool(value))
    for name in conversation_names(values):
        place_count = sum(text.count(_PLACE) for text in _texts_in(values[name]))
        # Without any places, the pictures may be meant to come first.
        if place_count and place_count != count:
            return (
                f"field {name}: expected {_PLACE} as often as it has images, {count}; got it "
                f"{place_count} times"
            )
    return None


def _texts_in(value: Any) -> Iterator[str]:
    """All texts in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for entry in value:
            yield from _texts_in(entry)
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _texts_in(entry)
