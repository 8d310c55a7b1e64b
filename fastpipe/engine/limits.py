"""Limits: files that this process opens, pixels of an image that a loader or Dataset decodes, files it refuses."""

from __future__ import annotations

import resource

import numpy as np

from fastpipe.format.index import Index
from fastpipe.native import _engine

# `pack` refuses larger pictures, too, unless it is told otherwise: csrc/base/image.h has the same number.
MAX_PIXELS = 178_956_970

# A file that the engine refuses with one of these codes may be one that packing takes.
_Code = _engine.Code
CONVERTIBLE = frozenset(
    {_Code.not_jpeg, _Code.truncated, _Code.corrupt, _Code.unsupported, _Code.size_mismatch, _Code.png_surplus}
)

# What the end of an iteration, a loader or a program allows for rows that threads are at; milliseconds do where the
# file system answers. As default arguments, for at the end of a program a module's names are gone before its functions.
PATIENCE_S = 10.0

_MOST_OPEN_SHARDS = 256


def most_open_shards(index: Index, threads: int) -> int:
    """A quarter of the files that the process may open; of files of one sample, those that threads are at."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    several = int((np.diff(index.shard_starts, append=len(index)) > 1).sum()) + 2 * threads
    allowed = _MOST_OPEN_SHARDS if soft_limit == resource.RLIM_INFINITY else soft_limit // 4
    return max(1, min(_MOST_OPEN_SHARDS, allowed, several))
