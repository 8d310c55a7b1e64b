"""A scan -> a file in the cache folder, and back, so that the next start reads only new files."""

from __future__ import annotations

import io
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from fastpipe.dataset.format.shard_list import Texts
from fastpipe.errors import readable
from fastpipe.machine.cache_folder import cache_folder
from fastpipe.sources.scan.scanned_files import PLAIN, UNKNOWN, Archive, Scan
from fastpipe.warnings_once import warn_once

# The version of the file, and of what a scan reads from headers.
_VERSION = 1
# A scan that nobody has used for this long is removed.
_KEPT_S = 60 * 24 * 3600.0


@dataclass(frozen=True)
class KeptScan:
    """A scan in the cache folder."""

    source: str  # "" if the scan is damaged
    file: str
    files: int  # in the source
    disk_bytes: int


def list_kept_scans() -> list[KeptScan]:
    """All scans of the cache folder, by their sources."""
    scans = []
    for file in cache_folder().glob("scan-*.bin"):
        source = ""
        file_count = 0
        try:
            about = _read_about(file)
            source = readable(about["source"])
            file_count = about["files"]
        except Exception:
            # The file is damaged: numpy and json raise errors of many kinds. It is listed without a
            # source, so that the user can remove it.
            pass
        disk_bytes = file.stat().st_blocks * 512
        scans.append(KeptScan(source, str(file), file_count, disk_bytes))
    return sorted(scans, key=lambda scan: scan.source)


def cache_file(source: str) -> Path:
    """The file for the scan of a source: an .npz file, whose parts have a CRC-32 each."""
    digest = xxhash.xxh3_64_hexdigest(os.fsencode(source))
    return cache_folder() / f"scan-{digest}.bin"


def _read_about(file: Path) -> dict[str, Any]:
    """Reads the description of a scan, without its arrays."""
    with open(file, "rb") as body, np.load(body, allow_pickle=False) as arrays:
        return dict(json.loads(arrays["about"].tobytes()))


def load_scan(source: str) -> Scan | None:
    """Reads the last scan of a source; None if there is none, or none that can be used."""
    from fastpipe.sources.picture.jpeg import made_with

    file = cache_file(source)
    try:
        with open(file, "rb") as body, np.load(body, allow_pickle=False) as arrays:
            about = json.loads(arrays["about"].tobytes())
            if about["version"] != _VERSION or about["source"] != source:
                return None
            paths = Texts(arrays["paths"].tobytes(), arrays["bounds"])
            records = arrays["files"]
        archives = about["archives"]
        if archives is not None:
            archives = [Archive(*entry) for entry in archives]
        reasons = {}
        for number, reason in about["reasons"].items():
            reasons[int(number)] = reason
        folder = Path(about["folder"])
        scan = Scan(source, folder, about["classes"], archives, paths, records, reasons)
    except Exception:
        # The file is damaged: numpy and json raise errors of many kinds. A new scan replaces it.
        return None

    try:
        os.utime(file)  # keeps it from being removed as unused
    except OSError:
        pass  # it belongs to another user
    if about["versions"] != made_with():
        # Other versions of the libraries may read, refuse or convert files in another way. So all
        # files but those that the engine reads by itself are read again.
        records["kind"][records["kind"] != PLAIN] = UNKNOWN
        scan.reasons = {}
    return scan


def save_scan(scan: Scan) -> None:
    """Writes a scan to the cache folder, as a whole or not at all.

    A program that cannot write there goes on without the file. The log says so once.
    """
    from fastpipe.sources.picture.jpeg import made_with

    about = {
        "version": _VERSION,
        # A name that is not UTF-8 has surrogates in Python, which JSON keeps.
        "source": scan.source,
        "files": len(scan.files),
        "folder": str(scan.folder),
        "classes": scan.classes,
        "archives": scan.archives,
        "reasons": scan.reasons,
        "versions": made_with(),
    }
    body = io.BytesIO()
    np.savez(
        body,
        about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
        paths=np.frombuffer(scan.paths.data, dtype=np.uint8),
        bounds=scan.paths.bounds,
        files=scan.files,
        allow_pickle=False,
    )
    file = cache_file(scan.source)
    try:
        _write(file, body.getbuffer())
        _remove_unused(file.parent)
    except OSError as problem:
        warn_once(
            f"scans in {file.parent}",
            f"the scan of {readable(scan.source)} cannot be kept in {file.parent} "
            f"({problem.strerror}), so each start scans again; set FASTPIPE_CACHE to a folder "
            "that can be written",
        )


def _write(file: Path, data: memoryview) -> None:
    """Writes a file under another name first: several processes may scan one source."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(prefix=file.stem, dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        os.replace(partial, file)
    except OSError:
        os.unlink(partial)
        raise


def _remove_unused(folder: Path) -> None:
    """Removes old scans, and files of processes that were killed while they wrote one."""
    for file in folder.glob("scan-*"):
        try:
            if file.stat().st_mtime < time.time() - _KEPT_S:
                file.unlink()
        except OSError:
            pass  # another process has removed it, or it belongs to another user
