"""Calls of the engine about a picture: its complaints become ImageErrors."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from fastpipe.engine.engine import lacks_memory
from fastpipe.errors import ImageError

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def native(call: Callable[_Given, _Found], *args: _Given.args, **options: _Given.kwargs) -> _Found:
    """Calls the extension. ImageError: it refuses the picture; MemoryError: there is not enough memory for it."""
    try:
        return call(*args, **options)
    except ValueError as problem:
        if lacks_memory(str(problem)):
            raise MemoryError(str(problem)) from problem
        raise ImageError(str(problem)) from problem
