"""An unpacked source -> its index, by the last scan where nothing has changed since."""

from __future__ import annotations

import logging
from pathlib import Path

from fastpipe.errors import format_count
from fastpipe.sources.scan import reading
from fastpipe.sources.scan.cache import load_scan, save_scan
from fastpipe.sources.scan.index import WITH_ALPHA, UnpackedIndex
from fastpipe.sources.scan.scanned_files import Scan, make_scan
from fastpipe.sources.scan.source import UnpackedSource
from fastpipe.warnings_once import is_known, remember

_LOG = logging.getLogger("fastpipe")


def open_unpacked(
    path: Path,
    source: UnpackedSource,
    max_pixels: int | None,
    fingerprint: str | None,
    background: str | None,
) -> UnpackedIndex:
    """Opens an unpacked source, by its last scan where nothing has changed: see `open_data`."""
    previous = load_scan(source.name)
    # This program has opened the source before, so it need not look for changes again.
    if (
        previous is not None
        and len(previous.unknown_numbers) == 0
        and fingerprint is not None
    ):
        index = UnpackedIndex(
            path, previous, max_pixels=max_pixels, background=background
        )
        if index.fingerprint == fingerprint:
            return index

    scan = _scan(source, previous)
    index = UnpackedIndex(path, scan, max_pixels=max_pixels, background=background)
    # A program may open its data several times. It is warned once.
    scanned = f"scanned {index.fingerprint}"
    if is_known(scanned):
        return index
    remember(scanned)
    if index.counts["rejected"]:
        _LOG.warning("%s%s", path, index.describe_rejected())
    alpha_count = int((index.records["channels"] == WITH_ALPHA).sum())
    if alpha_count:
        _LOG.warning(
            "%s: %s %s alpha, which a loader of RGB drops, so the colours under transparent pixels "
            'become visible. fastpipe.open(DATA, background="white") puts the images on white; '
            'channels="rgba" keeps alpha',
            path,
            format_count(alpha_count, "image"),
            "has" if alpha_count == 1 else "have",
        )
    return index


def _scan(source: UnpackedSource, previous: Scan | None) -> Scan:
    """Scans a source. Only files that have changed since the previous scan are read."""
    archives = source.stat_archives()
    # Tars are walked again only if one of them has changed. But the classes of a split are joined
    # with those of the other splits, whose tars are not among `archives` and may have changed.
    if previous is not None and archives is not None and source.split is None:
        is_complete = len(previous.unknown_numbers) == 0
        if is_complete and previous.archives == archives:
            return previous

    scan = make_scan(source.name, source.list_files(), archives)
    is_unchanged = previous is not None and scan.copy_facts(previous)
    if not is_unchanged:
        reading.read_files(scan, scan.unknown_numbers, reading.read_headers)
        save_scan(scan)
    return scan
