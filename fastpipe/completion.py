"""Public classes -> the names that `dir` gives of them, and tab completion shows."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterable


class _PublicNamesType(ABCMeta):
    """`dir` of a class and of its bases, which completion looks through one by one.

    It is an ABCMeta, so that users' classes may have abstract bases besides.
    """

    def __dir__(cls) -> list[str]:
        return _without_internals(super().__dir__(), cls)


class PublicNames(metaclass=_PublicNamesType):
    """Base of public classes with attributes that only other folders of fastpipe use.

    Each class lists its own ones in `_NOT_PUBLIC`. `dir` leaves them out, of the class and of its
    objects.
    """

    __slots__ = ()

    def __dir__(self) -> list[str]:
        return _without_internals(super().__dir__(), type(self))


def _without_internals(names: Iterable[str], kind: type) -> list[str]:
    internals = {"_abc_impl"}
    for base in kind.__mro__:
        internals.update(vars(base).get("_NOT_PUBLIC", ()))
    return sorted(set(names) - internals)
