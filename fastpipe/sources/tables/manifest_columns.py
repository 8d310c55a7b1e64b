"""The columns of a manifest -> what their values are, and which have image, label and fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fastpipe.errors import PackError
from fastpipe.sources.column_choice import (
    FILE_NAME,
    ColumnChoice,
    choose_columns,
    find_image_like_columns,
)
from fastpipe.sources.files import SourcePath
from fastpipe.sources.folders.folder_roles import is_called_target
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.tables.column_kinds import ColumnSummary
from fastpipe.sources.tables.likely import columns_of_ids, holds_runs
from fastpipe.sources.tables.listed_images import find_columns_of_pictures
from fastpipe.sources.tables.rows import Row
from fastpipe.sources.tables.split_column import assume_all_splits_packed, folder_of
from fastpipe.sources.tables.table_remedies import (
    describe_options_of_columns,
    describe_options_of_labels,
    option_of_encoding,
)
from fastpipe.sources.tables.text_rows import MOST_COLUMNS

# In metadata, columns whose names end so have paths of further images.
_FURTHER_IMAGES = f"_{FILE_NAME}"


@dataclass(frozen=True)
class Manifest:
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
    # Column -> the kind of its field, where the format says it.
    kinds: Mapping[str, str] = field(default_factory=dict)
    # A column -> what its values are, in the order of the columns.
    summaries: dict[str, ColumnSummary] = field(default_factory=dict)
    # A column that may have the paths of images -> the folders in these paths.
    folders: dict[str, set[str]] = field(default_factory=dict)


def scan_columns(manifest: Manifest) -> None:
    """Reads all rows once, and fills the `summaries` and `folders` of the manifest."""
    table = manifest.table
    options = manifest.options
    summaries = manifest.summaries
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
            if column not in summaries:
                # In JSONL a row may have columns that no row before it has.
                if len(summaries) == MOST_COLUMNS:
                    raise PackError(
                        f"{table}: expected at most {MOST_COLUMNS} columns, got more"
                    )
                summaries[column] = ColumnSummary(
                    typed=manifest.is_typed, keeps_all=column in class_columns
                )
                is_named = column == options.image_column
                if is_named or find_image_like_columns([column], options):
                    folders[column] = set()
            summaries[column].add(value, row.where)
        for column, folders_of_column in folders.items():
            folders_of_column.add(folder_of(row.values.get(column)))

    if not summaries:
        why = "; expected a row for each image"
        if first_problem is not None:
            why = f" that can be read; the first: {first_problem}"
            if options.encoding is None:
                why += _remedy_of_encoding(manifest.path)
        raise PackError(f"{table} holds no rows{why}")
    for values in summaries.values():
        if values.count < row_count:
            # In JSON, a record without a key says the same as one with null.
            values.add(None, "")


def _remedy_of_encoding(table: SourcePath) -> str:
    """The options for a table whose text is not UTF-8; "" if it is."""
    if option_of_encoding(table) == "":
        return ""
    return f". Pass{describe_options_of_labels(table, None)}"


def name_image_columns(manifest: Manifest) -> list[str]:
    """The columns whose names say that they have the paths of the images."""
    if not manifest.is_metadata:
        return find_image_like_columns(manifest.summaries, manifest.options)
    if FILE_NAME in manifest.summaries:
        return [FILE_NAME]
    columns = [
        column for column in manifest.summaries if column.endswith(_FURTHER_IMAGES)
    ]
    return _without_fields(columns, manifest.options)


def columns_of_pictures(manifest: Manifest) -> list[str]:
    """The column whose values all look like names of pictures; empty if not exactly one does."""
    columns = _without_fields(_columns_with_endings(manifest), manifest.options)
    if len(columns) != 1:
        return []
    return columns


def _columns_with_endings(manifest: Manifest) -> list[str]:
    """The columns whose values all end as the names of pictures do."""
    return [
        column for column, values in manifest.summaries.items() if values.are_pictures
    ]


def _without_fields(columns: Iterable[str], options: SourceOptions) -> list[str]:
    """The columns that the user does not want as fields."""
    field_columns = options.field_columns
    return [column for column in columns if column not in field_columns]


def choose_manifest_columns(
    manifest: Manifest,
    column_names: Collection[str],
    images: Sequence[str],
    *,
    has_picture_lists: bool = False,
) -> ColumnChoice:
    """Chooses the columns of image, label and fields.

    With `has_picture_lists`, and if the user wants a column as a field of lists of pictures,
    samples need no image.
    """
    summaries = manifest.summaries

    def kind_of(column: str) -> str:
        if manifest.is_metadata and column.endswith(_FURTHER_IMAGES):
            return "image"
        if column in manifest.kinds:
            return manifest.kinds[column]
        if column not in summaries:
            return "boxes"  # BOXES stands for several columns
        if holds_runs(column, summaries[column]):
            return "mask"
        return summaries[column].kind

    def has_flags(column: str) -> bool:
        return bool(summaries[column].flags)

    hint = ""
    if not images and manifest.options.image_column is None:
        hint = describe_image_column(manifest)
    only_column = next(iter(summaries), "") if len(summaries) == 1 else ""
    if not manifest.is_typed and " " in only_column:
        hint += (
            ". Its columns are separated by spaces: rename it to .txt, which is read so"
        )
    if not manifest.is_typed:
        hint += ". If the file has no header row, write one, such as path,label"
    ending = ""
    if manifest.is_metadata:
        ending = _FURTHER_IMAGES
    wishes = manifest.options.fields or ()
    has_lists = has_picture_lists or any(wish.kind == "images" for wish in wishes)
    chosen = choose_columns(
        manifest.table,
        column_names,
        manifest.options,
        images,
        kind_of,
        ending,
        has_flags,
        hint,
        needs_image=not has_lists,
    )
    if "boxes" not in summaries or not manifest.kinds:
        return chosen
    # The other values of WFLW are of a face each, and go with its box.
    fields = []
    for source_field in chosen.fields:
        is_per_box = source_field.kind in ("keypoints", "json")
        fields.append(source_field._replace(is_per_box=is_per_box))
    return chosen._replace(fields=tuple(fields))


def describe_image_column(manifest: Manifest) -> str:
    """Names the columns that may have the images, where no name of a column says it.

    Of the only one also the options for labels or masks, so that one more try is enough.
    """
    root = manifest.options.root_of_images() or manifest.path.parent
    first_values = {}
    # Values with the ending of a picture tell more than the names of columns.
    for column in _columns_with_endings(manifest) or manifest.summaries:
        first_values[column] = manifest.summaries[column].first
    columns = find_columns_of_pictures(root, first_values)
    if not columns:
        columns = columns_of_ids(manifest.summaries)
    # tif_label_path has the masks of the images in tiff_image_path.
    columns = [column for column in columns if not is_called_target(column)] or columns
    if not columns:
        return ""
    if len(columns) > 1:
        return f" (--image-column {' or '.join(map(quote_for_shell, columns))})"
    options = f"--image-column {quote_for_shell(columns[0])}"
    options += describe_options_of_columns(
        manifest.summaries, columns[0], manifest.options
    )
    numbers = ""
    for assumption in assume_all_splits_packed(manifest.summaries, manifest.options):
        numbers += f"; {assumption.text} without {assumption.option}"
    return f" ({options}{numbers})"
