"""Limits: files that this process opens, and pixels of an image that a loader or Dataset decodes."""

from __future__ import annotations

import resource

import numpy as np

from fastpipe.format.index import Index

# `pack` refuses larger pictures, too, unless it is told otherwise: csrc/base/image.h has the same number.
MAX_PIXELS = 178_956_970

_MOST_OPEN_SHARDS = 256


def most_open_shards(index: Index, threads: int) -> int:
    """At least 1; a quarter of the files that the process may open, so that the program has the rest. A file with one
    sample, as in a folder of photos, is read once an epoch: only those that threads are at need be open.
    """
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    several = int((np.diff(index.shard_starts, append=len(index)) > 1).sum()) + 2 * threads
    allowed = _MOST_OPEN_SHARDS if soft_limit == resource.RLIM_INFINITY else soft_limit // 4
    return max(1, min(_MOST_OPEN_SHARDS, allowed, several))
