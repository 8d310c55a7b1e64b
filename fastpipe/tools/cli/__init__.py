"""The `fastpipe` command: a command line -> the work, and a readable report.

A module has one command, or several that belong together.
"""

from fastpipe.tools.cli.interrupts import end_at_ctrl_c


def main() -> None:
    """The console script."""
    end_at_ctrl_c()
    from fastpipe.tools.cli.commands import app

    app()
