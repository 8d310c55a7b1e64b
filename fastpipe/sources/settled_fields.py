"""Columns of a table -> its fields of classes and boxes, with the names of their classes."""

from __future__ import annotations

from collections.abc import Mapping

from fastpipe.sources.annotations.detections import (
    BoxObjects,
    find_detection_assumptions,
    settle_box_fields,
)
from fastpipe.sources.column_choice import ColumnChoice
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.class_columns import ClassTexts, settle_classes
from fastpipe.sources.tables.table_boxes import no_boxes


def settle_fields(
    columns: ColumnChoice,
    texts: Mapping[str, ClassTexts],
    detections: Mapping[str, BoxObjects],
    options: SourceOptions,
    table: str,
) -> tuple[ColumnChoice, list[Assumption]]:
    """Adds the names of their classes to the fields of classes and of boxes.

    Args:
        texts: a column -> the texts in it.
        detections: a column whose values are objects with boxes -> what these are.
        table: the name of the table, for errors.

    Raises:
        PackError: the user describes boxes (--box-format) or texts of several classes
            (--separator), and the table has none.
    """
    fields, assumed = settle_classes(columns.fields, texts, options)
    if options.box_format is not None and not detections:
        raise no_boxes(table)
    fields = settle_box_fields(fields, detections, options.box_format)
    assumed += find_detection_assumptions(detections, fields, options.box_format)
    return columns._replace(fields=fields), assumed
