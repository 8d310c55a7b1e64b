"""The shards of a loader's dataset -> an error if some of them are not in its folder.

A copy that was stopped has its dataset.json already. Without this, training would begin, and end at
the first sample of a missing shard.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import numpy as np

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.format.folder import Url
from fastpipe.dataset.format.index import Index
from fastpipe.errors import DatasetError, first_names, format_count

_LOG = logging.getLogger("fastpipe")
_MAX_NAMED = 3


def check_shards_exist(data: Dataset, *, replace_bad: bool) -> None:
    """Raises DatasetError if shards with samples of a dataset are missing.

    It lists each folder once. With on_error="replace", which trains without them, the log says it.
    """
    missing: list[int] = []  # numbers in the index of all datasets
    first_number = 0
    for stored in data.stored:
        missing += [first_number + number for number in _missing_shards(stored.index)]
        first_number += len(stored.index.shards)
    content = data.content
    if missing and content.samples is not None:
        # A part of a dataset needs no other shards.
        records = content.index.records_of(content.samples)
        needed = set(np.unique(records["shard"]).tolist())
        missing = [number for number in missing if number in needed]
    if not missing:
        return
    shards = content.index.shards
    names = [str(shards[number].path) for number in missing]
    verb = "is" if len(missing) == 1 else "are"
    message = (
        f"{data.path}: {len(missing):,} of {format_count(len(shards), 'shard')} {verb} missing: "
        f"{first_names(names, _MAX_NAMED)}. It may have been copied only in part: copy it again; or "
        "fastpipe verify DATA --repair SRC"
    )
    if not replace_bad:
        raise DatasetError(message)
    _LOG.warning("%s. Their samples are replaced by others", message)


def _missing_shards(index: Index) -> Iterator[int]:
    """The numbers of the shards of one dataset that are not in its folder."""
    if not index.packed or isinstance(index.path, Url):
        return
    try:
        names = set(os.listdir(index.folder))
    except OSError:
        return  # opening a shard says why
    for number, shard in enumerate(index.shards):
        if shard.name not in names and not shard.path.exists():
            yield number
