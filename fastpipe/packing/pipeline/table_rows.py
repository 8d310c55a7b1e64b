"""Rows of tables -> their images and the values of their fields, read file by file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fastpipe.dataset.format.fields import PICTURE_KINDS
from fastpipe.dataset.format.open_file import changed_error
from fastpipe.errors import ImageError, readable
from fastpipe.packing.fields.values import parse_value
from fastpipe.sources.class_names import renumber_value
from fastpipe.sources.field_values import field_value
from fastpipe.sources.listing import Source, SourceField
from fastpipe.sources.picture.probe import image_format
from fastpipe.sources.source_bytes import LARGE_BYTES, START_BYTES
from fastpipe.sources.tables.tables import TableListing, needed_groups, open_table

if TYPE_CHECKING:
    from fastpipe.sources.tables.arrow_cells import Cells


class Row(NamedTuple):
    """A row to convert.

    Attributes:
        source: the row as listed, with the size of its image.
        cells: the batch of rows that it is in.
        row_index: of the row in the batch.
    """

    source: Source
    cells: Cells
    row_index: int


def read_table_rows(
    listing: TableListing, sources: Iterable[Source]
) -> Generator[Row, None, None]:
    """These rows, in the order of files and groups."""
    from fastpipe.sources.tables.arrow_cells import Cells  # needs pyarrow

    # Number of the row -> source, by file.
    wanted_by_file: dict[str, dict[int, Source]] = defaultdict(dict)
    for source in sources:
        assert source.archive is not None  # a row is in a file
        wanted_by_file[source.archive][source.offset_bytes] = source

    for name, wanted in sorted(wanted_by_file.items()):
        path = listing.root / name
        table = listing.tables[name]
        with open_table(listing.kind, path) as file:
            # Size and mtime: a hard link to a file changes its ctime.
            if file.opened.state[:2] != table.state[:2]:
                raise changed_error(path)
            for group in needed_groups(table, wanted):
                first_row = group.first_row
                for batch in file.read(group, listing.columns.columns_to_read()):
                    with file.reading(f"rows from {first_row:,} on"):
                        cells = Cells(batch, listing.columns)
                    if file.is_replaced():
                        raise changed_error(path)
                    for index, size_bytes in enumerate(cells.sizes):
                        listed = wanted.get(first_row + index)
                        if listed is not None:
                            yield Row(
                                listed._replace(size_bytes=size_bytes), cells, index
                            )
                    first_row += batch.num_rows


def read_image_of_row(row: Row) -> bytes | None:
    """The bytes of a row's image; None: its table has none. ImageError: the row has none, or they
    are no image.
    """
    if not row.cells.has_images:
        return None
    if row.cells.sizes[row.row_index] > LARGE_BYTES:
        # A film among the photos is refused without copying it.
        image_format(row.cells.image_start(row.row_index, START_BYTES))
    data = row.cells.image(row.row_index)
    if data is not None:
        return data
    path = row.cells.path(row.row_index)
    if path is None:
        raise ImageError("no image: expected bytes, got null")
    raise ImageError(
        f"no bytes of an image, only its path {readable(path)}: write the table with the images in "
        "it, for example with Dataset.to_parquet or save_to_disk"
    )


def read_values_of_row(row: Row, fields: Sequence[SourceField]) -> Iterator[Any]:
    """The value of each field, one by one. ImageError: a cell cannot be a value."""
    for column, field in enumerate(fields):
        try:
            value = row.cells.value(column, row.row_index)
        except UnicodeDecodeError as problem:
            raise ImageError(
                f"expected UTF-8 ({problem.reason} at byte {problem.start})"
            ) from None
        except (ValueError, OverflowError) as problem:
            raise ImageError(str(problem)) from None
        if field.kind == "images":
            value = _read_pictures(value)
        elif field.kind not in PICTURE_KINDS:
            value = parse_value(
                field.kind, renumber_value(field, field_value(value, field))
            )
        yield value


def _read_pictures(value: Any) -> list[bytes]:
    """The pictures in a cell: a list of bytes, or of structs as Hugging Face's datasets have them."""
    pictures = []
    for number, entry in enumerate(value or []):
        data = entry.get("bytes") if isinstance(entry, dict) else entry
        if not isinstance(data, bytes):
            raise ImageError(
                f"image {number}: expected the bytes of an image, got {type(data).__name__}; write "
                "the table with the images in it, for example with Dataset.save_to_disk"
            )
        pictures.append(data)
    return pictures
