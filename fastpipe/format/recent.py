"""Numbers -> what is open for them, of which the most recently used stay open."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """The open shards of a dataset, say. What is dropped closes itself.

    Threads and forked children may use the same one: only single operations change the table, so it needs no lock that
    a fork could leave held. Two threads may open one number at a time; one of the two is soon closed.

    Args:
        most: that stay open.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._table: OrderedDict[int, T] = OrderedDict()  # least recently used first

    def get(self, number: int, open: Callable[[int], T]) -> T:
        """What is open for a number; else it is opened now."""
        found = self._table.pop(number, None)
        if found is None:
            found = open(number)
            while len(self._table) >= self._most:
                try:
                    self._table.popitem(last=False)
                except KeyError:  # another thread was quicker
                    break
        self._table[number] = found
        return found
