"""A file, a stack or an error -> whether it is the user's own code, and which line of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from traceback import walk_stack, walk_tb
from types import FrameType

# The folder fastpipe/, four levels above.
_FASTPIPE = os.path.abspath(__file__).rsplit(os.sep, 4)[0] + os.sep
# <frozen ...>, site-packages, and Python's own library.
_INSTALLED = re.compile(
    r"^<|[/\\](site-packages|dist-packages)[/\\]|[/\\]lib(64)?[/\\]python3(\.\d+t?)?[/\\]",
    re.IGNORECASE,
)


def is_user_file(file: str) -> bool:
    """Whether a file belongs neither to Python, nor to an installed package, nor to fastpipe."""
    return (
        bool(file)
        and not file.startswith(_FASTPIPE)
        and _INSTALLED.search(file) is None
    )


def is_user_place(place: str) -> bool:
    """The same for a line, as file:line."""
    file, _, _ = place.rpartition(":")
    return is_user_file(file)


def find_user_line(frame: FrameType) -> str:
    """Finds the innermost line of the user on a stack, as file:line; "" if there is none."""
    return next(_list_user_lines(walk_stack(frame)), "")


def find_raising_line(problem: BaseException) -> str:
    """Finds the innermost line of the user that an error came through; "" if there is none."""
    outermost_first = list(_list_user_lines(walk_tb(problem.__traceback__)))
    return outermost_first[-1] if outermost_first else ""


def _list_user_lines(frames: Iterable[tuple[FrameType, int]]) -> Iterator[str]:
    for frame, line in frames:
        file = frame.f_code.co_filename
        if is_user_file(file):
            yield f"{file}:{line}"


def find_main_line(frame: FrameType) -> str:
    """Finds the main script's top-level line on a stack of a spawned process; else ""."""
    for caller, line in walk_stack(frame):
        is_module = caller.f_code.co_name == "<module>"
        # multiprocessing gives the main script this name when it imports it in a worker.
        if is_module and caller.f_globals.get("__name__") == "__mp_main__":
            return f"{caller.f_code.co_filename}:{line}"
    return ""
