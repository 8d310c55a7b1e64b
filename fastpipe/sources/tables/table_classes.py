"""The files of a split of Parquet or Arrow tables -> the names of classes in their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastpipe.sources.annotations.box_shares import ShareCheck
from fastpipe.sources.annotations.detections import BoxObjects, Detections
from fastpipe.sources.column_choice import ColumnChoice
from fastpipe.sources.tables.class_columns import ClassTexts

if TYPE_CHECKING:
    from fastpipe.sources.tables.parquet_arrow import TableFile

# Labels and texts are read so many rows at a time: they take less memory than images.
SCAN_ROWS = 1 << 16


@dataclass
class TableClasses:
    """The classes of fields, from one file after the other.

    Attributes:
        schema_names: a column whose values are objects with boxes -> the names of their classes, by
            the schema of the first file; () if it has none.
    """

    schema_names: Mapping[str, Sequence[str]]
    # A column that becomes a field of boxes -> what its values are.
    _detections: dict[str, Detections] = field(default_factory=dict)
    # A column that becomes a field of classes -> all different texts in it.
    _texts: dict[str, set[str]] = field(default_factory=dict)
    # The same for texts in lists.
    _items: dict[str, set[str]] = field(default_factory=dict)

    def add(self, file: TableFile, columns: ColumnChoice) -> None:
        """Reads the columns of a file that become fields of classes or of boxes."""
        for source_field in columns.fields:
            column = source_field.column
            if source_field.kind == "boxes":
                detections = self._detections.setdefault(column, Detections())
                for value in file.column(column, SCAN_ROWS):
                    detections.add(value)
            elif source_field.kind == "classes" and not source_field.columns:
                self._add_texts(file, column)

    def _add_texts(self, file: TableFile, column: str) -> None:
        if file.holds_texts(column):
            texts: set[Any] = self._texts.setdefault(column, set())
            texts.update(file.column(column, SCAN_ROWS))
            texts.discard(None)
        elif file.holds_lists_of_texts(column):
            items: set[Any] = self._items.setdefault(column, set())
            for value in file.column(column, SCAN_ROWS):
                items.update(value or ())
            items.discard(None)

    def texts(self) -> dict[str, ClassTexts]:
        """The texts in the columns that become fields of classes."""
        texts = {}
        for column in self._texts.keys() | self._items.keys():
            texts[column] = ClassTexts(
                self._texts.get(column, ()), self._items.get(column, ())
            )
        return texts

    def box_objects(self) -> dict[str, BoxObjects]:
        """The columns with boxes, and the names of their classes, by the schema or the values."""
        box_objects = {}
        for column, names in self.schema_names.items():
            box_objects[column] = BoxObjects(names, ShareCheck())
        for column, detections in self._detections.items():
            if not detections.is_certain or not detections.count:
                continue
            # Names in the schema go first.
            names = self.schema_names.get(column) or sorted(detections.names)
            box_objects[column] = BoxObjects(names, detections.shares)
        return box_objects
