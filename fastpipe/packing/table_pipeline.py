"""Rows of tables -> packed images, in the order of the tables, converted in advance by threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fastpipe.errors import ImageError, readable
from fastpipe.packing.ahead import Ahead, read_ahead
from fastpipe.packing.fields.values import take
from fastpipe.packing.picture.convert import EncodeOptions, Packed
from fastpipe.packing.picture.probe import image_format
from fastpipe.packing.pipeline import RUN_BYTES, RUN_FILES, Outcome, convert_sample, outcomes
from fastpipe.packing.source.listing import Source
from fastpipe.packing.source.reading import LARGE_BYTES, START_BYTES, changed, give_up_requests, with_own_requests
from fastpipe.packing.source.table_cells import Cells, as_meant, cells
from fastpipe.packing.source.table_columns import TableColumns, TableField
from fastpipe.packing.source.tables import TableListing, needed_groups


class _Row(NamedTuple):
    """A row to convert: its position among the sources, and the cells that it is in."""

    position: int
    source: Source
    cells: Cells
    at: int


def converted_rows(
    listing: TableListing, sources: Sequence[Source], positions: Iterable[int], how: EncodeOptions, workers: int
) -> Generator[tuple[int, Source, Packed | str], None, None]:
    """Converts rows in the order in which they stand in their files: each group of rows is read once.

    One thread reads ahead, the others convert; close the generator to stop them.

    Args:
        listing: that the sources are of.
        sources: some or all of them, in any order.
        positions: which of them.
        how: the options.
        workers: threads that convert.

    Yields:
        Position, source with the size of its image, and the picture with the values of its fields, or why there is
        none.

    Raises:
        PackError: a file is damaged, or has changed since it was listed; or the system is at fault.
    """

    def work(run: list[_Row]) -> list[Outcome]:
        return outcomes(lambda row: _convert_row(row, listing, how), run, ahead.stopped)

    def given(done: Iterator[tuple[list[_Row], list[Outcome]]]) -> Iterator[tuple[int, Source, Packed | str]]:
        for run, found in done:
            for row, outcome in zip(run, found, strict=False):  # shorter where the pack must stop
                if isinstance(outcome, Exception):
                    raise outcome
                yield row.position, row.source, outcome

    listing = with_own_requests(listing)
    ahead = Ahead(work, workers)
    runs = read_ahead(_runs(_rows(listing, sources, positions)))
    try:
        for run in runs:
            yield from given(ahead.put(run))
        yield from given(ahead.rest())
    finally:
        give_up_requests(listing)
        ahead.close()
        runs.close()


def _convert_row(row: _Row, listing: TableListing, how: EncodeOptions) -> Outcome:
    if row.source.problem is not None:
        return row.source.problem
    return convert_sample(
        str(listing.root / row.source.path),
        row.source.size_bytes,
        lambda: _image_of(row.cells, row.at),
        lambda _: _values_of(row.cells, row.at, listing.columns),
        how,
        row.source.label,
        listing.classes,
    )


def _rows(listing: TableListing, sources: Sequence[Source], positions: Iterable[int]) -> Iterator[_Row]:
    """The rows at these positions, read file by file and group by group."""
    of_file: dict[str, dict[int, int]] = defaultdict(dict)
    for position in positions:
        source = sources[position]
        assert source.archive is not None  # rows are in files
        of_file[source.archive][source.offset_bytes] = position
    for name, wanted in sorted(of_file.items()):
        path, table = listing.root / name, listing.tables[name]
        with listing.open(path) as file:
            if file.state()[:2] != table.state[:2]:
                raise changed(path)
            for group in needed_groups(table, wanted):
                row = group.first_row
                for batch in file.read(group, listing.columns.read()):
                    with file.reading(f"rows from {row:,} on"):
                        found = cells(batch, listing.columns)
                    if file.is_replaced():
                        raise changed(path)
                    for at, size_bytes in enumerate(found.sizes):
                        if (asked := wanted.get(row + at)) is not None:
                            yield _Row(asked, replace(sources[asked], size_bytes=size_bytes), found, at)
                    row += batch.num_rows


def _runs(rows: Iterator[_Row]) -> Generator[list[_Row], None, None]:
    """What a thread takes at once."""
    run: list[_Row] = []
    size_bytes = 0
    for row in rows:
        run.append(row)
        size_bytes += row.source.size_bytes
        if size_bytes >= RUN_BYTES or len(run) == RUN_FILES:
            yield run
            run, size_bytes = [], 0
    if run:
        yield run


def _image_of(cells: Cells, at: int) -> bytes:
    """The bytes of a row's image.

    Raises:
        ImageError: it has none.
    """
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


def _values_of(cells: Cells, at: int, columns: TableColumns) -> list[tuple[str, str, Any]]:
    """Name, kind and value of each field of a row.

    Raises:
        ImageError: a value cannot be; the message is the reason.
    """
    found = []
    for number, field in enumerate(columns.fields):
        try:
            found.append((field.name, field.kind, _value(cells, at, number, field)))
        except ImageError as problem:
            raise ImageError(f"field {field.name}: {problem}") from None
    return found


def _value(cells: Cells, at: int, number: int, field: TableField) -> Any:
    try:
        value = cells.value(number, at)
    except UnicodeDecodeError as problem:
        raise ImageError(f"expected UTF-8 ({problem.reason} at byte {problem.start})") from None
    except (ValueError, OverflowError) as problem:
        raise ImageError(str(problem)) from None
    return value if field.kind in ("mask", "image") else take(field.kind, as_meant(field, value))
