"""Limits: files that this process opens, and pixels of an image that a loader or Dataset decodes."""

from __future__ import annotations

import resource

# `pack` refuses larger pictures, too, unless it is told otherwise: csrc/base/image.h has the same number.
MAX_PIXELS = 178_956_970

_MOST_OPEN_SHARDS = 256


def most_open_shards() -> int:
    """At least 1; a quarter of the files that the process may open, so that the program has the rest."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return _MOST_OPEN_SHARDS
    return max(1, min(_MOST_OPEN_SHARDS, soft_limit // 4))
