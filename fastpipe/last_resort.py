"""Warnings of a program that has configured no logging -> stderr, with the name of their library.

Python itself would print them there without a name, so that nobody could tell who speaks.
"""

from __future__ import annotations

import logging
import sys


class _LastResort(logging.Handler):
    """Takes the place of `logging.lastResort` for the logger that it belongs to."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = logging.getLogger("fastpipe")
        is_configured = logging.getLogger().handlers or logger.handlers != [self]
        if is_configured or sys.stderr is None:
            return
        sys.stderr.write(f"fastpipe: {record.getMessage()}\n")


def add_handler() -> None:
    """Has warnings printed where the program has no handler for them."""
    logging.getLogger("fastpipe").addHandler(_LastResort(logging.WARNING))
