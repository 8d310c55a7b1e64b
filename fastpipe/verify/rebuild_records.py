"""An intact shard -> its records of the index, only from its members."""

from __future__ import annotations

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.engine.pictures import size_of
from fastpipe.errors import PackError
from fastpipe.format import tar_writer as tar
from fastpipe.format.layout import INDEX_DTYPE
from fastpipe.format.read_at import read_at
from fastpipe.format.sample_layout import BEFORE_BYTES
from fastpipe.verify.shard_facts import ShardFacts
from fastpipe.verify.tar_members import size_in_header, starts_in_tar


def records_of(shard: ShardFacts) -> NDArray[np.void]:
    """(samples,) of INDEX_DTYPE: the records that pack wrote.

    Raises:
        PackError: the shard is damaged.
    """
    damaged = (
        f"{shard.name} is damaged, so the index cannot be rebuilt from it; run fastpipe verify with --repair and "
        "without --quick"
    )
    starts = starts_in_tar(shard)
    if starts is None:
        raise PackError(damaged)
    records: list[tuple[int, ...]] = []
    try:
        with open(shard.path, "rb", buffering=0) as file:
            for start in starts:
                before = read_at(file.fileno(), BEFORE_BYTES, start)
                digits = before[tar.BLOCK :][: size_in_header(before)]
                offset, size = start + BEFORE_BYTES, size_in_header(before[2 * tar.BLOCK :])
                jpeg = read_at(file.fileno(), size, offset)
                width, height = size_of(jpeg)
                digest = xxhash.xxh3_64_intdigest(jpeg)
                records.append((shard.number, offset, size, width, height, int(digits), digest))
    except (OSError, ValueError) as problem:
        raise PackError(f"{damaged} ({problem})") from problem
    return np.array(records, dtype=INDEX_DTYPE)
