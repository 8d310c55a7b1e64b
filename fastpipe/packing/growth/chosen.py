"""Keys, classes and comparisons of columns -> which samples of a dataset they name."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError
from fastpipe.format.fields import FIELDS_FOLDER, sidecars
from fastpipe.format.identity import key_hash
from fastpipe.format.index import Index

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
_OWN = ("label", "width", "height")
_COMPARISON = re.compile(r"\s*(\w+)\s*(<=|>=|==|!=|<|>|=)\s*(.*\S)\s*")
_NAMED = 5  # keys in a message


class Chosen:
    """What a user says of samples; all of it holds. See `fastpipe.remove`.

    Raises:
        ConfigError: it says nothing, or no comparison.
    """

    def __init__(
        self, keys: Iterable[str] | None, classes: str | Sequence[str] | None, where: str | Sequence[str] | None
    ) -> None:
        if keys is None and not classes and not where:
            raise ConfigError("remove: expected --keys, --class or --where, which say what is to be removed")
        if isinstance(keys, (str, os.PathLike)):
            raise ConfigError(f"keys: expected a list of keys, got {keys!r}")
        self._keys = None if keys is None else list(keys)
        self._classes = [classes] if isinstance(classes, str) else list(classes or ())
        self._where = []
        for text in [where] if isinstance(where, str) else where or ():
            match = _COMPARISON.fullmatch(text)
            if match is None:
                raise ConfigError(
                    f"--where {text!r}: expected COLUMN OPERATOR VALUE, such as 'score < 0.2', with one of "
                    f"{', '.join(_OPERATORS)}"
                )
            self._where.append((match[1], match[2], match[3]))

    @property
    def words(self) -> list[str]:
        """As options of a command."""
        found = [] if self._keys is None else ["--keys", "FILE"]
        for name in self._classes:
            found += ["--class", name]
        for comparison in self._where:
            found += ["--where", " ".join(comparison)]
        return found

    def of(self, index: Index) -> NDArray[np.bool_]:
        """(n,) which samples of a dataset are named.

        Raises:
            ConfigError: it has no such key, class or column.
        """
        found = np.ones(len(index), np.bool_)
        if self._keys is not None:
            wanted = np.array([key_hash(key) for key in self._keys], np.uint64)
            there = np.array(index.records["key"])
            unknown = np.flatnonzero(~np.isin(wanted, there))
            if len(unknown):
                names = ", ".join(map(repr, (self._keys[at] for at in unknown[:_NAMED].tolist())))
                raise ConfigError(
                    f"{len(unknown):,} of {len(wanted):,} keys are not in {index.path}: {names}"
                    f"{' ...' if len(unknown) > _NAMED else ''}; expected the paths of samples' sources, as "
                    'batch["key"] has them'
                )
            found &= np.isin(there, wanted)
        if self._classes:
            found &= np.isin(index.records["label"], [_label(index, name) for name in self._classes])
        for column, sign, value in self._where:
            found &= _compared(index, column, sign, value)
        return found


def _label(index: Index, name: str) -> int:
    if name not in index.class_to_idx:
        known = ", ".join(index.classes[:20]) + (" ..." if len(index.classes) > 20 else "")
        raise ConfigError(f"class {name!r}: {index.path} has no such class; its classes are {known or 'none'}")
    return index.class_to_idx[name]


def _compared(index: Index, column: str, sign: str, value: str) -> NDArray[np.bool_]:
    compare = _OPERATORS[sign]
    if column == "class":
        if compare not in (operator.eq, operator.ne):
            raise ConfigError(f"--where class {sign} {value}: classes have no order; expected == or !=")
        return np.asarray(compare(index.records["label"], _label(index, value)), np.bool_)
    numbers = {each.name: each for each in index.fields.values() if each.kind == "int" or each.width == 1}
    values: NDArray[Any]
    if column in _OWN:
        values = index.records[column].astype(np.int64)
    elif column in numbers:
        file = index.files / FIELDS_FOLDER / sidecars(numbers[column])[0]
        values = np.lib.format.open_memmap(file, mode="r").reshape(-1)
    else:
        field, expected = index.fields.get(column), ", ".join([*_OWN, "class", *numbers])
        what = "no such column" if field is None else f"values of kind {field.kind}, no single numbers"
        raise ConfigError(f"--where {column}: {index.path} has {what}; expected one of {expected}")
    try:
        number: float = int(value) if re.fullmatch(r"[+-]?\d+", value) else float(value)
    except ValueError:
        raise ConfigError(f"--where {column} {sign} {value}: expected a number behind {sign}") from None
    return np.asarray(compare(values, number), np.bool_)
