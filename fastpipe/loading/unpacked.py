"""An unpacked source given to a loader -> what does not work with it, and, once, what packing would gain."""

from __future__ import annotations

import logging

from fastpipe.errors import ConfigError
from fastpipe.format.index import Index

_LOG = logging.getLogger("fastpipe")
_told: set[str] = set()


def check_unpacked(index: Index, *, verify: bool) -> None:
    """Says once a source, in the log "fastpipe", that it is not packed.

    Args:
        index: of an unpacked source.
        verify: the loader is to compare hashes.

    Raises:
        ConfigError: it is, and there are none.
    """
    if verify:
        raise ConfigError(
            f"verify=True compares each sample with the hash that `fastpipe pack` recorded, and {index.path} is not "
            "packed. Leave verify out: reading a file compares its size and time with those of the scan"
        )
    if index.fingerprint not in _told:
        _told.add(index.fingerprint)
        _LOG.warning("%s", gain(index))


def gain(index: Index) -> str:
    """What packing would change."""
    converted = int(index.counts["converted"])
    text = f"{index.path} is not packed: its {len(index):,} images are read where they lie."
    if converted:
        text += (
            f" {converted:,} of them are no baseline JPEGs, so they are converted again in each epoch, which takes "
            "several times as long as decoding."
        )
    return (
        f"{text} `fastpipe pack` stores all of them once, so that a loader decodes only the part of an image that it "
        "needs, reads the disk in large pieces, and checks the bytes; docs/performance.md has measurements"
    )
