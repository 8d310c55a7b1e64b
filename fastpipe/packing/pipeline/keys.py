"""Keys of samples -> whether a key has come before, in about 8 bytes a key."""

from __future__ import annotations

import numpy as np

from fastpipe.arrays import Uint64s
from fastpipe.dataset.format.sample_layout import key_hash
from fastpipe.errors import readable

# New keys are sorted into the array when there are at least so many.
_MIN_NEW = 1 << 16


class Keys:
    """Hashes of keys: a sorted array, and a set of new ones, which takes ten times the memory."""

    def __init__(self) -> None:
        self._new: set[int] = set()
        self._sorted: Uint64s = np.empty(0, dtype=np.uint64)
        # The last number that `free` gave to a name.
        self._numbers: dict[str, int] = {}

    def __contains__(self, key: str) -> bool:
        hashed = key_hash(readable(key))
        if hashed in self._new:
            return True
        # Where the hash is in the sorted array, or would be.
        index = int(np.searchsorted(self._sorted, np.uint64(hashed)))
        if index == len(self._sorted):
            return False
        return int(self._sorted[index]) == hashed

    def free(self, name: str) -> str:
        """A key that has not come yet: the name itself, or with #2, #3, ... behind it."""
        if name not in self:
            return name
        # Goes on behind the last number, so that a name that comes often is not tried from #2 on
        # each time.
        number = self._numbers.get(name, 1) + 1
        while f"{name}#{number}" in self:
            number += 1
        self._numbers[name] = number
        return f"{name}#{number}"

    def add(self, key: str) -> None:
        self._new.add(key_hash(readable(key)))
        # The array is sorted again only when it has grown by an eighth.
        most_new = max(_MIN_NEW, len(self._sorted) // 8)
        if len(self._new) > most_new:
            count = len(self._new)
            new = np.fromiter(self._new, dtype=np.uint64, count=count)
            hashes = np.concatenate([self._sorted, new])
            hashes.sort()  # in place: hashes of a billion keys take 8 GB
            self._sorted = hashes
            self._new.clear()
