"""A file, a stack or an error -> whether it is the user's own code, and which line of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from types import FrameType, TracebackType

_FASTPIPE = os.path.abspath(__file__).rsplit(os.sep, 4)[0] + os.sep
_INSTALLED = re.compile(
    r"^<|[/\\](site-packages|dist-packages)[/\\]|[/\\]lib(64)?[/\\]python3(\.\d+t?)?[/\\]", re.IGNORECASE
)


def is_own(file: str) -> bool:
    """Whether a file is neither of Python, nor of an installed package, nor of fastpipe."""
    return bool(file) and not file.startswith(_FASTPIPE) and _INSTALLED.search(file) is None


def own_line(frame: FrameType | None) -> str:
    """The innermost line of the user's own on a stack, as file:line; "" where there is none."""
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def raised_at(problem: BaseException) -> str:
    """The user's own line, the innermost, that an error came through; "" where it came through none."""
    last = ""
    for frame, line in _lines(problem.__traceback__):
        if is_own(frame.f_code.co_filename):
            last = f"{frame.f_code.co_filename}:{line}"
    return last


def _lines(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def main_line(frame: FrameType | None) -> str:
    """The line of the main script, at its top level, that a stack came from, in a process that was spawned."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__mp_main__":
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
