"""A table that says in a column which split each row is of -> the rows of one split; the classes are those of all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.sources.column_kinds import Seen
from fastpipe.sources.options import SourceOptions, named

_NAMES = "split subset partition set dataset dataset_split data_set phase usage part fold mode"
_VALUES = "train training trn test testing tst val valid validation dev eval evaluation holdout public private"
_COLUMNS, _WORDS = frozenset(_NAMES.split()), frozenset(_VALUES.split())
_FLAGS = {"is_valid": ("valid", "train"), "is_val": ("val", "train"), "is_test": ("test", "train")}  # 1 and 0
_FLAGS |= {"is_train": ("train", "valid"), "is_training": ("train", "valid")}
_TRUE, _FALSE = ("true", "1", "1.0"), ("false", "0", "0.0")


class SplitColumn(NamedTuple):
    """The column that says the split, its values as splits, and the one to pack."""

    column: str
    names: Mapping[str, str]  # value in small letters -> name of the split
    chosen: str

    def has(self, values: Mapping[str, Any]) -> bool:
        """Whether a row is of the chosen split."""
        return self.names.get(_plain(values.get(self.column))) == self.chosen


def split_column(seen: Mapping[str, Seen], how: SourceOptions, table: str, *, alone: bool) -> SplitColumn | None:
    """The column with splits, and the chosen one; None: there is no such column. `alone`: the table is the source.

    PackError: the user has to choose, or has chosen another one. A column that is asked for as a field, image or label
    says no split.
    """
    taken = {each.column for each in how.fields or ()} | {how.label_column, how.image_column}
    found = {column: names for column in seen if column not in taken and (names := _splits(column, seen[column]))}
    if not found:
        if how.split is not None and alone:
            raise PackError(
                f"--split has no meaning for a single file, and {table} is one without a column of splits; leave it out"
            )
        return None
    column, names = next(iter(found.items()))
    splits = set(names.values())
    for name in splits:
        if name == how.split or (how.split is None and len(splits) == 1):
            return SplitColumn(column, names, name)
    asked = "" if how.split is None else f"--split {how.split}: "
    raise PackError(
        f"{asked}{table} has the splits {named(splits)} in column {readable(column)!r}: --split picks one. To pack all "
        f"rows, store the column as a field: --field split={column}"
    )


def _splits(column: str, seen: Seen) -> dict[str, str]:
    """The values of a column, and the splits that they are; none where they are something else."""
    plain = re.sub(r"[ -]+", "_", column.strip().lower())
    texts = {text.lower(): text for text in sorted(seen.texts)}
    if plain in _FLAGS and texts and texts.keys() <= {*_TRUE, *_FALSE}:
        yes, no = _FLAGS[plain]
        return {text: yes if text in _TRUE else no for text in texts}
    return dict(texts) if plain in _COLUMNS and texts and texts.keys() <= _WORDS else {}


def _plain(value: object) -> str:
    return str(value).strip().lower()
