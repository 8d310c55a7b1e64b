"""A file system's name -> text that every terminal and file can hold."""

from __future__ import annotations

import os


def readable(name: str) -> str:
    """The name with bytes that are not UTF-8 as a backslash, x and two digits: `caf\\xe9.jpg`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
