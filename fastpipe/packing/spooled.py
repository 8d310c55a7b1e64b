"""Sources that are read in the order of their files -> packed images in packing order, by way of a spool.

Note [the steps of a spool]
*Convert*: sources are converted in the order in which they stand in their files, and runs of them are written to spool
files, sorted by packing order. *Assemble*: all spool files are merged, and give the samples in packing order, as if
they had been converted in it; cutting them into shards is then what it is for folders. Between the steps there are only
files: a run that is written is not converted again, whatever happens to the pack, and the same sources give the same
runs.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import xxhash

from fastpipe.errors import PackError, readable
from fastpipe.format.layout import COEFFICIENTS_STORAGE, JPEG_STORAGE
from fastpipe.packing.ahead import read_ahead
from fastpipe.packing.options import PackOptions
from fastpipe.packing.picture.convert import EncodeOptions, Packed
from fastpipe.packing.picture.versions import versions
from fastpipe.packing.pipeline import RUN_BYTES, converted
from fastpipe.packing.source.listing import Listing, Source, packing_order
from fastpipe.packing.source.tables import TableListing
from fastpipe.packing.spool.record import Record
from fastpipe.packing.spool.spool import Spool
from fastpipe.packing.spool.spool_file import Blob

_LOG = logging.getLogger("fastpipe")
_TOLD_BYTES = 1_000_000_000
_RUN_SAMPLES = 256
_GROWTH = {JPEG_STORAGE: 1.0, COEFFICIENTS_STORAGE: 1.4}  # of images when they are stored

Pictures = Generator[tuple[int, Source, Packed | str], None, None]


def spooled(
    listing: Listing,
    sources: Sequence[Source],
    start: int,
    options: PackOptions,
    workers: int,
    folder: Path,
    on_converted: Callable[[int, Source, Packed | str], None] = lambda *_: None,
) -> Pictures:
    """Converts sources, those before `start` too, and gives those from `start` on. Note [the steps of a spool]

    Args:
        listing: that the sources are of.
        sources: some or all of them, in packing order.
        start: position of the first that is asked for.
        options: how.
        workers: threads.
        folder: for the spool; those of its files that fit are used, others are removed.
        on_converted: called with each source that is converted now: how many are left, it, and what became of it.

    Yields:
        Position, source with the size of its image, and the picture with the values of its fields, or why there is
        none.

    Raises:
        PackError: as `converted`; or there is no room for the spool.
        OSError: the disk refuses.
    """
    place = packing_order(options.seed, shuffle=options.shuffle)

    def state(run: list[Source]) -> str:
        return replace(listing, sources=run).digest_with_times()

    spool = Spool(folder, sources, place, state, _made_with(listing, options), list(listing.kinds.values()))
    try:
        left = len(spool.rest)
        if left:
            share = left / len(listing.sources) * _GROWTH[options.encode.storage]
            _check_room(folder, listing, share, shrinks=options.encode.max_size is not None)
        with closing(_in_file_order(listing, sources, spool.rest, options.encode, workers)) as pictures:
            for position, source, outcome in pictures:
                spool.add(position, source, outcome)
                left -= 1
                on_converted(left, source, outcome)
        spool.finish()
        after = place(sources[start - 1]) if start else None
        position = start
        with closing(read_ahead(_runs(spool.samples(after)))) as runs:
            for record, outcome in (sample for run in runs for sample in run):
                expected = sources[position] if position < len(sources) else None
                if expected is None or (record.name, record.label) != (expected.path, expected.label):
                    raise _does_not_fit(folder, readable(record.name))
                yield position, replace(expected, size_bytes=record.source_bytes), outcome
                position += 1
        if position != len(sources):
            raise _does_not_fit(folder, "its end")
    finally:
        spool.close()


def _does_not_fit(folder: Path, what: str) -> PackError:
    return PackError(
        f"the spool in {folder} comes to {what} where another sample should be. Remove this folder, then run the same "
        "command again: it is made anew"
    )


def _runs(samples: Iterator[tuple[Record, Blob]]) -> Generator[list[tuple[Record, Packed | str]], None, None]:
    """Some samples at once, with their pictures: handing over each by itself would cost more than reading it."""
    run: list[tuple[Record, Packed | str]] = []
    size_bytes = 0
    for record, blob in samples:
        run.append((record, blob.outcome()))
        size_bytes += record.blob_bytes
        if size_bytes >= RUN_BYTES or len(run) == _RUN_SAMPLES:
            yield run
            run, size_bytes = [], 0
    if run:
        yield run


def in_order(
    listing: Listing,
    sources: Sequence[Source],
    options: PackOptions,
    workers: int,
    folder: Path,
    start: int = 0,
    on_converted: Callable[[int, Source, Packed | str], None] = lambda *_: None,
) -> Pictures:
    """Converts sources in packing order: directly, or by way of a spool in `folder` if they are read as a stream."""
    if isinstance(listing, TableListing):
        return spooled(listing, sources, start, options, workers, folder, on_converted)
    return converted(listing, sources, start, options.encode, workers)


def in_any_order(listing: Listing, sources: Sequence[Source], how: EncodeOptions, workers: int) -> Pictures:
    """Converts sources in the order in which they are read best; see `converted` and `converted_rows`."""
    if isinstance(listing, TableListing):
        return _in_file_order(listing, sources, range(len(sources)), how, workers)
    return converted(listing, sources, 0, how, workers)


def _in_file_order(
    listing: Listing, sources: Sequence[Source], positions: Sequence[int], how: EncodeOptions, workers: int
) -> Pictures:
    if isinstance(listing, TableListing):
        from fastpipe.packing.table_pipeline import converted_rows  # it needs pyarrow

        yield from converted_rows(listing, sources, positions, how, workers)
        return
    ours = [sources[at] for at in positions]
    with closing(converted(listing, ours, 0, how, workers)) as pictures:
        for step, source, outcome in pictures:
            yield positions[step], source, outcome


def _made_with(listing: Listing, options: PackOptions) -> str:
    """Names what decides the bytes of a sample, and its place, besides the source."""
    said = options.shaping(listing.kinds), versions(masks="mask" in listing.kinds.values())
    return xxhash.xxh3_128_hexdigest(json.dumps(said, sort_keys=True).encode())


def _check_room(folder: Path, listing: Listing, share: float, *, shrinks: bool) -> None:
    """Looks whether the disk has room for the spool, and says how much it takes.

    Raises:
        PackError: it has not.
    """
    needed, free = round(listing.size_bytes * share), shutil.disk_usage(folder).free
    most = "at most " if shrinks else "about "
    words = f"packing {readable(str(listing.root))} needs {most}{_shown(needed)} beside the dataset until it is done"
    if free < needed and not shrinks:
        raise PackError(
            f"{words}, in {readable(os.fspath(folder))}; {_shown(free)} are free there. Make room, or choose another "
            "disk (DST, or --spool where DST is a URL), then run the same command again"
        )
    if needed >= _TOLD_BYTES:
        few = f"; only {_shown(free)} are free there" if free < 2 * needed else ""
        _LOG.warning("%s, in %s%s", words, readable(os.fspath(folder)), few)


def _shown(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e8 else f"{size_bytes / 1e6:.1f} MB"
