"""Columns of a source <-> a file in the cache folder, so that the next start reads no header again."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import readable
from fastpipe.machine.cache_folder import cache_folder
from fastpipe.scan.columns import PLAIN, UNKNOWN, Columns, Texts

_LOG = logging.getLogger("fastpipe")
_VERSION = 3  # of the file, and of what a scan finds out
_DIGEST_BYTES = 16  # XXH3-128 of all that follows, at the beginning of the file
_NUMBERS = ("labels", "sizes", "mtimes_ns", "shards", "offsets", "widths", "heights", "kinds", "identities")
_KEPT_S = 60 * 24 * 3600.0  # without being used
_told: set[str] = set()


@dataclass(frozen=True)
class KeptScan:
    """A scan in the cache folder.

    Attributes:
        source: absolute path, or pattern; "" if the file cannot be read.
        file: of the scan, as text.
        files: found in the source.
        disk_bytes: that the scan takes.
    """

    source: str
    file: str
    files: int
    disk_bytes: int


def kept_scans() -> list[KeptScan]:
    """All scans of the cache folder, by their sources."""
    found = []
    for file in cache_folder().glob("scan-*.bin"):
        source, files = "", 0
        with contextlib.suppress(Exception), open(file, "rb") as body:  # of another program, or half removed
            body.seek(_DIGEST_BYTES)
            source = json.loads(_next_array(body).tobytes())["source"]
            _next_array(body)
            files = len(_next_array(body))
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            found.append(KeptScan(source, str(file), files, file.stat().st_blocks * 512))
    return sorted(found, key=lambda each: each.source)


def cache_file(source: str) -> Path:
    """Where the columns of a source are kept.

    Args:
        source: absolute path, or pattern.
    """
    return cache_folder() / f"scan-{xxhash.xxh3_64_hexdigest(os.fsencode(source))}.bin"


def load(source: str) -> Columns | None:
    """The columns of the last scan; None if there are none, or none that can be used."""
    from fastpipe.packing.picture.jpeg import versions

    try:
        data = cache_file(source).read_bytes()
        with contextlib.suppress(OSError):  # of another user
            os.utime(cache_file(source))  # it is in use
        if xxhash.xxh3_128_digest(data[_DIGEST_BYTES:]) != data[:_DIGEST_BYTES]:
            return None
        body = io.BytesIO(data[_DIGEST_BYTES:])
        about = json.loads(_next_array(body).tobytes())
        if about["version"] != _VERSION or about["source"] != readable(source):
            return None
        paths = Texts(_next_array(body).tobytes(), _next_array(body))
        names = Texts(_next_array(body).tobytes(), _next_array(body))
        numbers: dict[str, Any] = {name: _next_array(body) for name in _NUMBERS}
        times = about["archive_times"]
        columns = Columns(
            source=source,
            folder=Path(os.fsdecode(bytes.fromhex(about["folder"]))),
            classes=about["classes"],
            archives=None if times is None else [(names[at], size, time) for at, (size, time) in enumerate(times)],
            paths=paths,
            reasons={int(number): reason for number, reason in about["reasons"].items()},
            further=about["further"],
            **numbers,
        )
    except Exception:  # numpy and json raise what they like of another program's file; scanning again mends it
        return None
    if about["versions"] != versions():  # another Pillow may read what this one did not
        columns.kinds[columns.kinds != PLAIN] = UNKNOWN
        columns.reasons = {}
    return columns


def save(columns: Columns) -> None:
    """Keeps the columns, whole or not at all. If they cannot be kept, the log says so once."""
    from fastpipe.packing.picture.jpeg import versions

    archives, source = columns.archives, columns.source
    kinds = columns.kinds.copy()
    kinds[list(columns.unread)] = UNKNOWN
    names = Texts.of(name for name, _, _ in archives or [])
    about = {
        "version": _VERSION,
        "source": readable(source),
        "folder": os.fsencode(columns.folder).hex(),
        "classes": columns.classes,
        "archive_times": None if archives is None else [times for _, *times in archives],
        "reasons": {number: why for number, why in columns.reasons.items() if number not in columns.unread},
        "further": columns.further,
        "versions": versions(),
    }
    body = io.BytesIO()
    for array in (
        _as_bytes(json.dumps(about).encode()),
        *(_as_bytes(columns.paths.data), columns.paths.ends),
        *(_as_bytes(names.data), names.ends),
        *(kinds if name == "kinds" else getattr(columns, name) for name in _NUMBERS),
    ):
        np.lib.format.write_array(body, array, allow_pickle=False)
    file = cache_file(source)
    made = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(prefix=file.stem, dir=file.parent)
        with os.fdopen(handle, "wb") as out:
            out.write(xxhash.xxh3_128_digest(body.getbuffer()))
            out.write(body.getbuffer())
        os.replace(made, file)
        _remove_unused(file.parent)
    except OSError as problem:
        if made is not None:
            Path(made).unlink(missing_ok=True)
        if str(file.parent) not in _told:
            _told.add(str(file.parent))
            _LOG.warning(
                "the scan of %s cannot be kept in %s (%s), so each start scans again; set FASTPIPE_CACHE to a folder "
                "that can be written",
                readable(source),
                file.parent,
                problem.strerror,
            )


def _remove_unused(folder: Path) -> None:
    """Scans that nobody has used for weeks, and what a process that was killed left behind."""
    oldest = time.time() - _KEPT_S
    for each in folder.glob("scan-*"):
        with contextlib.suppress(OSError):  # of another user, or removed by another process
            if each.stat().st_mtime < oldest:
                each.unlink()


def _as_bytes(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8)


def _next_array(body: BinaryIO) -> NDArray[Any]:
    array: NDArray[Any] = np.lib.format.read_array(body, allow_pickle=False)
    return array
