"""Warnings that the log of this process has, so that each comes once."""

from __future__ import annotations

import logging

_LOG = logging.getLogger("fastpipe")
# Names of warnings, and of looks that need no second one.
_known: set[str] = set()


def is_known(name: str) -> bool:
    """Whether a warning was logged, or something was remembered, by this name."""
    return name in _known


def remember(name: str) -> None:
    """From now on `is_known(name)`, without a warning."""
    _known.add(name)


def warn_once(name: str, message: str) -> None:
    """Logs a message, unless this process has logged one by this name."""
    if name in _known:
        return
    _known.add(name)
    _LOG.warning("%s", message)


def forget_all() -> None:
    """As in a new process: for tests."""
    _known.clear()
