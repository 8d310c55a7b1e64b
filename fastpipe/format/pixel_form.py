"""The index's records -> which forms of pixels they have: channels and bits, which dataset.json sums up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.shard_list import count


class PixelForm(NamedTuple):
    """What a pixel of a picture holds."""

    channels: int = 3  # 1: gray, 3: RGB, 4: RGB and alpha; gray with alpha counts as 4
    bits: int = 8  # of a channel: 8 or 16

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of an array of such pixels: uint8 or uint16."""
        return np.dtype(np.uint8 if self.bits == 8 else np.uint16)

    def __str__(self) -> str:
        return f"{self.channels} x {self.bits}"


FORMS = tuple(PixelForm(channels, bits) for channels in (1, 3, 4) for bits in (8, 16))
_POSSIBLE = np.zeros((256, 256), dtype=np.bool_)
_POSSIBLE[tuple(zip(*FORMS, strict=True))] = True


def possible_forms(records: NDArray[np.void]) -> NDArray[np.bool_]:
    return np.asarray(_POSSIBLE[records["channels"], records["bits"]])


def count_forms(records: NDArray[np.void]) -> Counter[PixelForm]:
    counts = np.bincount(records["channels"].astype(np.int64) << 8 | records["bits"])
    return Counter({PixelForm(each >> 8, each & 255): int(counts[each]) for each in np.flatnonzero(counts).tolist()})


def describe_forms(counts: Counter[PixelForm]) -> list[dict[str, int]]:
    """The entry "forms" of dataset.json."""
    return [{**form._asdict(), "samples": samples} for form, samples in sorted(counts.items())]


def read_forms(described: Iterable[Any]) -> Counter[PixelForm]:
    """What `describe_forms` has described. KeyError, TypeError, ValueError: it is something else."""
    found = Counter(
        {PixelForm(*(count(each[name]) for name in PixelForm._fields)): count(each["samples"]) for each in described}
    )
    if not found.keys() <= set(FORMS):
        raise ValueError(f"expected forms of {', '.join(map(str, FORMS))}; got {', '.join(map(str, found))}")
    return found
