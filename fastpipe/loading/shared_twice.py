"""The part of a dataset that a loader of a rank reads -> a warning if the program has shared it out.

A loader gives each rank its share itself. With torch.distributed, ranks with other samples are an
error; without it no rank knows of the others.
"""

from __future__ import annotations

import numpy as np

from fastpipe.arrays import Int64s
from fastpipe.dataset.dataset import Dataset
from fastpipe.errors import format_count
from fastpipe.plan.partition import Ranks
from fastpipe.warnings_once import warn_once

_MAX_SAMPLES = 1 << 21
_LEAST_SAMPLES = 4


def warn_shared_twice(data: Dataset, ranks: Ranks) -> bool:
    """Says if the samples are just those of this rank, every n-th or one block of n.

    Returns whether they are.
    """
    samples = data.content.samples
    if ranks.world_size == 1 or samples is None:
        return False
    if not _LEAST_SAMPLES <= len(samples) <= _MAX_SAMPLES:
        return False
    if not _is_share(samples, len(data.index), ranks):
        return False
    count = format_count(len(samples), "sample")
    warn_once(
        f"shared twice {data.path}",
        f"{data.path}: these {count} are already the share of rank {ranks.rank} of {ranks.world_size}, and "
        "the loader shares them out once more, so most samples never come. Pass the whole dataset; or, to "
        "read just these on this rank, rank=0 and world_size=1",
    )
    return True


def _is_share(samples: Int64s, num_all: int, ranks: Ranks) -> bool:
    every_nth = np.arange(ranks.rank, num_all, ranks.world_size)
    if np.array_equal(samples, every_nth):
        return True
    # Blocks may be rounded down or up.
    first = int(samples[0])
    is_block = int(samples[-1]) - first + 1 == len(samples) and bool(
        (np.diff(samples) == 1).all()
    )
    share = num_all / ranks.world_size
    is_place = abs(first - ranks.rank * share) < ranks.world_size
    return is_block and is_place and abs(len(samples) - share) < ranks.world_size
