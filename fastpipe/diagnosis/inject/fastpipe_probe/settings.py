"""A dataset -> the attributes that it reads for a sample, and those that have changed."""

from __future__ import annotations

import dis
from itertools import islice
from typing import Any, NamedTuple

from .checksums import checksum
from .objects import (
    CONTAINER_TYPES,
    MAX_ATTRIBUTES,
    MAX_ITEMS,
    find_definition,
    list_functions,
    walk,
)
from .user_code import is_user_file

_VALUE_TYPES = (str, int, float, bool, type(None))
_LISTED_TYPES = (str, int, float, bool, tuple)  # items of a list that can be a setting
# The methods that read samples.
_READING_METHODS = (
    "__getitem__",
    "__getitems__",
    "__iter__",
    "__next__",
    "__call__",
    "__len__",
)


class Setting(NamedTuple):
    """An attribute that a dataset reads for a sample."""

    identity: int  # of the object
    content: Any  # a mark of it; for plain values a str
    # Whether a change within the same object counts. A dict may be a cache, which fills itself.
    counts_in_place: bool


def read_settings(dataset: Any) -> dict[str, Setting]:
    """Reads the attributes that a dataset uses for a sample and that processes do not share."""
    owners = []
    for path, value in walk(dataset, "dataset"):
        if not isinstance(value, CONTAINER_TYPES):
            owners.append((path, value))
    names_read = _list_names_read([owner for _, owner in owners])
    settings: dict[str, Setting] = {}
    for path, owner in owners:
        attributes = getattr(owner, "__dict__", {})
        for name, value in islice(attributes.items(), MAX_ATTRIBUTES):
            if name in names_read:
                setting = _read_setting(value)
                if setting is not None:
                    settings[f"{path}.{name}"] = setting
    return settings


def _list_names_read(owners: list[Any]) -> set[str]:
    """Lists the attributes that reading a sample loads, also in the methods that it calls."""
    # A method's name -> names of attributes that it loads.
    loads: dict[str, set[str]] = {}
    for owner in owners:
        for method in list_functions(owner):
            if not is_user_file(method.__code__.co_filename):
                continue
            names = loads.setdefault(method.__name__, set())
            for step in dis.get_instructions(method):
                if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                    names.add(step.argval)
    names_read = set(_READING_METHODS)
    waiting = list(_READING_METHODS)
    while waiting:
        new_names = loads.get(waiting.pop(), set()) - names_read
        names_read |= new_names
        waiting.extend(new_names)
    return names_read


def _read_setting(value: Any) -> Setting | None:
    """Marks the content of an attribute; None for arrays whose memory processes may share."""
    if isinstance(value, _VALUE_TYPES):
        return Setting(id(value), repr(value)[:100], counts_in_place=True)
    # Views, as of a memory map, and shared tensors may change on purpose: workers see it.
    if hasattr(value, "nbytes"):
        is_view = getattr(value, "base", None) is not None
        is_shared_tensor = hasattr(value, "is_shared") and value.is_shared()
        if is_view or is_shared_tensor:
            return None
        return Setting(id(value), checksum(value), counts_in_place=True)
    if isinstance(value, CONTAINER_TYPES):
        is_plain_list = (
            isinstance(value, list)
            and len(value) > 0
            and all(isinstance(item, _LISTED_TYPES) for item in value[:MAX_ITEMS])
        )
        return Setting(
            id(value), (len(value), checksum(value)), counts_in_place=is_plain_list
        )
    content = (type(value).__qualname__, find_definition(value))
    return Setting(id(value), content, counts_in_place=False)


def list_changed(before: dict[str, Setting], after: dict[str, Setting]) -> list[str]:
    """Lists the settings that have changed."""
    changed = []
    for path, old in before.items():
        new = after.get(path)
        if new is None or old.content == new.content:
            continue
        is_other_object = old.identity != new.identity
        # An object in place of None was only made at its first use.
        is_first_use = old.content == repr(None) and not isinstance(new.content, str)
        is_counted = old.counts_in_place or is_other_object
        if is_counted and not is_first_use:
            changed.append(path)
    return changed
