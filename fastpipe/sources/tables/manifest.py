"""A file with a row for each image (CSV, TSV, JSON, JSONL, or metadata) -> the listing of these
images.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fastpipe.dataset.format.folder import scheme_of
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_folders import is_called_images
from fastpipe.sources.column_choice import (
    FILE_NAME,
    ColumnChoice,
    choose_columns,
    find_image_like_columns,
)
from fastpipe.sources.encodings import open_as_utf8
from fastpipe.sources.files import SourcePath, files_below, open_unchanged
from fastpipe.sources.folders.class_lists import read_descriptions
from fastpipe.sources.folders.split_classes import are_own_numbers
from fastpipe.sources.listing import Assumption, Listing, SourceField
from fastpipe.sources.member_fields import MOST_FIELDS
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.settled_fields import settle_fields
from fastpipe.sources.tables.box_rows import BoxColumns, BoxTable, as_lists
from fastpipe.sources.tables.column_kinds import ColumnSummary
from fastpipe.sources.tables.likely import (
    are_captions,
    columns_of_ids,
    find_column_assumptions,
)
from fastpipe.sources.tables.listed_images import (
    find_columns_of_pictures,
    find_listing_tables,
)
from fastpipe.sources.tables.rows import Row, Rows, list_rows, rows_of
from fastpipe.sources.tables.split_column import (
    ALL,
    SplitColumn,
    find_split_column,
    find_split_folders,
    folder_of,
)
from fastpipe.sources.tables.table_boxes import (
    BOXES,
    describe_box_table,
    find_box_columns,
)
from fastpipe.sources.tables.table_files import training_tables
from fastpipe.sources.tables.table_text import detect_text_form
from fastpipe.sources.tables.tables import read_metadata_rows
from fastpipe.sources.tables.text_rows import (
    MOST_COLUMNS,
    csv_rows,
    json_array_rows,
    json_rows,
)
from fastpipe.sources.tables.unlisted import Unlisted

# Files of metadata, as Hugging Face's ImageFolder names them.
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
# In metadata, columns whose names end so have paths of further images.
_FURTHER_IMAGES = f"_{FILE_NAME}"
_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class _Manifest:
    """A manifest and the values of its columns."""

    path: SourcePath
    # The name of the file, for errors.
    table: str
    options: SourceOptions
    # Whether values have types, as in JSON. In CSV they are texts.
    is_typed: bool
    # Whether the file is metadata of Hugging Face's ImageFolder.
    is_metadata: bool
    # Begins to read the rows. It is called once for the columns, and then for the images.
    read_rows: Callable[[], Iterator[Row]]
    # The values of each column, in the order of the columns.
    seen: dict[str, ColumnSummary] = field(default_factory=dict)
    # A column that may have the paths of images -> the folders in these paths.
    folders: dict[str, set[str]] = field(default_factory=dict)


class _ImageRows(NamedTuple):
    """A row for each image, with its fields."""

    rows: Rows
    fields: Sequence[SourceField]
    # The values of the fields of an image that has no row.
    values_without_row: Mapping[str, Any]
    # The column with the classes of images or of boxes.
    class_column: str | None
    assumed: Sequence[Assumption]


def list_manifest(
    path: SourcePath,
    kind: str,
    options: SourceOptions,
    *,
    metadata: bool = False,
    alone: bool = True,
) -> Listing:
    """Lists the images that a file names, in no order. Reads the file twice.

    Args:
        kind: "csv", "jsonl" (also for .json files), or "parquet" for metadata.
        metadata: the file is metadata of Hugging Face's ImageFolder.
        alone: the file is the source by itself, and not one of the files of a folder.

    Raises:
        PackError: the file cannot be read, or an option has to say what its columns hold.
    """
    table = readable(str(path))
    read_rows, assumed = _choose_reader(path, kind, options)
    manifest = _Manifest(path, table, options, kind != "csv", metadata, read_rows)
    _scan_columns(manifest)

    seen = manifest.seen
    split = find_split_column(seen, options, table)
    has_splits = split is not None or options.split == ALL
    if split is not None and len(set(split.names.values())) == 1:
        split = None  # all rows are of this split, so the column may become a field
    field_values = dict(seen)
    if split is not None:
        del field_values[split.column]
    boxes = find_box_columns(seen, options, table)
    column_names = list(field_values)
    if boxes is not None and BOXES not in seen:
        # --field can name the boxes as if they were a column.
        column_names.append(BOXES)

    images = _image_columns(manifest)
    if not images and not metadata and options.image_column is None:
        images = _columns_of_pictures(manifest)
        for column in images:
            text = f"images: column {column!r} has names of pictures"
            assumed.append(Assumption(text, f"--image-column {column}"))
    columns = _choose_columns(manifest, column_names, images)
    if not has_splits:
        # Where no column has the splits, the folders in the paths of images may be called so.
        folders = manifest.folders.get(columns.image, ())
        split = find_split_folders(columns.image, folders, options, table)
        if split is None and alone and options.split is not None:
            raise PackError(
                f"--split has no meaning for a single file, and {table} is one without a column "
                "of splits; leave it out"
            )

    if boxes is not None:
        images_of_rows = _gather_boxes(manifest, columns, boxes, split)
    elif captions := _caption_fields(manifest, columns):
        images_of_rows = _gather_captions(
            manifest, field_values, columns, captions, split
        )
    else:
        images_of_rows = _settle_rows(manifest, field_values, columns, split)
    root = options.root_of_images() or path.parent
    listing = list_rows(
        root,
        images_of_rows.rows,
        images_of_rows.fields,
        beside=_files_beside_metadata(root) if metadata else (),
        assumed=[*assumed, *images_of_rows.assumed],
        unlisted=Unlisted(options.unlisted, images_of_rows.values_without_row),
        table=path.name,
    )
    if alone and options.image_root is None:
        _refuse_images_elsewhere(path, listing, options)
    class_column = images_of_rows.class_column
    if alone and split is None and class_column is not None and options.classes is None:
        class_columns = ColumnChoice(columns.image, class_column, ())
        more = _compare_with_training(path, kind, class_columns, listing, options)
        listing = replace(listing, assumed=(*listing.assumed, *more))
    return listing


def _files_beside_metadata(root: SourcePath) -> Iterator[str]:
    """The files below an image root but metadata itself; none where a server lists no files."""
    if not isinstance(root, Path) and not root.objects.has_lists:
        return
    for path in files_below(root):
        if path.rpartition("/")[2] not in METADATA:
            yield path


def _refuse_images_elsewhere(
    path: SourcePath, listing: Listing, options: SourceOptions
) -> None:
    """Raises PackError if no image of a table is beside it, with the place where they may be."""
    if any(source.problem is None for source in listing.sources):
        return
    first_path = ""
    if listing.sources:
        first_path = listing.sources[0].path
    if scheme_of(first_path):
        raise PackError(
            f"{readable(str(path))} lists URLs, such as {readable(first_path)}, and its images are "
            "not downloaded. Download them, and write their paths into the table; or name the URL "
            "that all of them begin with: --image-root URL"
        )
    folder = path.parent
    if not isinstance(folder, Path):
        return
    parent = folder.parent
    if not folder.name:
        parent = folder / ".."  # "." has no parent for pathlib
    tables = find_listing_tables(folder, [path.name], options.encoding, parent)
    if not tables:
        return
    image_root = tables[0].image_root
    # Other datasets may lie beside the folder, with files of the same names.
    if image_root is not None and is_called_images(image_root.name):
        raise PackError(
            f"{readable(str(path))} lists images that are not in {readable(str(folder))}. Files of "
            f"these names are elsewhere in {readable(str(parent))}: if they are the images, pass "
            f"--image-root {readable(str(image_root))}"
        )


def _compare_with_training(
    path: SourcePath,
    kind: str,
    columns: ColumnChoice,
    listing: Listing,
    options: SourceOptions,
) -> list[Assumption]:
    """Says that the table of the training beside val.csv, say, numbers the classes otherwise.

    Reads only the labels of that table. Classes that are numbers keep them in any table.
    """
    classes = list(listing.classes)
    for source_field in listing.fields:
        if source_field.kind == "boxes" and not classes:
            classes = list(source_field.names)
    if not classes or are_own_numbers(classes):
        return []
    for table in training_tables(path):
        labels = _labels_in_table(table, kind, columns, options)
        if not labels:
            continue
        # The table of the training may have more classes, if they come behind these.
        if sorted(labels)[: len(classes)] == classes:
            return []
        text = (
            f"classes: those of {readable(path.name)} alone, with other numbers than those of "
            f"{readable(table.name)} beside it"
        )
        return [Assumption(text, f"--classes-from {readable(str(table))}")]
    return []


def _labels_in_table(
    table: SourcePath, kind: str, columns: ColumnChoice, options: SourceOptions
) -> set[str]:
    """The names of the classes in another table; none if it has no such columns."""
    names: Mapping[str, str] = {}
    descriptions = read_descriptions(table.parent)
    if descriptions is not None:
        names = descriptions.names
    labels = set()
    try:
        read_rows, _ = _choose_reader(table, kind, options)
        for row in rows_of(read_rows(), columns, typed=kind != "csv"):
            if isinstance(row.label, str):
                labels.add(names.get(row.label, row.label))
    except PackError:
        return set()  # it is another kind of table
    return labels


def _choose_reader(
    path: SourcePath, kind: str, options: SourceOptions
) -> tuple[Callable[[], Iterator[Row]], list[Assumption]]:
    """Chooses the function that reads the rows, by the kind of the file and its first lines."""
    if kind == "csv":
        try:
            form = detect_text_form(path, options.encoding)
        except OSError as problem:
            raise PackError(
                f"cannot read {readable(str(path))}: {problem.strerror}"
            ) from problem
        return partial(csv_rows, path, form, options.encoding), [*form.assumed]
    if kind == "parquet":
        return partial(read_metadata_rows, path, options), []
    if detect_json_layout(path, options.encoding) == "array":
        return partial(json_array_rows, path, options.encoding), []
    return partial(json_rows, path, options.encoding), []


def _scan_columns(manifest: _Manifest) -> None:
    """Reads all rows once, and fills `seen` and `folders`."""
    table = manifest.table
    options = manifest.options
    seen = manifest.seen
    folders = manifest.folders
    # All values of these count, for they are the names of classes.
    class_columns = set()
    for wish in options.fields or ():
        if wish.kind == "classes":
            class_columns.add(wish.column)
    row_count = 0
    first_problem = None
    for row in manifest.read_rows():
        if row.problem is not None:
            first_problem = first_problem or f"{row.where}: {row.problem}"
            continue
        row_count += 1
        for column, value in row.values.items():
            if column not in seen:
                # In JSONL a row may have columns that no row before it has.
                if len(seen) == MOST_COLUMNS:
                    raise PackError(
                        f"{table}: expected at most {MOST_COLUMNS} columns, got more"
                    )
                seen[column] = ColumnSummary(
                    typed=manifest.is_typed, keeps_all=column in class_columns
                )
                is_named = column == options.image_column
                if is_named or find_image_like_columns([column], options):
                    folders[column] = set()
            seen[column].add(value, row.where)
        for column, folders_of_column in folders.items():
            folders_of_column.add(folder_of(row.values.get(column)))

    if not seen:
        why = "; expected a row for each image"
        if first_problem is not None:
            why = f" that can be read; the first: {first_problem}"
        raise PackError(f"{table} holds no rows{why}")
    for values in seen.values():
        if values.count < row_count:
            # In JSON, a record without a key says the same as one with null.
            values.add(None, "")


def _image_columns(manifest: _Manifest) -> list[str]:
    """The columns whose names say that they have the paths of the images."""
    if not manifest.is_metadata:
        return find_image_like_columns(manifest.seen, manifest.options)
    if FILE_NAME in manifest.seen:
        return [FILE_NAME]
    columns = [column for column in manifest.seen if column.endswith(_FURTHER_IMAGES)]
    return _without_fields(columns, manifest.options)


def _columns_of_pictures(manifest: _Manifest) -> list[str]:
    """The column whose values all look like names of pictures; empty if not exactly one does."""
    columns = _without_fields(_columns_with_endings(manifest), manifest.options)
    if len(columns) != 1:
        return []
    return columns


def _columns_with_endings(manifest: _Manifest) -> list[str]:
    """The columns whose values all end as the names of pictures do."""
    return [column for column, values in manifest.seen.items() if values.are_pictures]


def _without_fields(columns: Iterable[str], options: SourceOptions) -> list[str]:
    """The columns that the user does not want as fields."""
    field_columns = options.field_columns
    return [column for column in columns if column not in field_columns]


def _choose_columns(
    manifest: _Manifest, column_names: Collection[str], images: Sequence[str]
) -> ColumnChoice:
    """Chooses the columns of image, label and fields."""
    seen = manifest.seen

    def kind_of(column: str) -> str:
        if manifest.is_metadata and column.endswith(_FURTHER_IMAGES):
            return "image"
        if column not in seen:
            return "boxes"  # BOXES stands for several columns
        return seen[column].kind

    def has_flags(column: str) -> bool:
        return bool(seen[column].flags)

    hint = ""
    if not images and manifest.options.image_column is None:
        hint = _hint_for_image_column(manifest)
    if not manifest.is_typed:
        hint += ". If the file has no header row, write one, such as path,label"
    ending = ""
    if manifest.is_metadata:
        ending = _FURTHER_IMAGES
    return choose_columns(
        manifest.table,
        column_names,
        manifest.options,
        images,
        kind_of,
        ending,
        has_flags,
        hint,
    )


def _hint_for_image_column(manifest: _Manifest) -> str:
    """Names the columns that may have the images, where no name of a column says it."""
    root = manifest.options.root_of_images() or manifest.path.parent
    first_values = {}
    # Values with the ending of a picture tell more than the names of columns.
    for column in _columns_with_endings(manifest) or manifest.seen:
        first_values[column] = manifest.seen[column].first
    columns = find_columns_of_pictures(root, first_values)
    if not columns:
        columns = columns_of_ids(manifest.seen)
    if not columns:
        return ""
    return f" (--image-column {' or '.join(columns)})"


def _gather_boxes(
    manifest: _Manifest,
    columns: ColumnChoice,
    boxes: BoxColumns,
    split: SplitColumn | None,
) -> _ImageRows:
    """Reads the rows of a table with a row for each box, and makes one of each image."""
    gathered = describe_box_table(
        manifest.seen,
        columns,
        boxes,
        manifest.options,
        typed=manifest.is_typed,
        table=manifest.table,
    )
    _check_field_count(manifest, gathered.others)
    gathered.use_class_list(manifest.path.parent)
    gathered.gather(manifest.read_rows(), split)
    return _ImageRows(
        Rows(gathered.rows),
        gathered.fields(),
        gathered.empty,
        gathered.class_column,
        boxes.assumed,
    )


def _caption_fields(manifest: _Manifest, columns: ColumnChoice) -> list[SourceField]:
    """The fields of captions if the rows of an image make one sample; else none.

    A label is of a sample, so rows with a label stay samples of their own. So do those whose
    captions the user wants as texts.
    """
    seen = manifest.seen
    options = manifest.options
    if columns.label is not None or None not in (options.box_format, options.separator):
        return []
    are_lists_wanted = False
    for wish in options.fields or ():
        if wish.kind not in (None, "json"):
            return []
        are_lists_wanted = are_lists_wanted or wish.kind == "json"
    if not are_lists_wanted and not seen[columns.image].names_come_again:
        return []
    captions = []
    for source_field in columns.fields:
        column = source_field.column
        is_text = column in seen and seen[column].kind == "text"
        if is_text and are_captions(column, seen[column]):
            captions.append(source_field)
    return captions


def _gather_captions(
    manifest: _Manifest,
    field_values: Mapping[str, ColumnSummary],
    columns: ColumnChoice,
    captions: Sequence[SourceField],
    split: SplitColumn | None,
) -> _ImageRows:
    """Reads the rows of a table with a row for each caption, and makes one of each image."""
    number_columns = set()
    for source_field in columns.fields:
        if not manifest.is_typed and manifest.seen[source_field.column].is_numeric:
            number_columns.add(source_field.column)
    gathered = BoxTable(
        image_column=columns.image,
        boxes=BoxColumns((), ""),
        class_column=None,
        number_column=None,
        has_number_classes=False,
        labels_images=False,
        box_field=None,
        others=as_lists(columns.fields),
        number_columns=frozenset(number_columns),
        size_columns=(),
    )
    _check_field_count(manifest, gathered.others)
    gathered.gather(manifest.read_rows(), split)
    assumed = [*find_column_assumptions(field_values, columns, manifest.options)]
    if manifest.options.fields is None:
        column = captions[0].column
        text = (
            f"rows: the rows of an image are one sample, with the list of its texts in {column!r}; "
            "as text, each row is a sample of its own"
        )
        option = f"--field {quote_for_shell(f'{captions[0].name}={column}:text')}"
        assumed.append(Assumption(text, option))
    return _ImageRows(
        Rows(gathered.rows), gathered.fields(), gathered.empty, None, assumed
    )


def _settle_rows(
    manifest: _Manifest,
    field_values: Mapping[str, ColumnSummary],
    columns: ColumnChoice,
    split: SplitColumn | None,
) -> _ImageRows:
    """Reads the rows of a table with a row for each image.

    `field_values` has the values of all columns but that of splits.
    """
    options = manifest.options
    seen = manifest.seen
    texts = {}  # column -> all different texts in it
    # Columns whose values are objects with boxes -> the names of their classes.
    detections = {}
    for column, values in seen.items():
        texts[column] = values.texts
        if values.detections.is_certain and values.detections.count:
            detections[column] = sorted(values.detections.names)
    assumed = [*find_column_assumptions(field_values, columns, options)]
    settled, assumed_of_fields = settle_fields(
        columns, texts, detections, options, manifest.table
    )
    assumed += assumed_of_fields
    _check_field_count(manifest, settled.fields)

    label = columns.label
    is_numbered = False
    if label is not None:
        is_numbered = seen[label].are_numbers(f"{manifest.table}, column {label}")

    def begin() -> Iterator[Row]:
        rows = manifest.read_rows()
        return rows_of(
            rows, settled, typed=manifest.is_typed, numbered=is_numbered, split=split
        )

    no_boxes: dict[str, Any] = {}
    for source_field in settled.fields:
        if source_field.kind == "boxes":
            no_boxes[source_field.name] = {"boxes": []}
    return _ImageRows(Rows(begin), settled.fields, no_boxes, label, assumed)


def _check_field_count(manifest: _Manifest, fields: Sequence[SourceField]) -> None:
    if manifest.options.fields is None and len(fields) > MOST_FIELDS:
        raise PackError(
            f"{manifest.table} has {len(fields)} columns besides image and label; expected at most "
            f"{MOST_FIELDS}. --field NAME=COLUMN picks those to store; --field 'tags=*:classes' "
            "makes one field of columns of 0 and 1, a class each"
        )


def detect_json_layout(path: SourcePath, encoding: str | None = None) -> str:
    """Detects what a .json file is: an "array" of objects, "lines" with an object each, or one
    "object". Files with other endings are "lines". Raises OSError or PackError.
    """
    if path.suffix.lower() != ".json":
        return "lines"
    with open_unchanged(path) as file:
        head = open_as_utf8(file, encoding, str(path)).read(_HEAD_BYTES)
    head = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if head.startswith(b"["):
        return "array"
    first_line, _, rest = head.partition(b"\n")
    try:
        first_record: Any = json.loads(first_line)
    except (ValueError, RecursionError):
        return "object"
    # One object in one line, or over several lines, is the file of another format, such as COCO.
    if isinstance(first_record, dict) and rest.lstrip().startswith(b"{"):
        return "lines"
    return "object"
