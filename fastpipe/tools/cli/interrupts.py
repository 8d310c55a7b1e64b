"""Ctrl-C while modules are imported -> the end of the program; later -> KeyboardInterrupt."""

from __future__ import annotations

import os
import signal


def end_at_ctrl_c() -> None:
    """From now on Ctrl-C ends the program with exit code 130: no work has begun.

    KeyboardInterrupt would come in the middle of an import. The start of a C extension turns it
    into another error, and some libraries catch it.
    """
    # A parent process may have told this one to ignore Ctrl-C. That stays so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_at_ctrl_c() -> None:
    """From now on Ctrl-C is a KeyboardInterrupt again: there is work that must end well."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    try:
        os.write(2, b"fastpipe: interrupted\n")
    finally:
        os._exit(130)
