"""Parquet files, or a folder of `datasets.save_to_disk` -> the list of their rows."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from fastpipe.errors import PackError, readable
from fastpipe.format.layout import NO_LABEL
from fastpipe.format.open_file import FileState
from fastpipe.sources.class_columns import settled_classes
from fastpipe.sources.detections import Detections, assumed_of_detections, with_names
from fastpipe.sources.files import SourcePath, files_below, open_unchanged
from fastpipe.sources.likely import Known, assumed_of_columns, named_as_label
from fastpipe.sources.listing import Group, Listing, Source
from fastpipe.sources.options import ColumnChoice, SourceOptions, pick_split
from fastpipe.sources.row_labels import Labels
from fastpipe.sources.rows import Row, Rows, list_rows, row_name, rows_of
from fastpipe.sources.splits import split_in_path
from fastpipe.sources.table_boxes import no_boxes
from fastpipe.sources.unlisted import Unlisted

if TYPE_CHECKING:
    from fastpipe.sources.parquet_arrow import TableFile

_NO_COLUMNS = ColumnChoice("", None, ())
_LEAST_DIGITS = 6
SCAN_ROWS = 1 << 16
_TEXTS_SAMPLED = 1000
_FILES_SAMPLED, _ROWS_SAMPLED = 4, 128
_STATE, _SPLITS = "state.json", "dataset_dict.json"
# train-00000-of-00002.parquet, also with a hash behind it.
_PART = re.compile(r"(?P<split>.+?)-\d{3,}-of-\d{3,}(-[0-9a-f]+)?\.parquet", re.IGNORECASE)
_USUAL = {
    "train",
    "training",
    "test",
    "testing",
    "val",
    "valid",
    "validation",
    "dev",
    "eval",
    "evaluation",
}


class Table(NamedTuple):
    """A file of a source, as it was listed."""

    state: FileState
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class TableListing(Listing):
    """The rows of tables. They are read as a stream, so a pack goes by way of a spool.

    A row is called FILE/NUMBER, with as many digits as the last row's, so the order of names is that of rows. Its size
    is unknown, `archive` is its file, `offset_bytes` its number. `kind` is "parquet" or "arrow".
    """

    kind: str = ""
    tables: Mapping[str, Table] = field(default_factory=dict)  # the files, by name
    columns: ColumnChoice = _NO_COLUMNS

    def weight(self, source: Source) -> int:
        """See Listing: one, for the bytes of rows are not known before they are read."""
        return 1

    def samples(self, most: int) -> list[Source]:
        """Rows at the start of a few files: those of one group are read together."""
        rows = sorted(self.sources, key=lambda source: (source.archive or "", source.offset_bytes))
        files = [
            list(islice(ours, most)) for _, ours in groupby(rows, key=lambda source: source.archive)
        ]
        files = files[:: -(-len(files) // _FILES_SAMPLED)]
        each = -(-_ROWS_SAMPLED // len(files))
        found = [source for ours in files for source in ours[:each]] + [
            row for ours in files for row in ours[each:]
        ]
        return found[:most]

    def digest(self) -> str:
        """Names the content: the rows with their labels, and the size of each file."""
        sizes = [(name, table.state.size_bytes) for name, table in self.tables.items()]
        return xxhash.xxh3_128_hexdigest(repr((super().digest(), sizes)).encode())

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(table.state.size_bytes for table in self.tables.values())


def list_tables(root: SourcePath, how: SourceOptions) -> Listing:
    """Lists the rows of Parquet or Arrow files, in no order; where they hold paths, the files are the sources."""
    kind, names, stray = _tables_in(root, how.split)
    if how.format not in ("auto", kind):
        raise PackError(f"{readable(str(root))}: --format {how.format}: it holds {kind} files")
    folder = root if root.is_dir() else root.parent
    columns, numbers = _NO_COLUMNS, Labels(None)
    tables: dict[str, Table] = {}
    sources: list[Source] = []
    known: dict[str, Known] = {}
    detections: dict[
        str, list[str]
    ] = {}  # columns with objects that hold boxes -> the names of their classes
    categories: dict[str, Detections] = {}  # of columns that become fields of boxes
    texts: dict[str, set[str]] = {}  # of columns that become fields of classes
    for name in names:
        with open_table(kind, folder / name) as file:
            from fastpipe.sources.parquet_arrow import (
                columns_of_table,
                detection_names,
                known_columns,
            )

            here = columns_of_table(file.schema, how, name)
            known = known or known_columns(file.schema)
            if columns is _NO_COLUMNS:
                columns, numbers = here, Labels(here.classes)
            if here != columns:
                part = next(
                    part for part in here._fields if getattr(here, part) != getattr(columns, part)
                )
                raise PackError(
                    f"{name} has other columns than {names[0]}: {part} is {getattr(here, part)!r} there, "
                    f"{getattr(columns, part)!r} here. Pack them one by one, or choose columns that all have "
                    "(--image-column, --label-column, --field)"
                )
            add_texts(file, columns, texts)
            _add_categories(file, columns, categories)
            if name == names[0]:
                detections = {
                    column: list(names) for column, names in detection_names(file.schema).items()
                }
                known |= _with_first_texts(file, known)
            if columns.has_paths:
                continue
            groups, labels = [], list[Any]()
            for group in file.groups():
                groups.append(group)
                cells = (
                    file.values(group, [columns.label], SCAN_ROWS)
                    if columns.label
                    else [[[None] * group.rows]]
                )
                labels += chain.from_iterable(values for (values,) in cells)
            state = file.opened.state
        tables[name] = Table(state, tuple(groups))
        digits = max(_LEAST_DIGITS, len(str(len(labels) - 1)))
        for row, label in enumerate(labels):
            path, number, problem = f"{name}/{row:0{digits}d}", NO_LABEL, None
            try:
                number = numbers.take(label, path)
            except ValueError as wrong:
                problem = str(wrong)
            sources.append(
                Source(
                    path,
                    number,
                    0,
                    state.mtime_ns,
                    state.ctime_ns,
                    problem,
                    name,
                    row,
                    state.size_bytes,
                )
            )
    fields, assumed = settled_classes(columns.fields, texts, how)
    for column, found in categories.items():
        if found.is_certain and found.count:
            detections[column] = detections.get(column) or sorted(found.names)
    if how.box_format is not None and not detections:
        raise no_boxes(readable(str(root)))
    fields = with_names(fields, detections, how.box_format)
    assumed += assumed_of_detections(detections, fields, how.box_format)
    columns = columns._replace(fields=fields)
    if columns.has_paths:
        assumed += assumed_of_columns(known, columns, how)
        read = [*columns.read(), *filter(None, [columns.label])]
        return list_rows(
            how.root_of_images() or folder,
            Rows(lambda: rows_of(_rows(kind, folder, names, read), columns)),
            columns.fields,
            classes=columns.classes,
            assumed=assumed,
            unlisted=Unlisted(how.unlisted),
            table=root.name,
        )
    for option in ("image_root", "unlisted"):
        if getattr(how, option) is not None:
            name = option.replace("_", "-")
            raise PackError(
                f"--{name}: column {columns.image!r} holds images, not their paths; leave it out"
            )
    if not sources:
        raise PackError(f"{root} holds no rows: the {len(names)} tables are empty")
    classes = numbers.settle(sources)
    if columns.label in known and columns.classes is None:
        known[columns.label] = Known(texts=classes)
    assumed += [*assumed_of_columns(known, columns, how), *numbers.assumed(classes)]
    listing = Listing(
        folder, classes, sources, stray, fields=columns.fields, assumed=tuple(assumed)
    )
    return TableListing(**vars(listing), kind=kind, tables=tables, columns=columns)


def add_texts(file: TableFile, columns: ColumnChoice, texts: dict[str, set[str]]) -> None:
    """Adds all texts of the columns that become fields of classes."""
    for each in columns.fields:
        if each.kind == "classes" and not each.columns and file.holds_texts(each.column):
            found = texts.setdefault(each.column, set())
            for group in file.groups():
                for (values,) in file.values(group, [each.column], SCAN_ROWS):
                    found.update(value for value in values if value is not None)


def _add_categories(
    file: TableFile, columns: ColumnChoice, categories: dict[str, Detections]
) -> None:
    """Adds the names of classes in the columns that become fields of boxes."""
    for each in columns.fields:
        if each.kind == "boxes":
            found = categories.setdefault(each.column, Detections())
            for group in file.groups():
                for (values,) in file.values(group, [each.column], SCAN_ROWS):
                    for value in values:
                        found.add(value)


def _with_first_texts(file: TableFile, known: Mapping[str, Known]) -> dict[str, Known]:
    """The columns that are called as if they held classes, with a few of their texts."""
    likely = [name for name in known if named_as_label(name) and file.holds_texts(name)]
    groups = [group for group in islice(file.groups(), 1) if likely]
    cells = next((next(file.values(group, likely, _TEXTS_SAMPLED), []) for group in groups), [])
    return {
        name: known[name]._replace(first={text for text in values if text is not None})
        for name, values in zip(likely, cells, strict=False)
    }


def needed_groups(table: Table, rows: Container[int]) -> Iterator[Group]:
    """The groups of a file that hold any of these rows."""
    return (
        each for each in table.groups if any(each.first_row + at in rows for at in range(each.rows))
    )


def metadata_rows(path: SourcePath, how: SourceOptions) -> Iterator[Row]:
    """The rows of a file of metadata, which holds what JSON can."""
    with open_table("parquet", path) as file:
        from fastpipe.sources.parquet_arrow import columns_of_rows

        columns = columns_of_rows(file.schema, how, readable(str(path)))
    return _rows("parquet", path.parent, [path.name], columns)


def _rows(kind: str, folder: SourcePath, names: list[str], columns: list[str]) -> Iterator[Row]:
    """The rows of tables, with these columns. Times and decimals are texts; NaN is a missing value."""
    for name in names:
        with open_table(kind, folder / name) as file:
            found = chain.from_iterable(file.values(group, columns) for group in file.groups())
            for number, cells in enumerate(
                chain.from_iterable(zip(*values, strict=True) for values in found)
            ):
                values = (None if cell != cell else cell for cell in cells)
                yield Row(row_name(name, number), dict(zip(columns, values, strict=True)))


def open_table(kind: str, path: SourcePath) -> TableFile:
    try:
        from fastpipe.sources.parquet_arrow import ArrowTable, ParquetTable
    except ImportError as problem:
        raise PackError(
            f"reading Parquet and Arrow files needs pyarrow ({problem}); install it: pip install 'fastpipe[parquet]'"
        ) from problem
    return ArrowTable(path) if kind == "arrow" else ParquetTable(path)


def _tables_in(root: SourcePath, split: str | None) -> tuple[str, list[str], list[str]]:
    """Of a source's split "parquet" or "arrow", the files, and those that are no tables; their names have "/"."""
    if not root.is_dir():
        pick_split(split, [split_of(root.name)], root)
        return "arrow" if root.suffix.lower() == ".arrow" else "parquet", [root.name], []
    names = saved_splits(root)
    if names is not None:
        return "arrow", saved_files(root, f"{pick_split(split, names, root)}/"), []
    if (root / _STATE).is_file():
        pick_split(split, [str(_json(root / _STATE).get("_split") or "")], root)
        return "arrow", saved_files(root, ""), []
    splits: dict[str, list[str]] = {}
    stray: list[str] = []
    for name in sorted(files_below(root, hidden=False)):
        there = (
            splits.setdefault(split_of(name), []) if name.lower().endswith(".parquet") else stray
        )
        there.append(name)
    if not splits:
        raise PackError(f"{readable(str(root))} holds no .parquet files")
    return "parquet", splits[pick_split(split, splits, root)], stray


