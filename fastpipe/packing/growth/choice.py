"""What a user says about samples to remove -> which samples of a dataset are meant."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Bools, Int64s, Uint64s
from fastpipe.dataset.format.fields import FIELDS_FOLDER, Field, sidecars
from fastpipe.dataset.format.layout import PICTURE
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.sample_layout import key_hashes
from fastpipe.errors import (
    ConfigError,
    did_you_mean,
    first_names,
    format_share,
    suggest_class,
)
from fastpipe.store.saved_columns import LABEL, SavedColumns

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
# Columns of the index that can be compared.
_INDEX_COLUMNS = ("label", *PICTURE)
# "<=" stands before "<", because the first alternative that fits is taken.
_COMPARISON = re.compile(r"\s*(\w+)\s*(<=|>=|==|!=|<|>|=)\s*(.*\S)\s*")
# A message names at most so many keys or files, and so many classes.
MAX_NAMED = 5


class Comparison(NamedTuple):
    """A comparison of --where, such as `score < 0.2`."""

    column: str
    sign: str
    value: str


class SampleChoice:
    """Samples that a user wants to remove: those that all arguments mean."""

    def __init__(
        self,
        keys: Iterable[str] | None,
        classes: str | Sequence[str] | None,
        where: str | Sequence[str] | None,
    ) -> None:
        if keys is None and not classes and not where:
            raise ConfigError(
                "remove: expected keys=, classes= or where= (--keys, --class or --where), which say what "
                "is to be removed"
            )
        if isinstance(keys, (str, os.PathLike)):
            raise ConfigError(f"keys: expected a list of keys, got {keys!r}")
        self._keys = None if keys is None else list(keys)
        self._classes = _as_list(classes)
        self._comparisons = [_parse_comparison(text) for text in _as_list(where)]

    def command_options(self) -> list[str]:
        """The choice as options of a command, for the history of the dataset."""
        words = []
        if self._keys is not None:
            words += ["--keys", "FILE"]
        for name in self._classes:
            words += ["--class", name]
        for comparison in self._comparisons:
            words += ["--where", " ".join(comparison)]
        return words

    def select(self, index: PackedIndex, saved: SavedColumns) -> Bools:
        """(n,) which samples are meant. ConfigError: there is no such key, class or column.

        `saved`: the columns that `save_columns` wrote beside the dataset.
        """
        table = _Columns(index, saved)
        selected = np.ones(len(index), np.bool_)
        if self._keys is not None:
            selected &= _has_key(index, self._keys)
        if self._classes:
            labels = [table.label_of(name) for name in self._classes]
            selected &= np.isin(table.labels(), labels)
        for comparison in self._comparisons:
            selected &= _compare(table, comparison)
        return selected


def _as_list(value: str | Sequence[str] | None) -> list[str]:
    if isinstance(value, str):
        return [value]
    return list(value or ())


def _parse_comparison(text: str) -> Comparison:
    match = _COMPARISON.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"where {text!r}: expected COLUMN OPERATOR VALUE, such as 'score < 0.2', with one of "
            f"{', '.join(_OPERATORS)}"
        )
    return Comparison(match[1], match[2], match[3])


def _has_key(index: PackedIndex, keys: Sequence[str]) -> Bools:
    """(n,) which samples have one of these keys. ConfigError: no sample has one of them."""
    # The index has a hash of each key.
    wanted = key_hashes(keys)
    known = np.array(index.records["key"])
    is_known = np.isin(wanted, known)
    unknown = list(compress(keys, ~is_known))
    if unknown:
        names = first_names([repr(key) for key in unknown], MAX_NAMED)
        share = format_share(len(unknown), len(wanted), "key")
        verb = "is" if len(unknown) == 1 else "are"
        raise ConfigError(
            f"{share} {verb} not in {index.path}: {names}. A key is the path of "
            f"an image in its source, such as {index.source_path_of(0)!r}{_nearest_key(unknown[0], known)}"
        )
    return np.isin(known, wanted)


def _nearest_key(key: str, known: Uint64s) -> str:
    """The end of the message, if a key is one of the dataset behind some folders."""
    parts = key.split("/")
    for number in range(1, len(parts)):
        shorter = "/".join(parts[number:])
        if np.isin(key_hashes([shorter]), known).all():
            return f"; did you mean {shorter!r}?"
    return ""


def _compare(table: _Columns, comparison: Comparison) -> Bools:
    """(n,) for which samples the comparison is true."""
    column, sign, value = comparison
    compare = _OPERATORS[sign]
    if column == "class":
        if compare not in (operator.eq, operator.ne):
            raise ConfigError(
                f"where class {sign} {value}: classes have no order; expected == or !="
            )
        label = table.label_of(value)
        return np.asarray(compare(table.labels(), label), np.bool_)

    values = table.numbers(column)
    # An integer stays one: above 2**53 not every integer has an exact float.
    parse = int if re.fullmatch(r"[+-]?\d+", value) else float
    try:
        number = parse(value)
    except ValueError:
        raise ConfigError(
            f"where {column} {sign} {value}: expected a number behind {sign}"
        ) from None
    return np.asarray(compare(values, number), np.bool_)


class _Columns:
    """The columns of a dataset, as `fastpipe.open` has them: saved ones, fields, the index."""

    def __init__(self, index: PackedIndex, saved: SavedColumns) -> None:
        self._index = index
        self._saved = saved
        self._classes = list(index.classes)
        if saved.classes is not None:
            self._classes = saved.classes

    def labels(self) -> Int64s:
        """(n,) the label of each sample."""
        return self.numbers(LABEL)

    def label_of(self, name: str) -> int:
        """The label of a class. ConfigError: there is no such class."""
        if name not in self._classes:
            hint = suggest_class(name, self._classes)
            raise ConfigError(f"{self._index.path} has no class {name!r}{hint}")
        return self._classes.index(name)

    def numbers(self, column: str) -> NDArray[Any]:
        """(n,) a column with a number for each sample. ConfigError: there is no such column."""
        index = self._index
        if column in self._saved.files:
            rows = self._saved.open(column, len(index))
            if _has_number_in_each_row(rows):
                return rows.reshape(-1)
            raise self._no_numbers(column, "values that are no single numbers")
        if column in _INDEX_COLUMNS:
            return np.asarray(index.records[column], np.int64)
        field = index.fields.get(column)
        if field is None:
            raise self._no_numbers(column, "no such column")
        if not _has_numbers(field):
            raise self._no_numbers(
                column, f"values of kind {field.kind}, no single numbers"
            )
        # The column is mapped, as it may be larger than the memory.
        file = index.files / FIELDS_FOLDER / sidecars(field)[0]
        values: NDArray[Any] = np.lib.format.open_memmap(file, mode="r")
        return values.reshape(-1)

    def _no_numbers(self, column: str, problem: str) -> ConfigError:
        index = self._index
        known = [*_INDEX_COLUMNS, "class"]
        for field in index.fields.values():
            if _has_numbers(field):
                known.append(field.name)
        for name in self._saved.files:
            rows = self._saved.open(name, len(index))
            if name not in known and _has_number_in_each_row(rows):
                known.append(name)
        return ConfigError(
            f"where {column}: {index.path} has {problem}; expected one of {', '.join(known)}"
            f"{did_you_mean(column, known)}"
        )


def _has_numbers(field: Field) -> bool:
    """Whether each sample has a single number."""
    return field.kind == "int" or field.width == 1


def _has_number_in_each_row(rows: NDArray[Any]) -> bool:
    is_number = rows.dtype.kind in "biuf"
    return is_number and rows.size == len(rows)
