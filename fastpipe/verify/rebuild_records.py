"""An intact shard -> its records of the index, only from its members."""

from __future__ import annotations

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.engine.pictures import size_of
from fastpipe.errors import PackError
from fastpipe.format.layout import INDEX_DTYPE
from fastpipe.format.read_at import read_at
from fastpipe.format.sample_layout import named_in
from fastpipe.verify.shard_facts import ShardFacts
from fastpipe.verify.tar_members import sample_members


def records_of(shard: ShardFacts) -> NDArray[np.void]:
    """(samples,) of INDEX_DTYPE: the records that pack wrote.

    Raises:
        PackError: the shard is damaged.
    """
    damaged = (
        f"{shard.name} is damaged, so the index cannot be rebuilt from it; run fastpipe verify with --repair and "
        "without --quick"
    )
    records: list[tuple[int, ...]] = []
    try:
        with open(shard.path, "rb", buffering=0) as file:
            for members in sample_members(shard, file):
                digits, jpeg, note = (read_at(file.fileno(), each.size, each.offset) for each in members[:3])
                known = *size_of(jpeg), int(digits), xxhash.xxh3_64_intdigest(jpeg), *named_in(note)
                records.append((shard.number, members[1].offset, len(jpeg), *known))
    except (OSError, ValueError) as problem:
        raise PackError(f"{damaged} ({problem})") from problem
    return np.array(records, dtype=INDEX_DTYPE)
