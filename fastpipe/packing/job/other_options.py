"""The options that a dataset was packed with, and other ones -> how they differ, in words."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeGuard

from fastpipe.errors import first_names, option_name
from fastpipe.packing.shard.options import BY_RULE
from fastpipe.sources.field_columns import FieldColumn

_MAX_NAMES = 5


# Options are called by their place in the record. Those of the source are in a record of their own.
_SOURCE = "source."


class _Setting(NamedTuple):
    """An option with its value, as a user writes it."""

    command_line: str
    python: str = ""  # "": it is no argument of fastpipe.pack


def describe_other_options(
    packed: object, present: Mapping[str, Any], verb: str = "packed"
) -> str:
    """How two results of PackOptions.shaping differ; "": not at all.

    Args:
        packed: recorded in a dataset or an unfinished pack, by any program.
        present: those of this pack.
        verb: what was done with the first ones.
    """
    if packed == present:
        return ""
    if not _is_record_of_options(packed):
        return f"it was {verb} with options that this fastpipe does not know"
    old_values = _by_place(packed)
    new_values = _by_place(present)
    places = [
        place for place, value in new_values.items() if old_values.get(place) != value
    ]
    places += [place for place in old_values if place not in new_values]
    old_settings = [_setting(place, old_values.get(place)) for place in places]
    new_settings = [_setting(place, new_values.get(place)) for place in places]
    old = ", ".join(setting.command_line for setting in old_settings)
    new = ", ".join(setting.command_line for setting in new_settings)
    arguments = ", ".join(setting.python for setting in new_settings if setting.python)
    if arguments:
        new += f" ({arguments})"
    return f"it was {verb} {old}; now it would be {new}"


def describe_other_state(packed: Mapping[str, Any], present: Mapping[str, Any]) -> str:
    """How the source and the libraries of an unfinished pack differ from those of this one."""
    changes = []
    if packed.get("source") != present["source"]:
        changes.append(
            f"it was begun with the source {packed.get('source')}; now it is {present['source']}"
        )
    old_versions = packed.get("made_with")
    if not isinstance(old_versions, dict):
        old_versions = {}
    for name, version in present["made_with"].items():
        old_version = old_versions.get(name, "another version")
        if old_version != version:
            changes.append(
                f"it was begun with {name} {old_version}; now it is {version}"
            )
    return "; ".join(changes) or "the source files have changed"


def _is_record_of_options(record: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether the values that are shown in parts have the form that PackOptions.shaping gives them."""
    if not isinstance(record, Mapping):
        return False
    source = record.get("source", {})
    if not isinstance(source, Mapping):
        return False
    return (
        isinstance(record.get("fields", {}), Mapping)
        and isinstance(record.get("classes") or [], (list, tuple))
        and _are_field_columns(source.get("fields", []))
        and _are_class_names(source.get("classes_from", {}))
    )


def _are_field_columns(value: object) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(column, list) and len(column) == 3 for column in value)


def _are_class_names(value: object) -> bool:
    if not isinstance(value, Mapping) or not isinstance(
        value.get("fields", {}), Mapping
    ):
        return False
    lists = [value.get("labels", []), *value.get("fields", {}).values()]
    return all(isinstance(names, list) for names in lists)


def _by_place(record: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given, by their place in the record."""
    values = {place: value for place, value in record.items() if place != "source"}
    for name, value in record.get("source", {}).items():
        values[_SOURCE + name] = value
    # A dataset without fields has an empty record of their kinds.
    if not values.get("fields"):
        values["fields"] = None
    return {place: value for place, value in values.items() if value is not None}


def _setting(place: str, value: Any) -> _Setting:
    """A value as a user writes it; None: the option is not given."""
    if place in _SETTINGS:
        return _SETTINGS[place](value)
    name = place.removeprefix(_SOURCE)
    option = option_name(name)
    if isinstance(value, bool):
        return _flag(option, is_given=value, python=f"{name}={value!r}")
    if value is None:
        return _Setting(f"without {option}")
    return _Setting(f"with {option} {shlex.quote(str(value))}", f"{name}={value!r}")


def _flag(option: str, *, is_given: bool, python: str) -> _Setting:
    preposition = "with" if is_given else "without"
    return _Setting(f"{preposition} {option}", python)


def _setting_of_exif(value: Any) -> _Setting:
    exif = "apply" if value else "ignore"
    return _Setting(f"with --exif {exif}", f"exif={exif!r}")


def _setting_of_shuffle(value: Any) -> _Setting:
    return _flag("--no-shuffle", is_given=value is False, python=f"shuffle={value!r}")


def _setting_of_kinds(value: Any) -> _Setting:
    kinds = [f"{field} ({kind})" for field, kind in (value or {}).items()]
    return _Setting(f"with the fields {first_names(kinds, _MAX_NAMES) or 'none'}")


def _setting_of_writer_classes(value: Any) -> _Setting:
    names = list(map(str, value or ()))
    return _Setting(f"with the classes {first_names(names, _MAX_NAMES) or 'none'}")


def _setting_of_rule(value: Any) -> _Setting:
    frame = "shown" if value else "stored"
    return _Setting(f"with boxes of the images as {frame}")


def _setting_of_columns(value: Any) -> _Setting:
    """The columns that fields are made of: --field NAME=COLUMN:KIND, or fields= in Python."""
    if value is None:
        return _Setting("without --field", "fields=None")
    columns = [FieldColumn(*column).written() for column in value]
    if not columns:
        return _Setting("without fields", "fields=[]")
    options = [f"--field {shlex.quote(column)}" for column in columns]
    return _Setting(f"with {' '.join(options)}", f"fields={columns!r}")


def _setting_of_class_names(value: Any) -> _Setting:
    """Of a file of classes only the names are recorded."""
    if value is None:
        return _Setting("without --classes-from")
    names = list(map(str, value.get("labels", ())))
    for field_names in value.get("fields", {}).values():
        names += map(str, field_names)
    return _Setting(f"with --classes-from of {first_names(names, _MAX_NAMES)}")


# Options that are not written as their name and their value.
_SETTINGS: dict[str, Callable[[Any], _Setting]] = {
    "apply_exif": _setting_of_exif,
    "shuffle": _setting_of_shuffle,
    "fields": _setting_of_kinds,
    "classes": _setting_of_writer_classes,
    BY_RULE: _setting_of_rule,
    f"{_SOURCE}fields": _setting_of_columns,
    f"{_SOURCE}classes_from": _setting_of_class_names,
}
