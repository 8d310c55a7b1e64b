"""Parquet files, or a folder of `datasets.save_to_disk` -> the list of their rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.open_file import FileState
from fastpipe.distribution import install_extra
from fastpipe.errors import PackError, readable
from fastpipe.sources.column_choice import ColumnChoice
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import Assumption, Group, Listing, Source, SourceField
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.png_of_numbers import is_png_of_numbers
from fastpipe.sources.settled_fields import settle_fields
from fastpipe.sources.tables.likely import Known, find_column_assumptions, is_label_name
from fastpipe.sources.tables.list_rows import list_rows
from fastpipe.sources.tables.listed_images import find_columns_of_pictures
from fastpipe.sources.tables.names_beside import find_json_names
from fastpipe.sources.tables.row_labels import Labels
from fastpipe.sources.tables.rows import Row, Rows, row_name, rows_of
from fastpipe.sources.tables.table_classes import SCAN_ROWS, TableClasses
from fastpipe.sources.tables.table_colours import settle_colours
from fastpipe.sources.tables.table_paths import (
    TablePaths,
    find_other_splits,
    find_tables,
    split_of,
)
from fastpipe.sources.tables.unlisted import Unlisted

if TYPE_CHECKING:
    from fastpipe.sources.tables.parquet_arrow import TableFile

# The names of rows have at least so many digits.
_MIN_DIGITS = 6
# The first texts of a column, to see whether they look like several classes.
_FIRST_TEXTS = 1000
# The first pictures of a column, to see whether they are masks.
_FIRST_PICTURES = 4
# The first texts of a column, to see whether they name pictures.
_FIRST_NAMES = 20
_FILES_SAMPLED = 4
_ROWS_SAMPLED = 128
_NO_COLUMNS = ColumnChoice("", None, ())


class Table(NamedTuple):
    """A file of a source, as it was listed."""

    state: FileState
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class TableListing(Listing):
    """The rows of tables. They are read as a stream, so a pack goes by way of a spool.

    A row is called FILE/NUMBER, with as many digits as the last row's, so the order of names is
    that of rows. Its size is unknown, `archive` is its file, `offset_bytes` its number.
    """

    # "parquet" or "arrow".
    kind: str = ""
    # The files, by name.
    tables: Mapping[str, Table] = field(default_factory=dict)
    # The columns that are packed.
    columns: ColumnChoice = _NO_COLUMNS

    def weight(self, source: Source) -> int:
        """See `Listing.weight`. All rows weigh the same: reading alone shows their bytes."""
        return 1

    def samples(self, most: int) -> list[Source]:
        """Rows at the start of a few files, because the rows of a group are read together."""
        rows = sorted(
            self.sources, key=lambda source: (source.archive or "", source.offset_bytes)
        )
        files = []
        for _, rows_of_file in groupby(rows, key=lambda source: source.archive):
            files.append(list(islice(rows_of_file, most)))
        files = files[:: math.ceil(len(files) / _FILES_SAMPLED)]

        # All files come before more rows of one file, if `most` is small.
        rows_per_file = math.ceil(_ROWS_SAMPLED / len(files))
        first: list[Source] = []
        rest: list[Source] = []
        for file in files:
            first += file[:rows_per_file]
            rest += file[rows_per_file:]
        return (first + rest)[:most]

    def digest(self) -> str:
        """Names the content: the rows with their labels, and the size of each file."""
        sizes = [(name, table.state.size_bytes) for name, table in self.tables.items()]
        return xxhash.xxh3_128_hexdigest(repr((super().digest(), sizes)).encode())

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(table.state.size_bytes for table in self.tables.values())


@dataclass
class _Scan:
    """The facts of a source besides its images, from one file after the other."""

    # The columns to pack, which are the same in all files.
    columns: ColumnChoice
    labels: Labels
    # The columns that may hold a class for each row, by the first file.
    known: dict[str, Known]
    # The columns whose classes have names in the schema.
    class_columns: Collection[str]
    # The classes of fields.
    classes: TableClasses
    tables: dict[str, Table] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    # Columns of masks, by their pictures, that the user stores without saying a kind.
    mask_columns: list[SourceField] = field(default_factory=list)


def list_tables(root: SourcePath, options: SourceOptions) -> Listing:
    """Lists the rows of Parquet or Arrow files, in no order.

    Where the column of images has paths, lists the image files instead.
    """
    paths = find_tables(root, options.split)
    if options.format not in ("auto", paths.kind):
        raise PackError(
            f"{readable(str(root))}: --format {options.format}: it holds {paths.kind} files"
        )
    scan = _scan_tables(paths, options)
    columns, assumed = settle_fields(
        scan.columns,
        scan.classes.texts(),
        scan.classes.box_objects(),
        options,
        readable(str(root)),
    )
    if options.fields is None:
        assumed += _assumed_of_fields(columns, scan.class_columns)
    for source_field in scan.mask_columns:
        column = source_field.column
        text = f"column {column!r} of masks is stored as images, which are interpolated when they are resized"
        option = f"--field {quote_for_shell(f'{source_field.name}={column}:mask')}"
        assumed.append(Assumption(text, option))
    assumed += _assume_names_beside(paths.folder, columns, options)
    if columns.has_paths:
        assumed += find_column_assumptions(scan.known, columns, options)
        return _list_image_files(root, paths, columns, assumed, options)

    _reject_shares(columns, readable(str(root)))
    # These options are about image files, and the images lie in the table itself.
    options_of_files = {
        "--image-root": options.image_root,
        "--unlisted": options.unlisted,
    }
    for option, value in options_of_files.items():
        if value is not None:
            raise PackError(
                f"{option}: column {columns.image!r} holds images, not their paths; leave it out"
            )
    if not scan.sources:
        raise PackError(
            f"{root} holds no rows: the {len(paths.names)} tables are empty"
        )
    classes = scan.labels.settle(scan.sources)
    if columns.label in scan.known and columns.classes is None:
        # All labels have been read, so their texts are known, and not only the first ones.
        scan.known[columns.label] = Known(texts=classes)
    assumed += find_column_assumptions(scan.known, columns, options)
    assumed += scan.labels.assumed(classes)
    return TableListing(
        paths.folder,
        classes,
        scan.sources,
        paths.stray,
        fields=columns.fields,
        assumed=tuple(assumed),
        kind=paths.kind,
        tables=scan.tables,
        columns=columns,
    )


def _assume_names_beside(
    folder: SourcePath, columns: ColumnChoice, options: SourceOptions
) -> Iterator[Assumption]:
    """Says which file beside the tables has names of numbers, where masks have no names."""
    unnamed = [
        field for field in columns.fields if field.kind == "mask" and not field.names
    ]
    if not unnamed or options.classes is not None or not isinstance(folder, Path):
        return
    file = next(find_json_names(folder), None)
    if file is not None:
        text = (
            f"field {unnamed[0].name}: the numbers in the masks have no names; {readable(file.name)} "
            "has names of numbers"
        )
        yield Assumption(text, f"--classes-from {quote_for_shell(str(file))}")


def _reject_shares(columns: ColumnChoice, table: str) -> None:
    """PackError: boxes are shares, and the sizes of the images are not known where they are read."""
    for source_field in columns.fields:
        if source_field.are_shares:
            column = source_field.column
            raise PackError(
                f"{table}: the boxes in column {column!r} have no number above 1, so they look like "
                "normalised coordinates (0 to 1); expected pixels, for the images lie in the table. Write pixels "
                f"into the column, or store it as it is: --field {source_field.name}={column}:json"
            )


def _assumed_of_fields(
    columns: ColumnChoice, class_columns: Collection[str]
) -> Iterator[Assumption]:
    """Says which pictures may be masks, and which numbers of classes lose their names."""
    for source_field in columns.fields:
        column = source_field.column
        if source_field.kind == "image":
            text = f"column {column!r} is stored as images, not as masks"
            yield Assumption(text, f"--field mask={column}:mask")
        # Without a label, `find_column_assumptions` names a column that is called like one.
        is_named = columns.label is None and is_label_name(column)
        if source_field.kind == "int" and column in class_columns and not is_named:
            text = f"column {column!r} is stored as numbers, without the names of their classes"
            yield Assumption(text, f"--label-column {column}")


def _scan_tables(paths: TablePaths, options: SourceOptions) -> _Scan:
    """Reads the schema, labels and classes of all files; but not the images."""
    scan: _Scan | None = None
    for name in paths.names:
        with open_table(paths.kind, paths.folder / name) as file:
            from fastpipe.sources.tables import arrow_columns  # needs pyarrow

            columns = arrow_columns.choose_table_columns(
                file.schema,
                options,
                name,
                partial(_have_masks, file),
                partial(_name_pictures, file, options.root_of_images() or paths.folder),
            )
            if scan is None:
                known = arrow_columns.known_columns(file.schema)
                for column, texts in _read_first_texts(file, known).items():
                    known[column] = Known(first=texts)
                class_columns = arrow_columns.class_columns(file.schema)
                classes = TableClasses(arrow_columns.detection_names(file.schema))
                scan = _Scan(
                    columns, Labels(columns.classes), known, class_columns, classes
                )
                scan.mask_columns += _find_masks_as_pictures(file, columns, options)
            elif columns != scan.columns:
                raise _other_columns(name, columns, paths.names[0], scan.columns)

            scan.classes.add(file, columns)
            if not columns.has_paths:
                _scan_rows(file, name, scan)
    assert scan is not None  # a source has a file
    return scan


def _have_masks(file: TableFile, column: str) -> bool:
    """Whether the first pictures of a column are PNGs with one number a pixel."""
    try:
        values = _read_first_values(file, [column], _FIRST_PICTURES)
    except PackError:
        return False  # the file is damaged, and packing says where
    pictures = []
    for value in values.get(column, ()):
        picture = value.get("bytes") if isinstance(value, dict) else value
        if isinstance(picture, bytes):
            pictures.append(picture)
    return bool(pictures) and all(map(is_png_of_numbers, pictures))


def _name_pictures(
    file: TableFile, root: SourcePath, columns: Sequence[str]
) -> list[str]:
    """The columns whose first texts name pictures below a folder, as key of img2dataset does."""
    try:
        values = _read_first_values(file, list(columns), _FIRST_NAMES)
    except PackError:
        return []  # the file is damaged, and packing says where
    texts = {}
    for column, values_of_column in values.items():
        texts[column] = [text for text in values_of_column if text]
    return find_columns_of_pictures(root, texts)


def _find_masks_as_pictures(
    file: TableFile, columns: ColumnChoice, options: SourceOptions
) -> list[SourceField]:
    """The fields of masks that become pictures, as the user names them without a kind."""
    without_kind = {wish.name for wish in options.fields or () if wish.kind is None}
    fields = []
    for source_field in columns.fields:
        is_picture = source_field.kind == "image" and not columns.has_paths
        is_asked = source_field.name in without_kind
        if is_picture and is_asked and _have_masks(file, source_field.column):
            fields.append(source_field)
    return fields


def _read_first_texts(
    file: TableFile, known: Mapping[str, Known]
) -> dict[str, set[str]]:
    """The first texts of the columns that are named as if they held classes."""
    likely = []
    for name in known:
        if is_label_name(name) and file.holds_texts(name):
            likely.append(name)
    if not likely:
        return {}
    texts = {}
    for name, values in _read_first_values(file, likely, _FIRST_TEXTS).items():
        texts[name] = set(values) - {None}
    return texts


def _read_first_values(
    file: TableFile, columns: list[str], rows: int
) -> dict[str, list[Any]]:
    """Column -> its values in the first rows of a file; {} if there are no rows.

    PackError: the file is damaged.
    """
    first_group = next(file.groups(), None)
    if first_group is None:
        return {}
    values = next(file.values(first_group, columns, rows), None)
    if values is None:
        return {}
    return dict(zip(columns, values, strict=True))


def _other_columns(
    name: str, columns: ColumnChoice, first_name: str, first: ColumnChoice
) -> PackError:
    """The error for two files of which other columns would be packed; names the first part."""
    part_index = 0
    while columns[part_index] == first[part_index]:
        part_index += 1
    return PackError(
        f"{name} has other columns than {first_name}: {columns._fields[part_index]} is "
        f"{columns[part_index]!r} in the former, {first[part_index]!r} in the latter. Pack them "
        "one by one, or choose columns that all have (--image-column, --label-column, --field)"
    )


def _scan_rows(file: TableFile, name: str, scan: _Scan) -> None:
    """Reads the labels of a file, and adds its rows to the sources."""
    label_column = scan.columns.label
    groups: list[Group] = []
    labels: list[Any] = []
    for group in file.groups():
        groups.append(group)
        if label_column is None:
            labels.extend(repeat(None, group.rows))
            continue
        for (values,) in file.values(group, [label_column], SCAN_ROWS):
            labels.extend(values)

    state = file.opened.state
    scan.tables[name] = Table(state, tuple(groups))
    digits = max(_MIN_DIGITS, len(str(len(labels) - 1)))
    # A file may have millions of rows, so this loop looks nothing up twice.
    take_label = scan.labels.take
    add_source = scan.sources.append
    size_bytes = state.size_bytes
    mtime_ns = state.mtime_ns
    ctime_ns = state.ctime_ns
    for row_index, label in enumerate(labels):
        path = f"{name}/{row_index:0{digits}d}"
        problem = None
        try:
            label_number = take_label(label, path)
        except ValueError as wrong:
            label_number = NO_LABEL
            problem = str(wrong)
        # By position, which takes half the time. The arguments after the label are the size, which
        # is not known, the times, the problem, the file, the offset and the size of the file.
        add_source(
            Source(
                path,
                label_number,
                0,
                mtime_ns,
                ctime_ns,
                problem,
                name,
                row_index,
                size_bytes,
            )
        )


def _list_image_files(
    root: SourcePath,
    paths: TablePaths,
    columns: ColumnChoice,
    assumed: Sequence[Assumption],
    options: SourceOptions,
) -> Listing:
    """Lists the files that the rows of tables name."""
    read_columns = columns.columns_to_read()
    if columns.label is not None:
        read_columns.append(columns.label)
    listing = list_rows(
        options.root_of_images() or paths.folder,
        Rows(lambda: rows_of(_read_rows(paths, read_columns), columns)),
        columns.fields,
        classes=columns.classes,
        assumed=assumed,
        unlisted=Unlisted(
            options.unlisted,
            rows_of_other_files=lambda: _rows_of_other_splits(
                root, columns.image, options
            ),
        ),
        table=root.name,
    )
    return settle_colours(listing, paths.folder)


def _rows_of_other_splits(
    root: SourcePath, image_column: str, options: SourceOptions
) -> Iterator[Row]:
    """The rows of the other splits beside the one that is packed, with nothing but their images."""
    packed = options.split
    if not packed and not root.is_dir():
        packed = split_of(root.name)
    if not packed:
        return
    for paths in find_other_splits(root, packed).values():
        with open_table(paths.kind, paths.folder / paths.names[0]) as file:
            has_column = image_column in file.schema.names
        if not has_column:
            continue
        for row in _read_rows(paths, [image_column]):
            path = row.values[image_column]
            if isinstance(path, str):
                yield Row(row.where, path=path, is_of_another=True)


def read_metadata_rows(path: SourcePath, options: SourceOptions) -> Iterator[Row]:
    """Reads the rows of a Parquet file of metadata. Its values can stand in JSON."""
    with open_table("parquet", path) as file:
        from fastpipe.sources.tables import arrow_columns  # needs pyarrow

        columns = arrow_columns.choose_json_columns(
            file.schema, options, readable(str(path))
        )
    return _read_rows(TablePaths("parquet", path.parent, [path.name], []), columns)


def _read_rows(paths: TablePaths, columns: list[str]) -> Iterator[Row]:
    """Reads these columns of all rows. Times and decimals are texts; NaN is a missing value."""
    for name in paths.names:
        with open_table(paths.kind, paths.folder / name) as file:
            for row_index, cells in enumerate(file.rows(columns)):
                values = {}
                for column, cell in zip(columns, cells, strict=True):
                    # Only NaN differs from itself. pandas writes it for a missing value.
                    values[column] = None if cell != cell else cell
                yield Row(row_name(name, row_index), values)


def needed_groups(table: Table, rows: Container[int]) -> Iterator[Group]:
    """The groups of a file that hold any of these rows."""
    for group in table.groups:
        rows_of_group = range(group.first_row, group.first_row + group.rows)
        if any(row in rows for row in rows_of_group):
            yield group


def open_table(kind: str, path: SourcePath) -> TableFile:
    """Opens a file of kind "parquet" or "arrow"."""
    try:
        from fastpipe.sources.tables.parquet_arrow import ArrowTable, ParquetTable
    except ImportError as problem:
        raise PackError(
            f"reading Parquet and Arrow files needs pyarrow ({problem}); install it: "
            f"{install_extra('parquet')}"
        ) from problem
    if kind == "arrow":
        return ArrowTable(path)
    return ParquetTable(path)
