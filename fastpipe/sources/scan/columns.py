"""The files of a source -> columns: what their first bytes tell, kept in the cache folder for the next start."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray
from rich.console import Console

from fastpipe.errors import DatasetError, ImageError, readable
from fastpipe.format.layout import INDEX_DTYPE, MAX_SAMPLE_BYTES, PICTURE
from fastpipe.format.sample_layout import identity_of
from fastpipe.format.shard_list import Texts
from fastpipe.machine.cache_folder import cache_folder
from fastpipe.machine.progress import WorkProgress, shown
from fastpipe.native import _engine
from fastpipe.plan.draws import Int64s
from fastpipe.sources.files import LocalFile
from fastpipe.sources.listing import FILE_ERRNOS, Listing

_AT_ONCE = 256  # files that a thread takes
_THREADS = 16  # they wait for the disk
_START_BYTES = (
    64 << 10
)  # of a file that the engine cannot read; where the size does not stand there, all of it is read

# How the engine gets a picture of a file: as it lies; by way of `convert`; not at all; no header has been read, or the
# file could not be read: the next scan tries again, for permissions are no part of a file's state here.
PLAIN, ODD, REJECTED, UNKNOWN = 0, 1, 2, 3

# One record a file: 51 bytes.
FILE_DTYPE = np.dtype(
    [
        ("label", "<i8"),
        ("size", "<u8"),  # in bytes
        ("mtime_ns", "<i8"),  # of the file, or of its tar
        ("shard", "<u4"),  # number of the tar; of a file by itself, its own number
        ("offset", "<u8"),  # of the first byte in the tar
        *((name, INDEX_DTYPE[name]) for name in PICTURE),  # 0 while not known
        ("identity", "<u8"),  # of the picture, see `identity_of`; 0 while not known
        ("kind", "u1"),
    ]
)
_STATE = ["size", "mtime_ns", "offset"]  # a file that has another one has changed
_HEADER = list(PICTURE)
_FOUND = [*_HEADER, "identity", "kind"]

# A tar: its path below the source's folder, its size and its time.
Archive = tuple[str, int, int]


@dataclass
class Columns:
    """A source's files, in packing order without shuffle."""

    source: str  # an absolute path, or a pattern
    folder: Path  # absolute; paths are relative to it
    classes: list[str]
    archives: list[Archive] | None  # the tars; None: each file lies by itself
    paths: Texts
    files: NDArray[np.void]  # (n,) of FILE_DTYPE
    reasons: dict[int, str] = field(
        default_factory=dict
    )  # why files are no samples, by their number

    def file_of(self, number: int) -> bytes:
        """Absolute path of the file that holds a picture's bytes."""
        name = self.paths.bytes_at(number)
        if self.archives is not None:
            name = os.fsencode(self.archives[self.files["shard"][number]][0])
        return os.path.join(os.fsencode(self.folder), name)

    @property
    def unknown(self) -> Int64s:
        """Numbers of the files whose headers have to be read."""
        return np.flatnonzero(self.files["kind"] == UNKNOWN)

    def take_over(self, before: Columns) -> bool:
        """Fills in what an earlier scan found out of the files that have not changed since; whether none has."""
        compared = ["label", *_STATE]
        same = (
            (self.archives, self.paths.data) == (before.archives, before.paths.data)
            and np.array_equal(self.paths.bounds, before.paths.bounds)
            and np.array_equal(self.files[compared], before.files[compared])
        )
        mine = theirs = self.unknown
        if not same:
            numbers = {before.paths.bytes_at(number): number for number in range(len(before.files))}
            theirs = np.array(
                [numbers.get(self.paths.bytes_at(number), -1) for number in mine.tolist()], np.int64
            )
        known = (theirs >= 0) & (before.files["kind"][theirs] != UNKNOWN)
        known &= self.files[_STATE][mine] == before.files[_STATE][theirs]
        mine, theirs = mine[known], theirs[known]
        self.files[_FOUND][mine] = before.files[_FOUND][theirs]
        both, reasons = zip(mine.tolist(), theirs.tolist(), strict=True), before.reasons
        self.reasons |= {number: reasons[other] for number, other in both if other in reasons}
        return same and self.classes == before.classes and not len(self.unknown)

    def reject(self, number: int, reason: str) -> None:
        """Takes a file out of the samples."""
        self.files["kind"][number] = REJECTED
        self.reasons[number] = reason


