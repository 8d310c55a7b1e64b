"""Rows of tables -> packed images, in the order of the tables, converted in advance by threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from fastpipe.packing.ahead import Ahead, read_ahead
from fastpipe.packing.picture.convert import EncodeOptions, Packed
from fastpipe.packing.pipeline import RUN_BYTES, RUN_FILES, Outcome, convert_sample, outcomes
from fastpipe.packing.source.listing import Source
from fastpipe.packing.source.reading import changed, give_up_requests, with_own_requests
from fastpipe.packing.source.table_cells import Cells, cells
from fastpipe.packing.source.tables import TableListing, needed_groups
from fastpipe.packing.table_values import image_of, values_of


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
        lambda: image_of(row.cells, row.at),
        lambda _: values_of(row.cells, row.at, listing.columns),
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
