"""Limits: open files, pixels of an image, and how long an end waits for threads."""

from __future__ import annotations

import resource

import numpy as np

from fastpipe.dataset.format.index import Index
from fastpipe.native import _engine

# `pack` refuses larger images, too, unless it gets another limit. csrc/base/image.h has this
# number.
MAX_PIXELS = 178_956_970

# If the engine refuses a file with one of these codes, packing may still be able to convert it.
CONVERTIBLE = frozenset(
    {
        _engine.Code.not_jpeg,
        _engine.Code.truncated,
        _engine.Code.corrupt,
        _engine.Code.unsupported,
        _engine.Code.size_mismatch,
        _engine.Code.png_surplus,
    }
)

# How long the end of an iteration, a loader or a program waits for the rows that threads are at
# work on. It takes milliseconds where the file system answers. Functions have it as a default
# argument: at the end of a program, a module's names are gone before its functions are.
PATIENCE_S = 10.0

_MAX_OPEN_SHARDS = 256


def most_open_shards(index: Index, threads: int) -> int:
    """How many shards the engine may keep open: at most a quarter of the process's limit.

    A file of one sample, as in an unpacked folder, is open only while a thread reads it.
    """
    samples_per_shard = np.diff(index.shard_starts, append=len(index))
    has_several = samples_per_shard > 1
    shard_count = int(has_several.sum())
    useful = shard_count + 2 * threads
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MAX_OPEN_SHARDS
    if soft_limit != resource.RLIM_INFINITY:
        allowed = min(allowed, soft_limit // 4)
    return max(1, min(allowed, useful))
