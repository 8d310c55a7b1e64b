"""A table that says in a column, or in the paths, which split each row is of -> the rows of one split; the classes are
those of all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.sources.column_kinds import Seen
from fastpipe.sources.options import SourceOptions, named
from fastpipe.sources.splits import called_like_splits, count_shared, fitting

ALL = "all"  # the option that packs all rows
_NAMES = "split subset partition set dataset dataset_split data_set phase usage part fold mode"
_VALUES = "train training trn test testing tst val valid validation dev eval evaluation holdout public private"
_COLUMNS, _WORDS = frozenset(_NAMES.split()), frozenset(_VALUES.split())
_FLAGS = {
    "is_valid": ("valid", "train"),
    "is_val": ("val", "train"),
    "is_test": ("test", "train"),
}  # 1 and 0
_FLAGS |= {"is_train": ("train", "valid"), "is_training": ("train", "valid")}
_TRUE, _FALSE = ("true", "1", "1.0"), ("false", "0", "0.0")


class SplitColumn(NamedTuple):
    """The column that says the split, its values as splits, and the one to pack."""

    column: str
    names: Mapping[str, str]  # value in small letters, or the folder in a path -> name of the split
    chosen: str
    holds_paths: bool = False  # the column is that of the images, whose folders are the splits

    def has(self, values: Mapping[str, Any]) -> bool:
        """Whether a row is of the chosen split."""
        if self.holds_paths:
            return self.names.get(folder_of(values.get(self.column))) == self.chosen
        return self.names.get(_plain(values.get(self.column))) == self.chosen


def split_column(seen: Mapping[str, Seen], how: SourceOptions, table: str) -> SplitColumn | None:
    """The column with splits, and the chosen one; None: there is no such column, or a user wants all rows.

    PackError: the user has to choose, or has chosen another one. A column that is asked for as a field, image or label
    says no split.
    """
    taken = {each.column for each in how.fields or ()} | {how.label_column, how.image_column}
    found = {
        column: names
        for column in seen
        if column not in taken and (names := _splits(column, seen[column]))
    }
    if not found:
        return None
    column, names = next(iter(found.items()))
    return _chosen(SplitColumn(column, names, ""), how, table, f"column {readable(column)!r}")


def split_of_paths(
    column: str, folders: Collection[str], how: SourceOptions, table: str
) -> SplitColumn | None:
    """The same of the column of the images, where their folders are splits, such as train/ and test/; `folders`: those
    in all paths.
    """
    parts = {
        folder: [part for part in folder.split("/") if part not in ("", ".")] for folder in folders
    }
    depth = count_shared(parts.values())
    heads = {folder: names[depth] for folder, names in parts.items() if len(names) > depth}
    splits = called_like_splits(sorted({*heads.values()}))
    if len({*splits.values()}) < 2:
        return None
    names = {folder: head for folder, head in heads.items() if head in splits}
    return _chosen(
        SplitColumn(column, names, "", holds_paths=True), how, table, "the folders of its paths"
    )


def folder_of(path: object) -> str:
    """The folder in a path, as a table writes it; "": there is none."""
    if not isinstance(path, str):
        return ""
    if "\\" in path:
        path = path.replace("\\", "/")
    return path[: path.rfind("/") + 1]


def refuse_split(how: SourceOptions, table: str) -> None:
    """Raises PackError where a user picks a split of a table that has none."""
    if how.split is not None:
        raise PackError(
            f"--split has no meaning for a single file, and {table} is one without a column of splits; leave it out"
        )


def _chosen(split: SplitColumn, how: SourceOptions, table: str, place: str) -> SplitColumn | None:
    """With the split that a user picks, or the only one there is; None: all rows. PackError: there is neither."""
    splits = set(split.names.values())
    chosen = None if how.split is None else fitting(how.split, sorted(splits))
    if chosen is None and how.split is None and len(splits) == 1:
        chosen = next(iter(splits))
    if chosen is not None:
        return split._replace(chosen=chosen)
    if how.split == ALL:
        return None
    asked = "" if how.split is None else f"--split {how.split}: "
    raise PackError(
        f"{asked}{table} has the splits {named(splits)} in {place}: --split picks one, --split {ALL} packs all rows"
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