def saved_splits(root: SourcePath) -> list[str] | None:
    """The splits of a folder that `DatasetDict.save_to_disk` wrote; None: it is none."""
    if not (root / _SPLITS).is_file():
        return None
    said = _json(root / _SPLITS).get("splits")
    return [name for name in said if _is_name(name)] if isinstance(said, list) else []


def split_of(name: str) -> str:
    """The split that the name of a file says, in the layouts of Hugging Face; "": it says none."""
    if part := _PART.fullmatch(name.rpartition("/")[2]):
        return part["split"]
    return split_in_path(name, _USUAL)


def saved_files(root: SourcePath, prefix: str) -> list[str]:
    """The files that state.json names, with the folder before them."""
    state = root / prefix / _STATE
    listed: Any = _json(state).get("_data_files")
    names = (
        [each.get("filename") for each in listed if isinstance(each, dict)]
        if isinstance(listed, list)
        else []
    )
    if not names or not all(map(_is_name, names)) or len({*names}) != len(listed):
        expected = "expected a list of files in the same folder"
        raise PackError(f"{readable(str(state))}: {expected}, got {str(listed)[:100]!r}")
    return [prefix + str(name) for name in names]


def _is_name(name: object) -> bool:
    return (
        isinstance(name, str)
        and name not in ("", ".", "..")
        and "/" not in name
        and "\0" not in name
    )


def _json(file: SourcePath) -> dict[str, Any]:
    try:
        with open_unchanged(file) as opened:
            return {**json.load(opened)}
    except (ValueError, TypeError, RecursionError) as problem:
        expected = "expected an object in JSON, as save_to_disk writes it"
        raise PackError(f"{readable(str(file))}: {expected} ({problem})") from problem
