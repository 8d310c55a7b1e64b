"""`classes_from=`, as a user gives it: a dataset, a source, a text file or names -> the names of the classes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from fastpipe.errors import ConfigError, readable
from fastpipe.format.description import is_dataset, parse_info
from fastpipe.format.fields import Field, read_fields
from fastpipe.format.layout import DATASET_FILE, MOST_CLASSES
from fastpipe.sources.class_names import KINDS, ClassNames
from fastpipe.sources.file_formats import format_of
from fastpipe.sources.files import SourcePath, open_binary, source_path
from fastpipe.sources.kinds import class_folders, list_sources
from fastpipe.sources.listing import SourceField
from fastpipe.sources.options import SourceOptions
from fastpipe.store.remote.options import RemoteOptions

_EXPECTED = (
    "expected a packed dataset, a source such as a folder of class folders, a text file with a name on each line, or "
    "a list of names"
)
_MOST_BYTES = 64 << 20  # of a text file
_NO_LISTS = (".yaml", ".yml", ".pkl", ".npy")

ClassesFrom = str | os.PathLike[str] | Sequence[str]


def class_names(given: Any, remote: RemoteOptions | None = None) -> ClassNames:
    """The names that a user gives. ConfigError, PackError, DatasetError: they are none."""
    if isinstance(given, (list, tuple)):
        return ClassNames(checked_names(given, "classes_from"))
    if not isinstance(given, (str, os.PathLike)):
        raise ConfigError(f"classes_from: {_EXPECTED}; got {given!r:.100}")
    path, option = source_path(given, remote), f"--classes-from {readable(str(given))}"
    if not path.exists():
        raise ConfigError(f"{option}: it does not exist; {_EXPECTED}")
    if path.is_dir() and is_dataset(path):
        found = _of_dataset(path)
    elif path.is_dir() or format_of(path.name) is not None:
        found = _of_source(path)
    else:
        found = ClassNames(_of_text(path, option))
    if not found.labels and not found.fields:
        raise ConfigError(f"{option}: it has no names of classes; {_EXPECTED}")
    return found


def checked_names(names: Iterable[object], option: str) -> tuple[str, ...]:
    """The names, each once. ConfigError, which begins with `option`: they are no names."""
    found: dict[str, None] = {}
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{option}: expected names of classes, got {name!r:.60}")
        if name in found:
            raise ConfigError(f"{option}: expected each name once, got {name!r} again")
        found[name] = None
    if not 0 < len(found) <= MOST_CLASSES:
        raise ConfigError(f"{option}: expected 1 to {MOST_CLASSES:,} names, got {len(found):,}")
    return tuple(found)


def _of_dataset(path: SourcePath) -> ClassNames:
    info = parse_info((path / DATASET_FILE).read_bytes(), str(path / DATASET_FILE))
    labels = _saved_classes(path, info["fingerprint"]) or info["classes"]
    return ClassNames(tuple(labels), _named(read_fields(info).values()))


def _saved_classes(path: SourcePath, fingerprint: str) -> list[str] | None:
    """The classes of labels that `save_columns` wrote beside the dataset, as `fastpipe.open` has them."""
    with suppress(OSError, ValueError, KeyError):
        said = json.loads((path / f"columns/{fingerprint}.json").read_bytes())
        return said["classes"] if "label" in said["columns"] else None
    return None


def _of_source(path: SourcePath) -> ClassNames:
    folders = class_folders(path, SourceOptions()) if path.is_dir() else None
    if folders is not None:  # their files need not be listed
        return ClassNames(tuple(folders.classes))
    listing = list_sources(path, 0, shuffle=False, is_pattern=True)
    return ClassNames(tuple(listing.classes), _named(listing.fields))


def _named(fields: Iterable[Field | SourceField]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The fields that have names of classes, with these."""
    return tuple(
        (field.name, field.names) for field in fields if field.names and field.kind in KINDS
    )


def _of_text(path: SourcePath, option: str) -> tuple[str, ...]:
    """The lines of a text file: a number is that of its line, so no line is left out."""
    if path.name.lower().endswith(_NO_LISTS):
        raise ConfigError(f"{option}: it is no text file with a name on each line; {_EXPECTED}")
    with open_binary(path) as file:
        data = file.read(_MOST_BYTES + 1)
    try:
        if len(data) > _MOST_BYTES or b"\0" in data:
            raise ValueError(f"more than {_MOST_BYTES:,} bytes, or zeros in them")
        lines = [
            line.strip() for line in data.decode("utf-8-sig").split("\n")
        ]  # a name may have a U+2028 in it
    except ValueError as problem:
        raise ConfigError(
            f"{option}: expected a text file in UTF-8 with a name on each line ({problem})"
        ) from None
    while lines and not lines[-1]:
        lines.pop()
    if "" in lines:
        raise ConfigError(
            f"{option}: line {lines.index('') + 1} is empty; the number of a class is that of its line"
        )
    return checked_names(lines, option)
