"""A table with the rows of several splits -> the rows of one of them, and the classes of all.

A column may have the splits, or the folders in the paths of the images.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from fastpipe.errors import first_names, readable
from fastpipe.sources.folders.splits import (
    SplitChoiceError,
    count_shared,
    describe_splits,
    find_split,
    find_split_names,
)
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.column_kinds import ColumnSummary

ALL = "all"  # --split all packs all rows
# Names of columns that have the splits of rows.
SPLIT_COLUMNS = frozenset(
    [
        "split",
        "subset",
        "partition",
        "set",
        "dataset",
        "dataset_split",
        "data_set",
        "phase",
        "usage",
        "part",
        "fold",
        "mode",
    ]
)
# Of these, the names of columns whose numbers are splits. Those of `fold` or `part` may be anything.
_NUMBERED_SPLIT_COLUMNS = frozenset(
    ("split", "subset", "partition", "dataset_split", "set", "data_set")
)
_SPLIT_NUMBER = re.compile(r"[0-9]")
# Values of such columns, in small letters.
SPLIT_NAMES = frozenset(
    [
        "train",
        "training",
        "trn",
        "test",
        "testing",
        "tst",
        "val",
        "valid",
        "validation",
        "dev",
        "eval",
        "evaluation",
        "holdout",
        "public",
        "private",
    ]
)
# Columns of yes and no -> the splits that these two stand for.
_FLAG_COLUMNS = {
    "is_valid": ("valid", "train"),
    "is_val": ("val", "train"),
    "is_test": ("test", "train"),
    "is_train": ("train", "valid"),
    "is_training": ("train", "valid"),
}
_MAX_VALUES_SHOWN = 5
_YES = frozenset(("true", "1", "1.0"))
_NO = frozenset(("false", "0", "0.0"))


class SplitColumn(NamedTuple):
    """The column that says which split a row belongs to, and the split to pack."""

    column: str
    # A value of the column in small letters, or the folder in a path -> its split.
    names: Mapping[str, str]
    # The split to pack; "" before it is chosen.
    chosen: str
    # Whether the column has the paths of the images, whose folders are the splits.
    holds_paths: bool = False

    def has(self, values: Mapping[str, Any]) -> bool:
        """Whether a row with these values belongs to the chosen split."""
        value = values.get(self.column)
        if self.holds_paths:
            key = folder_of(value)
        else:
            key = str(value).strip().lower()
        return self.names.get(key) == self.chosen


def find_split_column(
    summaries: Mapping[str, ColumnSummary], options: SourceOptions, table: str
) -> SplitColumn | None:
    """Finds the column with splits, and the split to pack.

    A column that the user names as a field, image or label is not taken for one with splits.

    Returns:
        None if there is no such column, or if the user wants all rows.

    Raises:
        PackError: there are several splits and the user names none of them.
    """
    used_columns = {
        options.label_column,
        options.image_column,
        *options.field_columns,
    }
    for column, values in summaries.items():
        if column in used_columns:
            continue
        names = _splits_of_values(column, values.texts)
        if names:
            split = SplitColumn(column, names, "")
            place = f"column {readable(column)!r}"
            return _choose_split(split, options, table, place)
    return None


def find_value_as_split(
    summaries: Mapping[str, ColumnSummary], split: str
) -> SplitColumn | None:
    """Finds the split among the values of a column that is called like one of splits.

    For a table in which nothing else says splits: the values may be any texts, such as A and B.
    """
    for column, values in summaries.items():
        if not _is_called_split(column):
            continue
        names = {value.lower(): value for value in sorted(values.texts)}
        chosen = find_split(split, names.values())
        if chosen is not None:
            return SplitColumn(column, names, chosen)
    return None


def assume_all_splits_packed(
    summaries: Mapping[str, ColumnSummary], options: SourceOptions
) -> Iterator[Assumption]:
    """Says that a column has the splits as numbers, as Waterbirds has 0, 1 and 2.

    Nothing says which number is which split, so the rows of all are packed.
    """
    if options.split is not None:
        return
    for column, values in summaries.items():
        is_named = _plain_name(column) in _NUMBERED_SPLIT_COLUMNS
        if not is_named or column in options.field_columns:
            continue
        numbers = sorted(values.texts)
        are_numbers = all(map(_SPLIT_NUMBER.fullmatch, numbers))
        if values.repeats and are_numbers and len(numbers) > 1:
            text = (
                f"splits: column {readable(column)!r} has {', '.join(numbers)}, and the rows of all "
                "are packed"
            )
            yield Assumption(text, f"--split {numbers[0]}")


def describe_other_values(summaries: Mapping[str, ColumnSummary], split: str) -> str:
    """What columns that are called like those of splits have in place of a split; "" without any."""
    columns = []
    for column, values in summaries.items():
        if _is_called_split(column) and values.texts:
            shown = first_names(sorted(values.texts), _MAX_VALUES_SHOWN)
            columns.append(
                f"its column {readable(column)!r} has {shown}, and not {readable(split)!r}"
            )
    return "; ".join(columns)


def find_split_folders(
    column: str, folders: Collection[str], options: SourceOptions, table: str
) -> SplitColumn | None:
    """Does the same for a column of image paths, where their folders are splits, such as train/
    and test/. `folders` has the folder of each path.
    """
    parts_by_folder = {}
    for folder in folders:
        # "./images/train/cats/" -> "images", "train", "cats"
        parts = [part for part in folder.split("/") if part not in ("", ".")]
        parts_by_folder[folder] = parts
    depth = count_shared(parts_by_folder.values())
    # The first folder below those that all paths share.
    heads = {}
    for folder, parts in parts_by_folder.items():
        if len(parts) > depth:
            heads[folder] = parts[depth]
    splits = find_split_names(sorted(set(heads.values())))
    if len(set(splits.values())) < 2:
        return None
    # Rows in other folders belong to no split.
    names = {folder: head for folder, head in heads.items() if head in splits}
    split = SplitColumn(column, names, "", holds_paths=True)
    return _choose_split(split, options, table, "the folders of its paths")


def folder_of(path: object) -> str:
    """The folder of a path, as a table writes it; "" if there is none."""
    if not isinstance(path, str):
        return ""
    if "\\" in path:  # as Windows writes it
        path = path.replace("\\", "/")
    return path[: path.rfind("/") + 1]


def _choose_split(
    split: SplitColumn, options: SourceOptions, table: str, place: str
) -> SplitColumn | None:
    """Chooses the split that the user names, or the only one; None stands for all rows."""
    splits = sorted(set(split.names.values()))
    chosen = None
    if options.split is not None:
        chosen = find_split(options.split, splits)
    elif len(splits) == 1:
        chosen = splits[0]
    if chosen is not None:
        return split._replace(chosen=chosen)
    if options.split == ALL:
        return None

    problem = describe_splits(splits, options.split, f"in {place}")
    raise SplitChoiceError(f"{table} {problem}; {ALL!r} packs all rows", splits)


def has_splits(column: str, values: Collection[str]) -> bool:
    """Whether these values of a column are taken as splits."""
    return bool(_splits_of_values(column, values))


def _is_called_split(column: str) -> bool:
    return _plain_name(column) in SPLIT_COLUMNS


def _plain_name(column: str) -> str:
    return re.sub(r"[ -]+", "_", column.strip().lower())


def _splits_of_values(column: str, values: Collection[str]) -> dict[str, str]:
    """The values of a column, in small letters, and the splits that they name.

    Empty if the column is not one of splits.
    """
    name = _plain_name(column)
    splits = {value.lower(): value for value in sorted(values)}
    if not splits:
        return {}
    if name in _FLAG_COLUMNS and splits.keys() <= _YES | _NO:
        yes, no = _FLAG_COLUMNS[name]
        splits = dict.fromkeys(splits, no)
        for value in _YES & splits.keys():
            splits[value] = yes
        return splits
    if name in SPLIT_COLUMNS and splits.keys() <= SPLIT_NAMES:
        return splits
    return {}
