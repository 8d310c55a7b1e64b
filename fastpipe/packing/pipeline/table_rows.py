"""Rows of tables -> packed images, in the order of the tables, converted in advance by threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable
from operator import attrgetter
from typing import Any, NamedTuple

from fastpipe.errors import ImageError, readable
from fastpipe.format.open_file import changed
from fastpipe.packing.fields.values import take
from fastpipe.packing.pipeline.ahead import Ahead, read_ahead
from fastpipe.packing.pipeline.converting import convert_sample
from fastpipe.sources.column_kinds import field_value
from fastpipe.sources.listing import LARGE_BYTES, START_BYTES, Source, SourceField, give_up_requests, with_own_requests
from fastpipe.sources.parquet_arrow import Cells
from fastpipe.sources.picture.convert import EncodeOptions, Packed
from fastpipe.sources.picture.probe import image_format
from fastpipe.sources.tables import TableListing, needed_groups


class _Row(NamedTuple):
    """A row to convert, and the cells that it is in."""

    source: Source
    cells: Cells
    at: int


_size_bytes = attrgetter("source.size_bytes")


def converted_rows(
    listing: TableListing, sources: Iterable[Source], how: EncodeOptions, workers: int
) -> Generator[tuple[Source, Packed | str], None, None]:
    """Converts rows in the order of their files, each group read once; the sources it yields have sizes of images."""
    listing = with_own_requests(listing)
    fields, of = tuple(enumerate(listing.fields)), (how, listing.kinds, listing.classes)

    def convert(row: _Row) -> Packed | str:
        source, cells, at = row
        name = str(listing.root / source.path)
        values = (_value(cells, at, number, field) for number, field in fields)
        return convert_sample(source, name, lambda: _image_of(cells, at), lambda _: values, *of)

    rows = read_ahead(_rows(listing, sources), _size_bytes)
    ahead = Ahead(convert, workers, _size_bytes)
    try:
        for row, outcome in ahead.each(rows):
            yield row.source, outcome
    finally:
        give_up_requests(listing)
        ahead.close()
        rows.close()


def _rows(listing: TableListing, sources: Iterable[Source]) -> Generator[_Row, None, None]:
    """These rows, read file by file and group by group."""
    of_file: dict[str, dict[int, Source]] = defaultdict(dict)
    for source in sources:
        assert source.archive is not None  # rows are in files
        of_file[source.archive][source.offset_bytes] = source
    for name, wanted in sorted(of_file.items()):
        path, table = listing.root / name, listing.tables[name]
        with listing.open(path) as file:
            if file.state()[:2] != table.state[:2]:
                raise changed(path)
            for group in needed_groups(table, wanted):
                row = group.first_row
                for batch in file.read(group, listing.columns.read()):
                    with file.reading(f"rows from {row:,} on"):
                        found = Cells(batch, listing.columns)
                    if file.is_replaced():
                        raise changed(path)
                    for at, size_bytes in enumerate(found.sizes):
                        if (asked := wanted.get(row + at)) is not None:
                            yield _Row(asked._replace(size_bytes=size_bytes), found, at)
                    row += batch.num_rows


def _image_of(cells: Cells, at: int) -> bytes:
    if cells.sizes[at] > LARGE_BYTES:
        image_format(cells.image_start(at, START_BYTES))  # a film among the images need not be copied
    data = cells.image(at)
    if data is not None:
        return data
    path = cells.path(at)
    if path is None:
        raise ImageError("no image: expected bytes, got null")
    raise ImageError(
        f"no bytes of an image, only its path {readable(path)}: write the table with the images in it, for example "
        "with Dataset.to_parquet or save_to_disk"
    )


def _value(cells: Cells, at: int, number: int, field: SourceField) -> Any:
    try:
        value = cells.value(number, at)
    except UnicodeDecodeError as problem:
        raise ImageError(f"expected UTF-8 ({problem.reason} at byte {problem.start})") from None
    except (ValueError, OverflowError) as problem:
        raise ImageError(str(problem)) from None
    return value if field.kind in ("mask", "image") else take(field.kind, field_value(value, field))
