"""The folders of splits, and the tables in and beside them -> the tables with labels of each split."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import readable
from fastpipe.sources.annotations.annotation_folders import is_called_images
from fastpipe.sources.file_formats import MANIFESTS, format_of
from fastpipe.sources.files import SourcePath, names_in
from fastpipe.sources.folders.splits import FEW, meaning_of_split, training_or_first
from fastpipe.sources.options import quote_for_shell
from fastpipe.sources.tables.listed_images import (
    find_listing_tables,
    first_rows,
    lists_none_of,
)
from fastpipe.sources.tables.table_files import is_result_form, sort_labelled_first
from fastpipe.sources.tables.table_options import describe_options_of_table
from fastpipe.sources.tables.table_remedies import describe_options_of_labels
from fastpipe.sources.tables.table_text import LISTS

_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_COMMANDS_SHOWN = 3


class TablesBeside(NamedTuple):
    """The tables beside the folders of splits that may have the labels of one split."""

    # All but forms for results.
    names: list[str]
    # Those that are not called after other splits.
    of_split: list[str]
    # Those of these that list an image of the split, the likeliest first.
    candidates: list[str]


class _Images(NamedTuple):
    """The images of a split without class folders."""

    folder: Path
    names: list[str]


class _TableOfSplit(NamedTuple):
    """A table that lists the images of a split."""

    table: Path
    # The folder to pass as --image-root; None if the images are found without it.
    image_root: SourcePath | None
    images: _Images


def find_tables_beside(
    top: SourcePath, folder: SourcePath, split: str, tables: Iterable[str]
) -> TablesBeside:
    """The tables beside the folders of splits that may have the labels of one split.

    Of several tables, test.csv is about the split test. trainLabels.csv is not: Kaggle's images of
    train and test may have the same names.

    Args:
        top: the folder with the splits and the tables.
        folder: the folder with the images of the split.
        split: its name.
        tables: the names of the tables.
    """
    meaning = meaning_of_split(split)
    names = [name for name in tables if not is_result_form(name)]
    named_after_split = [name for name in names if _split_of_table(name) == meaning]
    named_after_none = [name for name in names if not _split_of_table(name)]
    # A table of all splits may have the labels where that of the split lists other images.
    of_split = [
        *sort_labelled_first(named_after_split),
        *sort_labelled_first(named_after_none),
    ]
    candidates = []
    for name in of_split:
        if not _is_about_other_images(top / name, folder):
            candidates.append(name)
    return TablesBeside(names, of_split, candidates)


def describe_tables_of_splits(top: Path, splits: Mapping[str, SourcePath]) -> str:
    """The commands that pack splits with the labels in tables; "" if no table lists their images.

    Args:
        top: the folder with the splits.
        splits: the folder of each split whose images have no other labels.
    """
    tables = dict(_tables_of_splits(top, splits))
    if not tables:
        return ""
    order = sorted(tables, key=lambda split: split != training_or_first(tables))
    texts = []
    for split in order[:_COMMANDS_SHOWN]:
        table = tables[split]
        texts.append(
            f"{readable(table.table.name)} lists the images of {readable(split)}: to pack them with "
            f"what it says, {_command(table)}"
        )
    return ". " + "; ".join(texts)


def _tables_of_splits(
    top: Path, splits: Mapping[str, SourcePath]
) -> Iterator[tuple[str, _TableOfSplit]]:
    """Each split whose images a table lists, and the table."""
    beside: dict[str, _TableOfSplit] = {}
    num_splits_of: dict[Path, int] = {}
    for split, folder in splits.items():
        if not isinstance(folder, Path):
            continue
        images = _find_images(folder)
        if images is None:
            continue
        table = _find_table_inside(folder, images)
        if table is not None:
            yield split, table
            continue
        table = _find_table_beside(top, split, images)
        if table is not None:
            beside[split] = table
            num_splits_of[table.table] = num_splits_of.get(table.table, 0) + 1
    for split, table in beside.items():
        # A table that lists images of several splits is no table of one of them.
        if num_splits_of[table.table] == 1:
            yield split, table


def _find_images(folder: Path) -> _Images | None:
    """The images of a split that lie in its folder, or in the only folder in it, called images."""
    names = names_in(folder, FEW)
    if len(names.folders) == 1 and is_called_images(names.folders[0]):
        folder = folder / names.folders[0]
        names = names_in(folder, FEW)
    pictures = list(filter(is_picture, names.files))
    if names.folders or not pictures:
        return None
    return _Images(folder, pictures)


def _find_table_inside(folder: Path, images: _Images) -> _TableOfSplit | None:
    """The table in the folder of a split, as Roboflow's train/_classes.csv."""
    files = names_in(folder, FEW).files
    tables = [name for name in files if _may_be_table(name)]
    for table in find_listing_tables(folder, tables):
        if isinstance(table.path, Path) and _has_columns(table.path):
            return _TableOfSplit(table.path, table.image_root, images)
    return None


def _find_table_beside(top: Path, split: str, images: _Images) -> _TableOfSplit | None:
    """The table beside the folders of splits that lists the images of one."""
    tables = [name for name in names_in(top, FEW).files if _may_be_table(name)]
    candidates = find_tables_beside(top, images.folder, split, tables).candidates
    for table in find_listing_tables(top, candidates, image_folder=images.folder):
        if isinstance(table.path, Path) and _has_columns(table.path):
            return _TableOfSplit(table.path, images.folder, images)
    return None


def _may_be_table(name: str) -> bool:
    if is_result_form(name):
        return False
    return format_of(name) in MANIFESTS or name.lower().endswith(LISTS)


def _has_columns(table: Path) -> bool:
    """Whether a table says something of images, and is no list of their names."""
    return any(len(row) > 1 for row in first_rows(table))


def _command(table: _TableOfSplit) -> str:
    """The command that packs a table of a split."""
    command = f"fastpipe pack {quote_for_shell(str(table.table))} DST"
    if table.image_root is not None:
        command += f" --image-root {quote_for_shell(str(table.image_root))}"
    images = table.images
    command += describe_options_of_table(table.table, images.names, images.folder)
    return command + describe_options_of_labels(table.table, images.folder)


def _is_about_other_images(table: SourcePath, root: SourcePath) -> bool:
    """Whether a table lists no image of a folder, as labels.csv of Kaggle's dog breeds of test."""
    if not isinstance(table, Path) or not isinstance(root, Path):
        return False
    pictures = list(filter(is_picture, names_in(root, FEW).files))
    return bool(pictures) and lists_none_of(table, pictures)


def _split_of_table(name: str) -> str:
    """The split in the name of a table, also of trainLabels.csv; "" if there is none."""
    words = _CAMEL_CASE.sub("-", name)
    return meaning_of_split(words)
