"""Parquet files, or a folder of `datasets.save_to_disk` -> the list of their rows."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from fastpipe.errors import PackError, readable
from fastpipe.format.file_state import FileState
from fastpipe.format.layout import MOST_CLASSES, NO_LABEL
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.listing import Listing, Source, SourceField
from fastpipe.packing.source.options import SourceOptions
from fastpipe.packing.source.rows import Row, list_rows, row_name
from fastpipe.packing.source.table_splits import ARROW, Tables, find_tables

if TYPE_CHECKING:
    from fastpipe.packing.source.table_columns import TableColumns
    from fastpipe.packing.source.table_file import Group, TableFile

_LEAST_DIGITS = 6
_FILES_SAMPLED, _ROWS_SAMPLED = 4, 128


class Table(NamedTuple):
    """A file of a source, as it was listed."""

    state: FileState
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class TableListing(Listing):
    """The rows of tables. They are read as a stream, so a pack goes by way of a spool.

    A row is called FILE/NUMBER: its number in the file, counted from 0, with as many digits as the last row's, at least
    six; so the order of names is that of rows. It stands in the listing with its size unknown, `archive` its file and
    `offset_bytes` its number.

    Attributes:
        open: opens a file.
        tables: the files, by name.
        columns: that are read.
    """

    open: Callable[[SourcePath], TableFile] = None  # type: ignore[assignment]  # fields with defaults come before
    tables: Mapping[str, Table] = None  # type: ignore[assignment]
    columns: TableColumns = None  # type: ignore[assignment]

    def weight(self, source: Source) -> int:
        """See Listing: one, for the bytes of rows are not known before they are read."""
        return 1

    def samples(self, most: int) -> list[Source]:
        """Rows at the start of a few files: those of one group are read together."""
        first: dict[str, list[Source]] = {}
        for source in sorted(self.sources, key=lambda source: (source.archive or "", source.offset_bytes)):
            ours = first.setdefault(source.archive or "", [])
            if len(ours) < most:
                ours.append(source)
        files = list(first.values())
        files = files[:: -(-len(files) // _FILES_SAMPLED)]
        each = -(-_ROWS_SAMPLED // len(files))
        return [source for ours in files for source in ours[:each]] + [row for ours in files for row in ours[each:]][
            :most
        ]

    def digest(self) -> str:
        """Names the content: the rows with their labels, and the size of each file."""
        sizes = [(name, table.state.size_bytes) for name, table in self.tables.items()]
        return xxhash.xxh3_128_hexdigest(repr((super().digest(), sizes)).encode())

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(table.state.size_bytes for table in self.tables.values())


def list_tables(root: SourcePath, how: SourceOptions | None = None) -> Listing:
    """Lists the rows of tables, in no order.

    The columns with the labels are read for it, and Arrow files whole, for they have no list of their batches.

    Args:
        root: a Parquet file, a folder of them, or one that `save_to_disk` wrote. If its images are paths of files,
            these are the sources, as a manifest's are.
        how: what the user says of it.

    Raises:
        PackError: a file is damaged or none; or something is missing, or there is a choice that only the user can make.
    """
    how = how or SourceOptions()
    found = _found(root, how)
    opener = table_opener(found.kind)
    columns = _common_columns(found, opener, how)
    if columns.has_paths:
        in_rows = [SourceField(field.name, field.kind, in_note=True) for field in columns.fields]
        image_root = how.root_of_images() or found.root
        return list_rows(image_root, _rows(found, opener, columns), in_rows, classes=columns.classes)
    if how.image_root is not None:
        raise PackError(f"--image-root: column {columns.image!r} holds images, not their paths; leave it out")
    tables: dict[str, Table] = {}
    sources: list[Source] = []
    given: list[Any] = []
    for name in found.names:
        with opener(found.root / name) as file:
            groups, labels = _scanned(file, columns)
            state = file.state()
        tables[name] = Table(state, groups)
        rows = len(labels)
        digits = max(_LEAST_DIGITS, len(str(rows - 1)))
        times = state.mtime_ns, state.ctime_ns
        sources += [
            Source(f"{name}/{row:0{digits}d}", NO_LABEL, 0, *times, None, name, row, state.size_bytes)
            for row in range(rows)
        ]
        given += labels
    if not sources:
        raise PackError(f"{root} holds no rows: the {len(found.names)} tables are empty")
    classes = _number(sources, given, columns)
    fields = tuple(field.as_source_field() for field in columns.fields)
    return TableListing(
        found.root, classes, sources, found.stray, fields=fields, open=opener, tables=tables, columns=columns
    )


def needed_groups(table: Table, rows: Container[int]) -> Iterator[Group]:
    """The groups of a file that hold any of these rows."""
    for group in table.groups:
        if any(row in rows for row in range(group.first_row, group.first_row + group.rows)):
            yield group


def _rows(found: Tables, opener: Callable[[SourcePath], TableFile], columns: TableColumns) -> Iterator[Row]:
    """The rows of tables whose images are paths of files."""
    from fastpipe.packing.source.table_cells import row_values

    for name in found.names:
        with opener(found.root / name) as file:
            at = 0
            groups, labels = _scanned(file, columns)
            for group in groups:
                for batch in file.read(group, columns.read()):
                    with file.reading(f"rows from {at:,} on"):
                        rows = row_values(batch, columns)
                    for path, values, problem in rows:
                        yield Row(path or "", labels[at], values, problem, row_name(name, at))
                        at += 1


def _found(root: SourcePath, how: SourceOptions) -> Tables:
    found = find_tables(root, how.split)
    if how.format not in ("auto", found.kind):
        raise PackError(f"{readable(str(root))}: --format {how.format}: it holds {found.kind} files")
    return found


def table_opener(kind: str) -> Callable[[SourcePath], TableFile]:
    """What opens a file of this kind.

    Raises:
        PackError: pyarrow is not installed.
    """
    try:
        if kind == ARROW:
            from fastpipe.packing.source.parquet_arrow import ArrowTable

            return ArrowTable
        from fastpipe.packing.source.parquet_arrow import ParquetTable

        return ParquetTable
    except ImportError as problem:
        raise PackError(
            f"reading Parquet and Arrow files needs pyarrow ({problem}); install it: pip install 'fastpipe[parquet]'"
        ) from problem


def _common_columns(found: Tables, opener: Callable[[SourcePath], TableFile], how: SourceOptions) -> TableColumns:
    """The columns, which must be those of each file."""
    from fastpipe.packing.source.table_columns import choose_columns

    first: TableColumns | None = None
    for name in found.names:
        with opener(found.root / name) as file:
            columns = choose_columns(file.schema, how, name)
        first = first or columns
        if columns != first:
            part = next(part for part in first._fields if getattr(columns, part) != getattr(first, part))
            raise PackError(
                f"{name} has other columns than {found.names[0]}: {part} is {getattr(columns, part)!r} there, "
                f"{getattr(first, part)!r} here. Pack them one by one, or choose columns that all have "
                "(--image-column, --label-column, --field)"
            )
    assert first is not None  # there are files
    return first


def _scanned(file: TableFile, columns: TableColumns) -> tuple[tuple[Group, ...], list[Any]]:
    """The groups of a file, and the label of each row as it stands there."""
    groups, labels = [], list[Any]()
    for group, values in file.scan(columns.label):
        groups.append(group)
        if columns.label is None:
            labels += [None] * group.rows
        else:
            with file.reading(f"column {columns.label!r}"):
                labels += [value for part in values for value in part.to_pylist()]
    return tuple(groups), labels


def _number(sources: list[Source], given: list[Any], columns: TableColumns) -> list[str]:
    """Gives each source its label, in place; returns the names of the classes."""
    names = sorted({name for name in given if name is not None}) if columns.named else list(columns.classes or ())
    numbers = {name: number for number, name in enumerate(names)}
    most = MOST_CLASSES if columns.classes is None else len(names)
    for at, label in enumerate(given):
        if label is None or label == NO_LABEL:
            continue
        if columns.named:
            sources[at] = replace(sources[at], label=numbers[label])
        elif 0 <= label < most:
            sources[at] = replace(sources[at], label=label)
        else:
            why = f"its label is {label}; expected 0 to {most - 1:,}, or -1 or null for none"
            sources[at] = replace(sources[at], problem=why)
    if columns.named or columns.classes is not None:
        return names
    return [str(number) for number in range(max((source.label for source in sources), default=-1) + 1)]
