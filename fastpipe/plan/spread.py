"""A number of items -> the positions of a few that lie evenly among them."""

from __future__ import annotations

import math


def spread(count: int, most: int) -> range:
    """At most so many of `count` positions, evenly from the first one to the end."""
    return range(0, count, max(1, math.ceil(count / most)))
