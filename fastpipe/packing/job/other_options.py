"""The options that a dataset was packed with, and other ones -> how they differ, in words."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastpipe.errors import first_names, option_name
from fastpipe.packing.shard.options import BY_RULE

_MAX_NAMES = 5


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
    try:
        return _describe_difference(dict(packed), present, verb)  # type: ignore[call-overload]
    except (AttributeError, KeyError, TypeError, ValueError):
        return f"it was {verb} with options that this fastpipe does not know"


def _describe_difference(
    packed: Mapping[str, Any], present: Mapping[str, Any], verb: str
) -> str:
    before = _flattened(packed)
    now = _flattened(present)
    names = [name for name in now if before.get(name) != now[name]]
    names += [name for name in before if name not in now]
    old_settings = [_setting(name, before.get(name)) for name in names]
    new_settings = [_setting(name, now.get(name)) for name in names]
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


def _flattened(shaping: Mapping[str, Any]) -> dict[str, Any]:
    """The options by the names of fastpipe.pack's arguments; those that are not given are missing."""
    options = dict(shaping)
    kinds = options.pop("fields", None)
    source = options.pop("source", None)
    by_rule = options.pop(BY_RULE, None)
    if isinstance(source, dict):
        options.update(source)
    if kinds:
        options["kinds of fields"] = kinds
    if by_rule is not None:
        options["boxes by rule"] = by_rule
    return {name: value for name, value in options.items() if value is not None}


def _setting(name: str, value: Any) -> _Setting:
    """A value as a user writes it; None: the option is not given."""
    if name == "kinds of fields":
        kinds = [f"{field} ({kind})" for field, kind in (value or {}).items()]
        return _Setting(f"with the fields {first_names(kinds, _MAX_NAMES) or 'none'}")
    if name == "boxes by rule":
        frame = "shown" if value else "stored"
        return _Setting(f"with boxes of the images as {frame}")
    if name == "classes":  # a Writer's
        names = list(map(str, value or ()))
        return _Setting(f"with the classes {first_names(names, _MAX_NAMES) or 'none'}")
    if name == "apply_exif":
        exif = "apply" if value else "ignore"
        return _Setting(f"with --exif {exif}", f"exif={exif!r}")
    if name == "shuffle":
        return _flag("--no-shuffle", value is False, "shuffle", value)
    option = option_name(name)
    if isinstance(value, bool):
        return _flag(option, value, name, value)
    if value is None:
        return _Setting(f"without {option}")
    if name == "classes_from":
        return _Setting(f"with {option} of {_names_in(value)}")
    if name == "fields":
        return _Setting(f"with {' '.join(map(_field_option, value))}")
    return _Setting(f"with {option} {shlex.quote(str(value))}", f"{name}={value!r}")


def _flag(option: str, is_given: bool, name: str, value: Any) -> _Setting:
    preposition = "with" if is_given else "without"
    return _Setting(f"{preposition} {option}", f"{name}={value!r}")


def _field_option(field: Any) -> str:
    """The option that chooses a field: --field NAME=COLUMN:KIND."""
    name, column, kind = field
    return f"--field {name}={column}:{kind}" if kind else f"--field {name}={column}"


def _names_in(classes: Mapping[str, Any]) -> str:
    """The names that a file of classes had."""
    names = list(map(str, classes.get("labels", ())))
    for field_names in classes.get("fields", {}).values():
        names += map(str, field_names)
    return first_names(names, _MAX_NAMES)
