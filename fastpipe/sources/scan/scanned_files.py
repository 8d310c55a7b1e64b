"""A listing of an unpacked source -> a scan: one record per file, with what its header says."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastpipe.arrays import Int64s, Records
from fastpipe.dataset.format.layout import INDEX_DTYPE, MAX_SAMPLE_BYTES, PICTURE
from fastpipe.dataset.format.shard_list import Texts
from fastpipe.errors import DatasetError, readable
from fastpipe.sources.listing import Listing

# Kinds of files: how the engine gets their pictures.
PLAIN = 0  # it decodes the file as it lies
CONVERTED = 1  # it decodes a PNG or JPEG that `convert` makes of the file
REJECTED = 2  # the file is no sample
# No header has been read, or the file could not be read. The next scan tries again: a change of
# permissions changes neither size nor time of a file.
UNKNOWN = 3

# The record of a file: 51 bytes.
FILE_DTYPE = np.dtype(
    [
        ("label", "<i8"),
        ("size", "<u8"),  # in bytes
        ("mtime_ns", "<i8"),  # of the file, or of its tar
        ("shard", "<u4"),  # number of the tar; without tars, of the file
        ("offset", "<u8"),  # of the first byte in the tar
        *((name, INDEX_DTYPE[name]) for name in PICTURE),  # 0 while not known
        ("identity", "<u8"),  # of the picture, see `identity_of`; 0 while not known
        ("kind", "u1"),
    ]
)
HEADER_FIELDS = list(PICTURE)
# A file has changed if one of these has.
_STATE_FIELDS = ["size", "mtime_ns", "offset"]
_FACT_FIELDS = [*HEADER_FIELDS, "identity", "kind"]  # known once the file has been read


class Archive(NamedTuple):
    """A tar, as it was when it was scanned."""

    path: str  # below the source's folder
    size_bytes: int
    mtime_ns: int


@dataclass
class Scan:
    """The files of a source, in packing order without shuffle. Files are numbered in this order."""

    source: str  # an absolute path, or a pattern
    folder: Path  # absolute; paths are relative to it
    classes: list[str]
    archives: list[Archive] | None  # the tars; None: files lie by themselves
    paths: Texts
    files: Records  # (n,) of FILE_DTYPE
    # Why files are no samples, by the number of the file.
    reasons: dict[int, str] = field(default_factory=dict)

    def path_on_disk(self, number: int) -> bytes:
        """Absolute path of the file, or of the tar, that holds a picture."""
        if self.archives is None:
            path = self.paths.bytes_at(number)
        else:
            archive = self.archives[self.files["shard"][number]]
            path = os.fsencode(archive.path)
        return os.path.join(os.fsencode(self.folder), path)

    @property
    def unknown_numbers(self) -> Int64s:
        """Numbers of the files whose headers have to be read."""
        return np.flatnonzero(self.files["kind"] == UNKNOWN)

    def find_numbers(self, paths: Iterable[bytes]) -> Int64s:
        """(paths,) the numbers of the files with these paths; -1 where there is none."""
        all_paths = map(self.paths.bytes_at, range(len(self.files)))
        number_of_path = {path: number for number, path in enumerate(all_paths)}
        numbers = [number_of_path.get(path, -1) for path in paths]
        return np.array(numbers, np.int64)

    def reject(self, number: int, reason: str) -> None:
        """Marks a file as no sample."""
        self.files["kind"][number] = REJECTED
        self.reasons[number] = reason

    def copy_facts(self, previous: Scan) -> bool:
        """Copies what an earlier scan has read from files that have not changed since.

        Returns:
            Whether this scan is now complete and equal to the earlier one.
        """
        is_same_listing = self._lists_same_files(previous)
        numbers = self.unknown_numbers
        if is_same_listing:
            previous_numbers = numbers
        else:
            # (files,) the number of each file in the earlier scan, -1 if it is new since then.
            paths = map(self.paths.bytes_at, numbers.tolist())
            matches = previous.find_numbers(paths)
            was_listed = matches >= 0
            numbers = numbers[was_listed]
            previous_numbers = matches[was_listed]

        previous_states = previous.files[_STATE_FIELDS][previous_numbers]
        is_unchanged = self.files[_STATE_FIELDS][numbers] == previous_states
        is_known = previous.files["kind"][previous_numbers] != UNKNOWN
        is_copied = is_unchanged & is_known
        numbers = numbers[is_copied]
        previous_numbers = previous_numbers[is_copied]
        facts = previous.files[_FACT_FIELDS][previous_numbers]
        self.files[_FACT_FIELDS][numbers] = facts

        # Files that are rejected again keep their reasons.
        is_rejected = self.files["kind"][numbers] == REJECTED
        for index in np.flatnonzero(is_rejected).tolist():
            previous_number = int(previous_numbers[index])
            number = int(numbers[index])
            self.reasons[number] = previous.reasons[previous_number]
        is_complete = len(self.unknown_numbers) == 0
        return is_same_listing and is_complete and self.classes == previous.classes

    def _lists_same_files(self, other: Scan) -> bool:
        compared = ["label", *_STATE_FIELDS]
        return (
            self.archives == other.archives
            and self.paths.data == other.paths.data
            and np.array_equal(self.paths.bounds, other.paths.bounds)
            and np.array_equal(self.files[compared], other.files[compared])
        )


def make_scan(name: str, listing: Listing, archives: list[Archive] | None) -> Scan:
    """The scan of a listing in packing order, before any header is read.

    Args:
        name: of the source, as `Scan.source`.
        listing: its files, without shuffle.
        archives: its tars; None: it has none.

    Raises:
        DatasetError: a sample is in a tar that is not in `archives`.
    """
    root = Path(os.path.abspath(str(listing.root)))
    folder = root if root.is_dir() else root.parent
    # A source may have millions of files, so the tuples are made one by one.
    records = np.fromiter(
        _records(root, listing, archives), FILE_DTYPE, count=len(listing.sources)
    )
    paths = Texts.of(source.path for source in listing.sources)
    scan = Scan(name, folder, list(listing.classes), archives, paths, records)
    for number, source in enumerate(listing.sources):
        if source.problem is not None:
            scan.reject(number, source.problem)
        elif source.size_bytes > MAX_SAMPLE_BYTES:
            reason = (
                f"{source.size_bytes:,} bytes; expected at most {MAX_SAMPLE_BYTES:,}"
            )
            scan.reject(number, reason)
    return scan


def _records(
    root: Path, listing: Listing, archives: list[Archive] | None
) -> Iterator[tuple[Any, ...]]:
    """The records of FILE_DTYPE, as tuples."""
    number_of_tar: dict[str, int] = {}
    for number, archive in enumerate(archives or []):
        number_of_tar[archive.path] = number
    no_header = (0,) * len(HEADER_FIELDS)
    for number, source in enumerate(listing.sources):
        shard = number
        if archives is not None:
            tar = source.archive or root.name  # "" means that the source is the tar
            if tar not in number_of_tar:
                raise DatasetError(
                    f"{readable(root)} has changed while it was scanned: {readable(tar)} is "
                    "new. Try again when no program writes there"
                )
            shard = number_of_tar[tar]
        # In the order of FILE_DTYPE.
        state = (
            source.label,
            source.size_bytes,
            source.mtime_ns,
            shard,
            source.offset_bytes,
        )
        yield (*state, *no_header, source.identity or 0, UNKNOWN)
