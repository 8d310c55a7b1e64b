"""The `fastpipe` command: a command line -> the work, and a readable report.

A module has one command, or several that belong together.
"""

import sys

import fastpipe
from fastpipe.distribution import overwritten_message
from fastpipe.tools.cli.interrupts import end_at_ctrl_c


def main() -> None:
    """The console script."""
    if not hasattr(fastpipe, "FastpipeError"):
        # Another project's package is imported under this name.
        sys.exit(overwritten_message())
    end_at_ctrl_c()
    from fastpipe.tools.cli.commands import app

    app()
