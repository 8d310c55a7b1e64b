"""`classes_from=` of a user: a dataset, a source, a text file or names -> names of classes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

from fastpipe.dataset.format.description import is_dataset, parse_info
from fastpipe.dataset.format.fields import CLASS_KINDS, Field, read_fields
from fastpipe.dataset.format.layout import DATASET_FILE, MAX_CLASSES
from fastpipe.errors import ConfigError, PackError, readable
from fastpipe.sources.annotations.annotation_files import find_colour_list
from fastpipe.sources.annotations.colour_list import read_colours
from fastpipe.sources.annotations.numbered_names import list_numbered_names
from fastpipe.sources.class_names import ClassNames
from fastpipe.sources.file_formats import format_of
from fastpipe.sources.files import SourcePath, open_binary, source_path
from fastpipe.sources.folders.class_folders import ClassFolders
from fastpipe.sources.folders.folder_lists import clean_class_names
from fastpipe.sources.folders.splits import SplitChoiceError, training_or_first
from fastpipe.sources.json_stream import object_entries
from fastpipe.sources.kinds import class_folders, list_sources
from fastpipe.sources.listing import SourceField
from fastpipe.sources.numbered_classes import (
    has_names_of_numbers,
    parse_numbered_names,
    read_value_names,
)
from fastpipe.sources.options import SourceOptions
from fastpipe.store.remote.options import RemoteOptions

_EXPECTED = (
    "expected a packed dataset, a source such as a folder of class folders, a text file with a "
    'name on each line, a JSON file such as {"0": "cat"}, or a list of names'
)
_MAX_TEXT_BYTES = 64 << 20
# The options that say which columns of a table have what.
_COLUMN_OPTIONS = (
    "image_column",
    "label_column",
    "fields",
    "image_root",
    "separator",
    "box_format",
    "encoding",
)
# Endings of files that are no text files, or none with a name on each line.
_OTHER_ENDINGS = (".yaml", ".yml", ".pkl", ".npy")

ClassesFrom = str | os.PathLike[str] | Sequence[str]


def class_names(
    given: Any,
    remote: RemoteOptions | None = None,
    options: SourceOptions | None = None,
) -> ClassNames:
    """The names that a user gives.

    Args:
        given: see `ClassesFrom`.
        remote: how a URL is read.
        options: of the source that gets the names. Where the given source has the same columns, its
            labels and fields are found by these.

    Raises:
        ConfigError, PackError, DatasetError: there are none.
    """
    if isinstance(given, (list, tuple)):
        return ClassNames(check_names(given, "classes_from"))
    if not isinstance(given, (str, os.PathLike)):
        raise ConfigError(f"classes_from: {_EXPECTED}; got {given!r:.100}")
    path = source_path(given, remote)
    option = f"--classes-from {readable(given)}"
    if not path.exists():
        hint = ""
        if isinstance(given, str) and "," in given:
            listed = [name.strip() for name in given.split(",")]
            hint = f". For these names write a text file with one on each line, or in Python {listed!r}"
        raise ConfigError(f"{option}: it does not exist; {_EXPECTED}{hint}")
    if path.is_dir() and is_dataset(path):
        names = _names_in_dataset(path)
    elif has_names_of_numbers(path):
        names = _names_in_json(path, option)
    elif path.name.lower().endswith(".json") and (values := _read_categories(path)):
        names = _names_of_values(values, option)
    elif format_of(path.name) == "csv" and (values := read_value_names(path)):
        names = ClassNames((), values=values)
    elif find_colour_list(path.parent, [path.name]) is not None:
        # class_dict.csv also numbers the values of masks that are no colours, by its lines.
        names = ClassNames((), values=read_colours(path).names)
    elif path.is_dir() or format_of(path.name) is not None:
        names = _names_in_source(path, options)
    else:
        names = _names_in_text_file(path, option)
    if not names.labels and not names.fields and not names.values:
        raise ConfigError(f"{option}: it has no names of classes; {_EXPECTED}")
    return names


def check_names(names: Iterable[object], option: str) -> tuple[str, ...]:
    """The names, each once. ConfigError, which begins with `option`: one is no name."""
    checked: dict[str, None] = {}  # in place of a set, as it keeps the order
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{option}: expected names of classes, got {name!r:.60}")
        if name in checked:
            raise ConfigError(f"{option}: expected each name once, got {name!r} again")
        checked[name] = None
    if not 0 < len(checked) <= MAX_CLASSES:
        raise ConfigError(
            f"{option}: expected 1 to {MAX_CLASSES:,} names, got {len(checked):,}"
        )
    return tuple(checked)


def names_by_number(classes: Mapping[Any, Any], option: str) -> list[Any]:
    """{name: number}, as the class_to_idx of torchvision's datasets, -> the names by their numbers.

    ConfigError, which begins with `option`: the numbers are not 0 to n - 1.
    """
    numbers = list(classes.values())
    are_whole = all(isinstance(number, Integral) for number in numbers)
    if not are_whole or sorted(numbers) != list(range(len(numbers))):
        raise ConfigError(
            f"{option}: expected a list of names, or a dict of names and their numbers from 0 to "
            f"{len(numbers) - 1}, got {classes!r:.100}"
        )
    return sorted(classes, key=lambda name: int(classes[name]))


def _names_in_dataset(path: SourcePath) -> ClassNames:
    info_file = path / DATASET_FILE
    info = parse_info(info_file.read_bytes(), str(info_file))
    labels = _saved_classes(path, info["fingerprint"]) or info["classes"]
    return ClassNames(tuple(labels), _names_of_fields(read_fields(info).values()))


def _saved_classes(path: SourcePath, fingerprint: str) -> list[str] | None:
    """The classes of labels that `save_columns` wrote beside the dataset.

    `fastpipe.open` has these, too. None: there are none.
    """
    try:
        columns_file = path / f"columns/{fingerprint}.json"
        saved = json.loads(columns_file.read_bytes())
        if "label" in saved["columns"]:
            classes: list[str] = saved["classes"]
            return classes
    except (OSError, ValueError, KeyError):
        pass  # most datasets have no such file
    return None


def _names_in_source(path: SourcePath, options: SourceOptions | None) -> ClassNames:
    # The names of class folders are known without listing the files in them.
    folders = None
    if path.is_dir():
        folders = _class_folders(path)
    if folders is not None:
        return ClassNames(tuple(folders.classes))
    if options is not None:
        column_options = {name: getattr(options, name) for name in _COLUMN_OPTIONS}
        options_of_columns = SourceOptions(**column_options)
        try:
            if options_of_columns != SourceOptions():
                names = _names_in_split(path, options_of_columns)
                if names.labels or names.fields:
                    return names
        except PackError:
            pass  # it has other columns, or is a source of another kind
    return _names_in_split(path, SourceOptions())


def _class_folders(path: SourcePath) -> ClassFolders | None:
    """The class folders of a source; None if it is another one, or has several splits."""
    try:
        return class_folders(path, SourceOptions())
    except SplitChoiceError:
        return None


def _names_in_split(path: SourcePath, options: SourceOptions) -> ClassNames:
    """The names in a source; of one with several splits those of its training.

    A split has the names of all splits.
    """
    try:
        listing = list_sources(path, 0, shuffle=False, options=options, is_pattern=True)
    except SplitChoiceError as error:
        if not error.split_names:
            raise
        options = replace(options, split=training_or_first(error.split_names))
        listing = list_sources(path, 0, shuffle=False, options=options, is_pattern=True)
    return ClassNames(tuple(listing.classes), _names_of_fields(listing.fields))


def _names_of_fields(
    fields: Iterable[Field | SourceField],
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The fields that have names of classes, with these."""
    names_of_fields = []
    for field in fields:
        if field.names and field.kind in CLASS_KINDS:
            names_of_fields.append((field.name, field.names))
    return tuple(names_of_fields)


