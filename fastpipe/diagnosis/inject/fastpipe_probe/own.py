"""A file, a stack or an error -> whether it is the user's own code, and which line of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from traceback import walk_stack, walk_tb
from types import FrameType

_FASTPIPE = os.path.abspath(__file__).rsplit(os.sep, 4)[0] + os.sep
_INSTALLED = re.compile(
    r"^<|[/\\](site-packages|dist-packages)[/\\]|[/\\]lib(64)?[/\\]python3(\.\d+t?)?[/\\]", re.IGNORECASE
)


def is_own(file: str) -> bool:
    """Whether a file is neither of Python, nor of an installed package, nor of fastpipe."""
    return bool(file) and not file.startswith(_FASTPIPE) and _INSTALLED.search(file) is None


def own_line(frame: FrameType) -> str:
    """The innermost line of the user's own on a stack, as file:line; "" where there is none."""
    return next(_own_lines(walk_stack(frame)), "")


def raised_at(problem: BaseException) -> str:
    """The user's own line, the innermost, that an error came through; "" where it came through none."""
    return ["", *_own_lines(walk_tb(problem.__traceback__))][-1]


def _own_lines(frames: Iterable[tuple[FrameType, int]]) -> Iterator[str]:
    return (f"{frame.f_code.co_filename}:{line}" for frame, line in frames if is_own(frame.f_code.co_filename))


def main_line(frame: FrameType) -> str:
    """The line of the main script, at its top level, that a stack came from, in a process that was spawned."""
    for each, line in walk_stack(frame):
        if each.f_code.co_name == "<module>" and each.f_globals.get("__name__") == "__mp_main__":
            return f"{each.f_code.co_filename}:{line}"
    return ""