def columns_of(name: str, listing: Listing, archives: list[Archive] | None) -> Columns:
    """The columns of a listing in packing order, with no header read. DatasetError: a sample is in another tar."""
    root = Path(os.path.abspath(str(listing.root)))
    numbers = {name: number for number, (name, _, _) in enumerate(archives or [])}
    rows = (
        (
            *(source.label, source.size_bytes, source.mtime_ns),
            number
            if archives is None
            else numbers[source.archive or root.name],  # "" where the source is the tar
            *(source.offset_bytes, 0, 0, 0, 0, source.identity or 0, UNKNOWN),
        )
        for number, source in enumerate(listing.sources)
    )
    try:
        files = np.fromiter(rows, FILE_DTYPE, len(listing.sources))
    except KeyError as new:
        raise DatasetError(
            f"{readable(str(root))} has changed while it was scanned: {readable(new.args[0])} is new. Try again when "
            "no program writes there"
        ) from new
    folder, paths = (
        root if root.is_dir() else root.parent,
        Texts.of(source.path for source in listing.sources),
    )
    found = Columns(name, folder, list(listing.classes), archives, paths, files)
    for number, source in enumerate(listing.sources):
        if source.problem is not None:
            found.reject(number, source.problem)
        elif source.size_bytes > MAX_SAMPLE_BYTES:
            found.reject(
                number, f"{source.size_bytes:,} bytes; expected at most {MAX_SAMPLE_BYTES:,}"
            )
    return found


def read_files(
    columns: Columns, numbers: Int64s, find: Callable[[Columns, Int64s], object]
) -> None:
    """Fills in what `find` finds out of files, in threads. DatasetError: the system, not a file, is at fault."""
    parts = [numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE)]
    if not parts:
        return
    threads = ThreadPoolExecutor(
        _THREADS, thread_name_prefix="fastpipe-scan"
    )  # it starts no more than it has parts
    try:
        doing = f"scanning {readable(str(columns.folder))}"
        with shown(
            Console(stderr=True), doing, lambda now: f"{now.bytes:,} of {now.total_bytes:,} files"
        ) as tell:
            for done, _ in enumerate(threads.map(partial(find, columns), parts), 1):
                now = min(done * _AT_ONCE, len(numbers)), len(numbers)
                tell(WorkProgress(*now, *now))  # of each file only the start is read
    finally:
        threads.shutdown(cancel_futures=True)


def _read_member(file: LocalFile, start: int, offset: int, count: int) -> bytes:
    """Reads a range of a file that begins at `start` of another one, as a tar's member does."""
    return file.read_at(count, start + offset)


def identities(columns: Columns, numbers: Int64s) -> None:
    """What names the pictures; see `identity_of`."""
    for number in numbers.tolist():
        path, row = columns.file_of(number), columns.files[number]
        size, start = int(row["size"]), int(row["offset"])
        try:
            with LocalFile(path) as file:
                row["identity"] = identity_of(size, partial(_read_member, file, start))
        except OSError as problem:
            raise _unreadable(path, problem) from problem


def headers(columns: Columns, numbers: Int64s) -> None:
    """Width, height, channels, bits and kind."""
    files = columns.files
    paths = [columns.file_of(number) for number in numbers.tolist()]
    found = _engine.read_headers(paths, files["offset"][numbers], files["size"][numbers])
    plain = found["plain"] == 1
    for name in _HEADER:
        files[name][numbers] = found[name]
    files["kind"][numbers] = np.where(plain, PLAIN, ODD)
    for place in np.flatnonzero(~plain).tolist():
        number = int(numbers[place])
        row = files[number]
        try:
            files[_HEADER][number] = _look(paths[place], int(row["offset"]), int(row["size"]))
        except ImageError as problem:
            columns.reject(number, str(problem))
        except OSError as problem:
            if problem.errno not in FILE_ERRNOS:
                raise _unreadable(paths[place], problem) from problem
            columns.reject(number, f"cannot be read: {problem.strerror}")
            row["kind"] = UNKNOWN


def _unreadable(path: bytes, problem: OSError) -> DatasetError:
    return DatasetError(
        f"cannot read {readable(os.fsdecode(path))}: {problem.strerror}; check the disk and the limit on open files "
        "(ulimit -n)"
    )


def _look(path: bytes, start: int, size: int) -> tuple[int, int, int, int]:
    """Width, height, channels and bits of what the engine cannot read. ImageError: packing would refuse it."""
    from fastpipe.sources.picture.convert import stored_header

    with LocalFile(path) as file:
        data = file.read_at(min(size, _START_BYTES), start)
        if size > _START_BYTES:
            with contextlib.suppress(ImageError):  # perhaps because it is only the start
                return stored_header(data)
            data = file.read_at(size, start)
    return stored_header(data)


