"""Keys of samples, one after the other -> whether a key has been there before, in 8 bytes a key and a bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import readable
from fastpipe.format.sample_layout import key_hash

_LEAST_NEW = 1 << 16


class Keys:
    """The hashes of keys. New ones are in a set, which takes ten times the memory, until there are many."""

    def __init__(self) -> None:
        self._new: set[int] = set()
        self._sorted: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._times: dict[str, int] = {}  # of names that came again

    def __contains__(self, key: str) -> bool:
        hashed = key_hash(readable(key))
        if hashed in self._new:
            return True
        place = int(np.searchsorted(self._sorted, np.uint64(hashed)))
        return place < len(self._sorted) and int(self._sorted[place]) == hashed

    def free(self, name: str) -> str:
        """A key that is not there: the name itself, or with #2, #3, ... behind it."""
        if name not in self:
            return name
        number = self._times.get(name, 1) + 1
        while (found := f"{name}#{number}") in self:
            number += 1
        self._times[name] = number
        return found

    def add(self, key: str) -> None:
        self._new.add(key_hash(readable(key)))
        if len(self._new) > max(_LEAST_NEW, len(self._sorted) // 8):
            new = np.fromiter(self._new, dtype=np.uint64, count=len(self._new))
            self._sorted = np.sort(np.concatenate([self._sorted, new]))
            self._new.clear()
