"""Python's own parser, called by several threads at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
_TRIES = 10


def parse_again_on_system_error(parse: Callable[[], Value]) -> Value:
    """Calls a function that uses Python's parser (ast), as numpy does for the header of an .npy file.

    In Python 3.11 threads that parse at the same time share the parser's count of the depth, and one
    of them gets a SystemError (github.com/python/cpython/issues/106905). Then this calls it again.

    Args:
        parse: the function. It may be called several times.
    """
    for _ in range(_TRIES):
        try:
            return parse()
        except SystemError:
            continue
    return parse()