def _names_in_json(path: SourcePath, option: str) -> ClassNames:
    """The names in a JSON object of numbers, as texts, and names.

    Names are those of labels if their numbers are all from 0 on, and else of the values of masks.
    """
    names: dict[int, str] = {}
    for number, index, name in object_entries(path):
        is_numbered = index < 0 and number.isdecimal() and isinstance(name, str)
        if not is_numbered or not name.strip() or int(number) >= MAX_CLASSES:
            raise ConfigError(
                f"{option}: expected numbers and names of classes, such as "
                f'{{"0": "cat"}}, got {number!r:.60}: {name!r:.60}'
            )
        if int(number) in names:
            raise ConfigError(f"{option}: the number {number} is listed twice")
        names[int(number)] = name.strip()
    return _names_of_values(list_numbered_names(names), option)


def _read_categories(path: SourcePath) -> tuple[str, ...]:
    """The names of categories by id, in COCO's form without images; () for other files.

    iMaterialist has label_descriptions.json.
    """
    names: dict[int, str] = {}
    try:
        for list_name, _, entry in object_entries(path):
            if list_name in ("images", "annotations"):
                return ()  # a source of its own
            if list_name != "categories" or not isinstance(entry, dict):
                continue
            number = entry.get("id")
            name = entry.get("name")
            if isinstance(number, int) and 0 <= number < MAX_CLASSES and name:
                names[number] = str(name)
    except PackError:
        return ()
    return list_numbered_names(names)


def _names_of_values(values: tuple[str, ...], option: str) -> ClassNames:
    """Names by number: those of labels if all numbers have one; else of the values of masks."""
    if "" not in values and len(set(values)) == len(values):
        return ClassNames(check_names(values, option))
    return ClassNames((), values=values)


def _names_in_text_file(path: SourcePath, option: str) -> ClassNames:
    """The names in the lines of a text file. The number of a class is that of its line.

    The numbers in the lines, if there are any, are those of the values of masks.
    """
    if path.name.lower().endswith(_OTHER_ENDINGS):
        raise ConfigError(
            f"{option}: it is no text file with a name on each line; {_EXPECTED}"
        )
    with open_binary(path) as file:
        data = file.read(_MAX_TEXT_BYTES + 1)
    # A user may have named a file of weights by mistake: it is large, or has zeros.
    try:
        if len(data) > _MAX_TEXT_BYTES or b"\0" in data:
            raise ValueError(f"more than {_MAX_TEXT_BYTES:,} bytes, or zeros in them")
        # Not splitlines(): a name may have a U+2028 in it.
        lines = data.decode("utf-8-sig").split("\n")
    except ValueError as problem:
        raise ConfigError(
            f"{option}: expected a text file in UTF-8 with a name on each line ({problem})"
        ) from None
    names = [line.strip() for line in lines]
    while names and not names[-1]:
        names.pop()
    # To skip an empty line would change the numbers of the classes behind it.
    if "" in names:
        raise ConfigError(
            f"{option}: line {names.index('') + 1} is empty; the number of a class is that of its "
            "line"
        )
    values = parse_numbered_names(names)
    try:
        labels = check_names(clean_class_names(names), option)
    except ConfigError:
        # Several values of a mask may have one name.
        if not values:
            raise
        labels = ()
    return ClassNames(labels, values=values)
