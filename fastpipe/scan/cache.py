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
from typing import Any

import numpy as np
import xxhash

from fastpipe.errors import readable
from fastpipe.format.shard_list import Texts
from fastpipe.machine.cache_folder import cache_folder
from fastpipe.scan.columns import PLAIN, UNKNOWN, Columns

_LOG = logging.getLogger("fastpipe")
_VERSION = 6  # of the file, and of what a scan finds out
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
    from fastpipe.packing.picture.jpeg import made_with

    try:
        about, (paths, bounds, files) = _read(cache_file(source), "paths", "bounds", "files")
        with contextlib.suppress(OSError):  # of another user
            os.utime(cache_file(source))  # it is in use
        if (about["version"], about["source"]) != (_VERSION, source):
            return None
        columns = Columns(
            source=source,
            folder=Path(about["folder"]),
            classes=about["classes"],
            archives=about["archives"] and [(name, size, time) for name, size, time in about["archives"]],
            paths=Texts(paths.tobytes(), bounds),
            files=files,
            reasons={int(number): reason for number, reason in about["reasons"].items()},
        )
    except Exception:  # numpy and json raise what they like of another program's file; scanning again mends it
        return None
    if about["versions"] != made_with():  # another Pillow may read what this one did not
        files["kind"][files["kind"] != PLAIN] = UNKNOWN
        columns.reasons = {}
    return columns


def save(columns: Columns) -> None:
    """Keeps the columns, whole or not at all. If they cannot be kept, the log says so once."""
    from fastpipe.packing.picture.jpeg import made_with

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
    text, paths = (np.frombuffer(data, dtype=np.uint8) for data in (json.dumps(about).encode(), columns.paths.data))
    body = io.BytesIO()
    np.savez(body, about=text, paths=paths, bounds=columns.paths.bounds, files=columns.files, allow_pickle=False)
    file = cache_file(columns.source)
    made = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(prefix=file.stem, dir=file.parent)
        with os.fdopen(handle, "wb") as out:
            out.write(body.getbuffer())
        os.replace(made, file)
        for each in file.parent.glob("scan-*"):  # what nobody has used for weeks, or a process that was killed has left
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
