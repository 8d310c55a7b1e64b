"""The rows of a manifest -> a row for each image, with its fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fastpipe.errors import PackError
from fastpipe.sources.annotations.detections import BoxObjects
from fastpipe.sources.column_choice import ColumnChoice
from fastpipe.sources.listing import Assumption, SourceField
from fastpipe.sources.member_fields import MOST_FIELDS
from fastpipe.sources.options import quote_for_shell
from fastpipe.sources.settled_fields import settle_fields
from fastpipe.sources.tables.box_rows import BoxColumns, as_lists, table_without_boxes
from fastpipe.sources.tables.class_columns import ClassTexts
from fastpipe.sources.tables.column_kinds import FLAGS, ColumnSummary
from fastpipe.sources.tables.likely import (
    are_captions,
    find_column_assumptions,
    find_columns_of_box_classes,
)
from fastpipe.sources.tables.manifest_columns import Manifest
from fastpipe.sources.tables.rows import Row, Rows, rows_of
from fastpipe.sources.tables.split_column import SplitColumn
from fastpipe.sources.tables.table_boxes import describe_box_table, find_number_columns
from fastpipe.sources.tables.table_masks import MaskTable

_CONFIDENCE = "confidence"


class ImageRows(NamedTuple):
    """A row for each image, with its fields."""

    rows: Rows
    fields: Sequence[SourceField]
    # The values of the fields of an image that has no row.
    values_without_row: Mapping[str, Any]
    # The column with the classes of images or of boxes.
    class_column: str | None
    assumed: Sequence[Assumption]


def gather_boxes(
    manifest: Manifest,
    columns: ColumnChoice,
    boxes: BoxColumns,
    split: SplitColumn | None,
) -> ImageRows:
    """Reads the rows of a table with a row for each box, and makes one of each image."""
    gathered = describe_box_table(
        manifest.summaries,
        columns,
        boxes,
        manifest.options,
        typed=manifest.is_typed,
        table=manifest.table,
    )
    _check_field_count(manifest, gathered.others)
    gathered.use_class_list(manifest.path.parent)
    gathered.gather(manifest.read_rows(), split)
    assumed = list(boxes.assumed)
    if gathered.class_column is None and manifest.options.fields is None:
        likely = find_columns_of_box_classes(manifest.summaries, (columns.image,))
        if likely:
            text = (
                f"boxes: without classes, though column {likely[0]!r} looks like them"
            )
            option = f"--label-column {quote_for_shell(likely[0])}"
            assumed.append(Assumption(text, option))
    return ImageRows(
        Rows(gathered.rows),
        gathered.fields(),
        gathered.empty,
        gathered.class_column,
        assumed,
    )


def gather_masks(
    manifest: Manifest,
    field_values: Mapping[str, ColumnSummary],
    columns: ColumnChoice,
    run_field: SourceField,
    split: SplitColumn | None,
) -> ImageRows:
    """Reads the rows of a table with run lengths of masks, and makes one of each image."""
    gathered = MaskTable(
        manifest.summaries,
        columns,
        run_field,
        manifest.options,
        typed=manifest.is_typed,
        table=manifest.table,
    )
    _check_field_count(manifest, gathered.fields)
    gathered.gather(manifest.read_rows(), split)
    assumed = gathered.find_assumptions()
    if gathered.class_column is None:
        # A column that may have the classes becomes them with --label-column.
        others = dict(field_values)
        others.pop(run_field.column, None)
        assumed += find_column_assumptions(others, columns, manifest.options)
    return ImageRows(
        Rows(gathered.rows),
        gathered.fields,
        gathered.empty,
        gathered.class_column,
        assumed,
    )


def caption_fields(manifest: Manifest, columns: ColumnChoice) -> list[SourceField]:
    """The fields of captions if the rows of an image make one sample; else none.

    A label is of a sample, so rows with a label stay samples of their own. So do those whose
    captions the user wants as texts.
    """
    summaries = manifest.summaries
    options = manifest.options
    if columns.label is not None or None not in (options.box_format, options.separator):
        return []
    are_lists_wanted = False
    for wish in options.fields or ():
        if wish.kind not in (None, "json"):
            return []
        are_lists_wanted = are_lists_wanted or wish.kind == "json"
    # Where each image has one row, its caption is a text, and no list of one text.
    if not are_lists_wanted and not summaries[columns.image].names_come_again:
        return []
    captions = []
    for source_field in columns.fields:
        column = source_field.column
        is_text = column in summaries and summaries[column].kind == "text"
        if is_text and are_captions(column, summaries[column]):
            captions.append(source_field)
    return captions


def gather_captions(
    manifest: Manifest,
    field_values: Mapping[str, ColumnSummary],
    columns: ColumnChoice,
    captions: Sequence[SourceField],
    split: SplitColumn | None,
) -> ImageRows:
    """Reads the rows of a table with a row for each caption, and makes one of each image."""
    number_columns = find_number_columns(
        manifest.summaries, columns.fields, typed=manifest.is_typed
    )
    gathered = table_without_boxes(
        columns.image, as_lists(columns.fields), number_columns=number_columns
    )
    _check_field_count(manifest, gathered.others)
    gathered.gather(manifest.read_rows(), split)
    assumed = list(find_column_assumptions(field_values, columns, manifest.options))
    if manifest.options.fields is None:
        column = captions[0].column
        text = (
            f"rows: the rows of an image are one sample, with the list of its texts in {column!r}; "
            "as text, each row is a sample of its own"
        )
        option = f"--field {quote_for_shell(f'{captions[0].name}={column}:text')}"
        assumed.append(Assumption(text, option))
    return ImageRows(
        Rows(gathered.rows), gathered.fields(), gathered.empty, None, assumed
    )


def settle_rows(
    manifest: Manifest,
    field_values: Mapping[str, ColumnSummary],
    columns: ColumnChoice,
    split: SplitColumn | None,
) -> ImageRows:
    """Reads the rows of a table with a row for each image.

    `field_values` has the values of all columns but that of splits.
    """
    options = manifest.options
    summaries = manifest.summaries
    texts = {}  # a column -> the texts in it
    # Columns whose values are objects with boxes -> what these are.
    detections = {}
    for column, values in summaries.items():
        texts[column] = ClassTexts(values.texts, values.items)
        if values.detections.is_certain and values.detections.count:
            names = sorted(values.detections.names)
            detections[column] = BoxObjects(names, values.detections.shares)
    assumed = list(find_column_assumptions(field_values, columns, options))
    settled, assumed_of_fields = settle_fields(
        columns, texts, detections, options, manifest.table
    )
    assumed += assumed_of_fields
    assumed += _assume_confidence(manifest, columns, split)
    _check_field_count(manifest, settled.fields)

    label = columns.label
    is_numbered = False
    if label is not None:
        is_numbered = summaries[label].are_numbers(
            f"{manifest.table}, column {label}",
            is_chosen=options.label_column is not None,
        )

    def begin() -> Iterator[Row]:
        rows = manifest.read_rows()
        return rows_of(
            rows, settled, typed=manifest.is_typed, numbered=is_numbered, split=split
        )

    no_boxes: dict[str, Any] = {}
    for source_field in settled.fields:
        if source_field.kind == "boxes":
            no_boxes[source_field.name] = {"boxes": []}
    return ImageRows(Rows(begin), settled.fields, no_boxes, label, assumed)


def _assume_confidence(
    manifest: Manifest, columns: ColumnChoice, split: SplitColumn | None
) -> list[Assumption]:
    """Says that rows of an image with several may name classes that it does not show.

    Open Images' labels of images have a confidence of 0 where a person has said so.
    """
    summaries = manifest.summaries
    if not columns.image or summaries[columns.image].are_all_different:
        return []
    for column, values in summaries.items():
        is_confidence = column.strip().lower() == _CONFIDENCE
        if not is_confidence or values.flags not in ({0}, {0, 1}):
            continue
        count = 0
        for row in manifest.read_rows():
            text = str(row.values.get(column)).strip().lower()
            if FLAGS.get(text) == 0 and (split is None or split.has(row.values)):
                count += 1
        text = (
            f"rows: {count:,} have 0 in column {column!r}; in Open Images this means that the class is "
            "not in the image. To leave them out, remove these rows from the table"
        )
        return [Assumption(text)] if count else []
    return []


def _check_field_count(manifest: Manifest, fields: Sequence[SourceField]) -> None:
    if manifest.options.fields is None and len(fields) > MOST_FIELDS:
        raise PackError(
            f"{manifest.table} has {len(fields)} columns besides image and label; expected at most "
            f"{MOST_FIELDS}. --field NAME=COLUMN picks those to store; --field 'tags=*:classes' "
            "makes one field of columns of 0 and 1, a class each"
        )