_LOG = logging.getLogger("fastpipe")
_VERSION = 7  # of the file, and of what a scan finds out
_KEPT_S = 60 * 24 * 3600.0  # without being used
_told: set[str] = set()


@dataclass(frozen=True)
class KeptScan:
    """A scan in the cache folder, and how many files it found in its source: "" if the scan cannot be read."""

    source: str
    file: str
    files: int
    disk_bytes: int


def kept_scans() -> list[KeptScan]:
    """All scans of the cache folder, by their sources."""
    found = []
    for file in cache_folder().glob("scan-*.bin"):
        source, files = "", 0
        with contextlib.suppress(Exception):  # of another program, or half removed
            about, _ = _read(file)
            source, files = readable(about["source"]), about["files"]
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            found.append(KeptScan(source, str(file), files, file.stat().st_blocks * 512))
    return sorted(found, key=lambda each: each.source)


def cache_file(source: str) -> Path:
    """Where the columns of a source are kept: an .npz file, whose parts have a CRC-32 each."""
    return cache_folder() / f"scan-{xxhash.xxh3_64_hexdigest(os.fsencode(source))}.bin"


def _read(file: Path, *names: str) -> tuple[dict[str, Any], list[Any]]:
    """What is said about a scan, and some of its arrays."""
    with open(file, "rb") as body, np.load(body, allow_pickle=False) as kept:
        return json.loads(kept["about"].tobytes()), [kept[name] for name in names]


def load(source: str) -> Columns | None:
    """The columns of the last scan; None if there are none, or none that can be used."""
    from fastpipe.sources.picture.jpeg import made_with

    try:
        about, (paths, bounds, files) = _read(cache_file(source), "paths", "bounds", "files")
        with contextlib.suppress(OSError):  # of another user
            os.utime(cache_file(source))  # it is in use
        if (about["version"], about["source"]) != (_VERSION, source):
            return None
        archives = about["archives"] and [
            (name, size, time) for name, size, time in about["archives"]
        ]
        reasons = {int(number): reason for number, reason in about["reasons"].items()}
        texts = Texts(paths.tobytes(), bounds)
        columns = Columns(
            source, Path(about["folder"]), about["classes"], archives, texts, files, reasons
        )
    except (
        Exception
    ):  # numpy and json raise what they like of another program's file; scanning again mends it
        return None
    if about["versions"] != made_with():  # another Pillow may read what this one did not
        files["kind"][files["kind"] != PLAIN] = UNKNOWN
        columns.reasons = {}
    return columns


def save(columns: Columns) -> None:
    """Keeps the columns, whole or not at all. If they cannot be kept, the log says so once."""
    from fastpipe.sources.picture.jpeg import made_with

    about = {
        "version": _VERSION,
        "source": columns.source,  # JSON keeps the bytes of a name that are no UTF-8, which Python has as surrogates
        "files": len(columns.files),
        "folder": str(columns.folder),
        "classes": columns.classes,
        "archives": columns.archives,
        "reasons": columns.reasons,
        "versions": made_with(),
    }
    text, paths = (
        np.frombuffer(data, dtype=np.uint8)
        for data in (json.dumps(about).encode(), columns.paths.data)
    )
    body = io.BytesIO()
    np.savez(
        body,
        about=text,
        paths=paths,
        bounds=columns.paths.bounds,
        files=columns.files,
        allow_pickle=False,
    )
    file = cache_file(columns.source)
    made = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(prefix=file.stem, dir=file.parent)
        with os.fdopen(handle, "wb") as out:
            out.write(body.getbuffer())
        os.replace(made, file)
        for each in file.parent.glob(
            "scan-*"
        ):  # what nobody has used for weeks, or a process that was killed has left
            with contextlib.suppress(OSError):  # of another user, or removed by another process
                if each.stat().st_mtime < time.time() - _KEPT_S:
                    each.unlink()
    except OSError as problem:
        if made is not None:
            Path(made).unlink(missing_ok=True)
        if str(file.parent) not in _told:
            _told.add(str(file.parent))
            _LOG.warning(
                f"the scan of {readable(columns.source)} cannot be kept in {file.parent} ({problem.strerror}), so each "
                "start scans again; set FASTPIPE_CACHE to a folder that can be written"
            )
