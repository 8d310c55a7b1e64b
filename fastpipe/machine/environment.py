"""Variables of the environment that launchers set -> numbers."""

from __future__ import annotations

import os


def read_number(name: str) -> int | None:
    """A whole number in an environment variable, if it has one."""
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else None


def count_ranks() -> int:
    """The number of ranks of this program, as torchrun and other launchers say it; else 1."""
    return max(1, read_number("WORLD_SIZE") or 0)
